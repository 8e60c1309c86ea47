"""The options of commands that read a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def in_a_store(command: Command) -> Command:
    """Add --store and --journal."""
    journal = click.option("--journal", metavar="URL", help="The journal's database.  [default: in the store]")
    store = click.option("--store", "location", default=".hoptree", show_default=True, help="The store's folder.")
    return store(journal(command))
