"""What commands share: options, JSON output, interrupts, and completion of study names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final, TypeVar

import click
import msgspec

from hoptree.ui.exit_codes import INTERRUPTED

STORE: Final = ".hoptree"

Command = TypeVar("Command", bound=Callable[..., Any])


def of_a_store(command: Command) -> Command:
    """Add the options that say where a store is, and --json."""
    return in_a_store(click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command))


def in_a_store(command: Command) -> Command:
    """Add the options that say where a store is."""
    journal = click.option("--journal", metavar="URL", help="The journal's database.  [default: in the store]")
    store = click.option("--store", "location", default=STORE, show_default=True, help="The store's folder.")
    return store(journal(command))


def study_argument(command: Command) -> Command:
    """Add a study's name as an argument that shells can complete."""
    return click.argument("name", shell_complete=complete_study)(command)


def complete_study(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the studies of the store whose names start with ``incomplete``; none if the store cannot be read."""
    from hoptree.core.errors import HoptreeError
    from hoptree.store import Store

    location = str(context.params.get("location") or STORE)
    try:
        with Store(location, create=False, journal_url=context.params.get("journal")) as store:
            return [known.name for known in store.catalog.all() if known.name.startswith(incomplete)]
    except HoptreeError:
        return []


@contextmanager
def interruptible(message: str) -> Iterator[None]:
    """On Ctrl-C, print a message instead of a traceback, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(message, err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def stdout_kept_for_json(as_json: bool) -> Iterator[None]:
    """With --json, redirect what user code prints to stderr, also in workers: stdout holds only JSON."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def print_json(value: object) -> None:
    """Print a value as JSON; the schemas are in docs/json."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
