"""``hoptree add``, ``extend``, ``clone``, ``stop`` and ``retry``: change one's mind about a study.

They leave a wish in the store. A driver takes it up within seconds; else it is taken up when the study runs again.
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
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="A number, a word or a schedule; may be repeated."
)
_EPOCHS = click.option("--epochs", required=True, type=int, help="The epoch until which it is trained.")
_TRIAL = click.argument("trial", type=int)


@click.command(name="add")
@study_argument
@_SET
@_EPOCHS
@click.option(
    "--like", type=int, metavar="TRIAL", help="Take what is not set from this trial.  [default: the first]"
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
    """Have another config trained.

    Example: hoptree add digits --set lr=0.01 --set width=64 --epochs 6
    """
    from hoptree.driver.request_validation import addition, changed

    view = _look(location, journal, name)
    wish = addition(changed(view.record, name, like or 0, _read(changes)), epochs)
    told = {"wish": "add", "config": _plain(wish), "epochs": epochs}
    _leave(view, [wish], told, f"another config is trained until epoch {epochs}", location, journal, as_json)


@click.command(name="extend", short_help="Have a trial trained for longer.")
@study_argument
@_TRIAL
@_EPOCHS
@of_a_store
def extend_command(name: str, trial: int, epochs: int, location: str, journal: str | None, as_json: bool) -> None:
    """Have a trial trained on, from the state that it ended with.

    Example: hoptree extend digits 3 --epochs 12
    """
    from hoptree.driver.request_validation import extension

    view = _look(location, journal, name)
    wish = extension(view.record, name, trial, epochs)
    _leave(view, [wish], {"wish": "extend", "trial": trial, "epochs": epochs},
           f"trial {trial} goes on until epoch {epochs}", location, journal, as_json)  # fmt: skip


@click.command(name="clone", short_help="Branch off a trial with a changed config.")
@study_argument
@_TRIAL
@_SET
@click.option("--at", required=True, type=int, metavar="EPOCH", help="The epoch up to which it follows the trial.")
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
    """Have a new trial that follows another one up to an epoch, and a changed config from there on.

    What both have in common is not trained again.

    \b
    Examples:
      hoptree clone digits 3 --set lr=0.001 --at 4 --epochs 8
      hoptree clone digits 3 --set 'lr=cosine(0.01, period=8)' --at 4 --epochs 12
    """  # noqa: D301 click needs the real character
    from hoptree.driver.request_validation import clone

    view = _look(location, journal, name)
    wish = clone(view.record, name, trial, at, _read(changes), epochs)
    told = {"wish": "clone", "trial": trial, "at": at, "config": _plain(wish), "epochs": epochs}
    words = f"a new trial follows trial {trial} until epoch {at}, and goes on until epoch {epochs}"
    _leave(view, [wish], told, words, location, journal, as_json)


@click.command(name="stop", short_help="Give a trial up.")
@study_argument
@_TRIAL
@of_a_store
def stop_command(name: str, trial: int, location: str, journal: str | None, as_json: bool) -> None:
    """Give a running trial up; work that only it needs is not done.

    To stop a whole study, press Ctrl-C where it runs.

    Example: hoptree stop digits 3
    """
    from hoptree.driver.request_validation import giving_up

    view = _look(location, journal, name)
    wish = giving_up(view.record, name, trial)
    told = {"wish": "stop", "trial": trial}
    _leave(view, [wish], told, f"trial {trial} is given up", location, journal, as_json)


@click.command(name="retry", short_help="Train failed trials again.")
@study_argument
@click.argument("trial", type=int, required=False)
@of_a_store
def retry_command(name: str, trial: int | None, location: str, journal: str | None, as_json: bool) -> None:
    """Train all failed trials again, or one of them, from the deepest state that is stored.

    \b
    Examples:
      hoptree retry digits
      hoptree retry digits 3
    """  # noqa: D301 click needs the real character
    from hoptree.driver.request_validation import retrials

    view = _look(location, journal, name)
    wishes = retrials(view.record, name, trial)
    trials = [wish.trial for wish in wishes]
    some = f"trial {trials[0]} is" if len(trials) == 1 else f"{len(trials)} failed trials are"
    told = {"wish": "retry", "trials": trials}
    _leave(view, wishes, told, f"{some} trained again", location, journal, as_json)


# --- what they have in common -----------------------------------------------------------------------------


def _look(location: str, journal: str | None, name: str) -> StudyView:
    from hoptree.ui.studies_view import find_study, reading

    with reading(location, journal) as store:
        view = find_study(store, name)
    if view.spec.members:
        raise WorkloadError(
            f"{name}: these are several studies that ran together; say this to one of them, in Python: "
            "study.stop(…), .extend(…), .clone(…), .add(…) or .retry(…)"
        )
    return view


def _leave(
    view: StudyView,
    wishes: Sequence[UserRequest],
    told: dict[str, Any],
    words: str,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """Enter wishes, and say who will take them up."""
    from hoptree.store import Store

    with Store(location, create=False, journal_url=journal) as store:
        store.wishes.make(view.name, *wishes)
    driver = view.head.driver
    if as_json:
        print_json({"study": view.name, **told, "driver": view.head.to_dict()["driver"]})
    elif driver is not None:
        click.echo(f"{view.name}: {words}; process {driver.pid} on {driver.host} takes it up within seconds.")
    else:
        again = f"hoptree run {shlex.quote(view.spec.program)}" if view.spec.program else "study.run()"
        click.echo(f"{view.name}: {words} when it runs again: {again}")


def _read(settings: tuple[str, ...]) -> Config:
    """Return what the user sets, by name."""
    changes: Config = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise WorkloadError(f"--set: {setting!r}; expected NAME=VALUE, such as lr=0.01")
        changes[name] = parse_setting(text)
    return changes


def parse_setting(text: str) -> Value:
    """Return what a user writes after NAME=: a Python literal, a schedule, or else a word.

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


def _plain(wish: AddTrial | CloneTrial) -> dict[str, Any]:
    return {name: v if v is None or isinstance(v, int | float | str) else str(v) for name, v in wish.config}
