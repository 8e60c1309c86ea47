"""``hoptree add``, ``extend``, ``clone``, ``stop`` and ``retry``: change a study while it runs or afterwards.

Each writes a request to the store. A running driver handles it within seconds, otherwise the next run does.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hoptree.core.errors import WorkloadError
from hoptree.ui.common import of_a_store, print_json, study_argument

if TYPE_CHECKING:
    from hoptree.core.schedules import Config, Value
    from hoptree.store.requests import AddTrial, CloneTrial, UserRequest
    from hoptree.ui.studies_view import StudyView

_SET = click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="A number, text or schedule; may be repeated."
)
_EPOCHS = click.option("--epochs", required=True, type=int, help="Train until this epoch.")
_TRIAL = click.argument("trial", type=int)


@click.command(name="add")
@study_argument
@_SET
@_EPOCHS
@click.option(
    "--like", type=int, metavar="TRIAL", help="Take values that are not set from this trial.  [default: the first]"
)
@of_a_store
def add_command(
    name: str,
    changes: tuple[str, ...],
    epochs: int,
    like: int | None,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """Train another config.

    Example: hoptree add digits --set lr=0.01 --set width=64 --epochs 6
    """
    from hoptree.driver.request_validation import addition, changed

    view = _find_single(location, journal, name)
    request = addition(changed(view.record, name, like or 0, _read(changes)), epochs)
    fields = {"request": "add", "config": _plain(request), "epochs": epochs}
    _submit(view, [request], fields, f"another config is trained until epoch {epochs}", location, journal, as_json)


@click.command(name="extend", short_help="Train a trial for longer.")
@study_argument
@_TRIAL
@_EPOCHS
@of_a_store
def extend_command(name: str, trial: int, epochs: int, location: str, journal: str | None, as_json: bool) -> None:
    """Train a trial for longer, from its last state.

    Example: hoptree extend digits 3 --epochs 12
    """
    from hoptree.driver.request_validation import extension

    view = _find_single(location, journal, name)
    request = extension(view.record, name, trial, epochs)
    fields = {"request": "extend", "trial": trial, "epochs": epochs}
    _submit(view, [request], fields, f"trial {trial} continues until epoch {epochs}", location, journal, as_json)


@click.command(name="clone", short_help="Branch off a trial with a changed config.")
@study_argument
@_TRIAL
@_SET
@click.option("--at", required=True, type=int, metavar="EPOCH", help="The epoch at which it branches off.")
@_EPOCHS
@of_a_store
def clone_command(
    name: str,
    trial: int,
    changes: tuple[str, ...],
    at: int,
    epochs: int,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """Start a new trial from another trial's state at an epoch, with a changed config from there on.

    The epochs that both share are not trained again.

    \b
    Examples:
      hoptree clone digits 3 --set lr=0.001 --at 4 --epochs 8
      hoptree clone digits 3 --set 'lr=cosine(0.01, period=8)' --at 4 --epochs 12
    """  # noqa: D301 click needs the real character
    from hoptree.driver.request_validation import clone

    view = _find_single(location, journal, name)
    request = clone(view.record, name, trial, at, _read(changes), epochs)
    fields = {"request": "clone", "trial": trial, "at": at, "config": _plain(request), "epochs": epochs}
    effect = f"a new trial branches off trial {trial} at epoch {at}, and is trained until epoch {epochs}"
    _submit(view, [request], fields, effect, location, journal, as_json)


@click.command(name="stop", short_help="Stop a trial.")
@study_argument
@_TRIAL
@of_a_store
def stop_command(name: str, trial: int, location: str, journal: str | None, as_json: bool) -> None:
    """Stop a running trial; work that only this trial needs is not done.

    To stop a whole study, press Ctrl-C where it runs, or use hoptree interrupt.

    Example: hoptree stop digits 3
    """
    from hoptree.driver.request_validation import stop_request

    view = _find_single(location, journal, name)
    request = stop_request(view.record, name, trial)
    fields = {"request": "stop", "trial": trial}
    _submit(view, [request], fields, f"trial {trial} is stopped", location, journal, as_json)


@click.command(name="retry", short_help="Train failed trials again.")
@study_argument
@click.argument("trial", type=int, required=False)
@of_a_store
def retry_command(name: str, trial: int | None, location: str, journal: str | None, as_json: bool) -> None:
    """Train all failed trials again, or one of them, from the latest stored state.

    \b
    Examples:
      hoptree retry digits
      hoptree retry digits 3
    """  # noqa: D301 click needs the real character
    from hoptree.driver.request_validation import retry_requests

    view = _find_single(location, journal, name)
    requests = retry_requests(view.record, name, trial)
    trials = [request.trial for request in requests]
    some = f"trial {trials[0]} is" if len(trials) == 1 else f"{len(trials)} failed trials are"
    fields = {"request": "retry", "trials": trials}
    _submit(view, requests, fields, f"{some} trained again", location, journal, as_json)


# --- shared -----------------------------------------------------------------------------------------------


def _find_single(location: str, journal: str | None, name: str) -> StudyView:
    """Return a study; raise an error if it is a group, because requests go to one of its members."""
    from hoptree.ui.studies_view import find_study, reading

    with reading(location, journal) as store:
        view = find_study(store, name)
    if view.spec.members:
        raise WorkloadError(
            f"{name}: this is a group of studies that ran together; change one of its studies in Python: "
            "study.stop(…), .extend(…), .clone(…), .add(…) or .retry(…)"
        )
    return view


def _submit(
    view: StudyView,
    requests: Sequence[UserRequest],
    fields: dict[str, Any],
    effect: str,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """Write requests to the store, and print who will handle them."""
    from hoptree.store import Store

    with Store(location, create=False, journal_url=journal) as store:
        store.requests.make(view.name, *requests)
    driver = view.head.driver
    if as_json:
        print_json({"study": view.name, **fields, "driver": view.head.to_dict()["driver"]})
    elif driver is not None:
        click.echo(f"{view.name}: {effect}; process {driver.pid} on {driver.host} does this within seconds.")
    else:
        again = f"hoptree run {shlex.quote(view.spec.program)}" if view.spec.program else "study.run()"
        click.echo(f"{view.name}: {effect} when it runs again: {again}")


def _read(settings: tuple[str, ...]) -> Config:
    """Return the values of --set by name."""
    changes: Config = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise WorkloadError(f"--set: {setting!r}; expected NAME=VALUE, such as lr=0.01")
        changes[name] = parse_setting(text)
    return changes


def parse_setting(text: str) -> Value:
    """Return the value of a text after NAME=: a Python literal, a schedule, or else the text itself.

    >>> [parse_setting(text) for text in ("0.01", "64", "true", "adam", "'adam'")]
    [0.01, 64, True, 'adam', 'adam']
    """
    from hoptree.ui.workload_file import parse_value

    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value: Value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return parse_value(text)
    return value if isinstance(value, int | float | str) else text


def _plain(request: AddTrial | CloneTrial) -> dict[str, Any]:
    return {name: v if v is None or isinstance(v, int | float | str) else str(v) for name, v in request.config}
