"""Widening: continue a study with a search that asks for more than before.

The catalog keeps every version of a study's search as plain data, oldest first. A procedure that can extend earlier
versions of itself has a method ``widen``:

    def widen(self, earlier: Sequence[EarlierSearch], space, goal, seed) -> Search

``earlier`` are the previous versions, each with its space. The returned search requests everything that they
requested, with the same trial numbers and in the same order, and then what is new; when it is told the reports of
the journal, it requests what is missing there. If this version is not an extension, ``widen`` raises
``NoExtensionError`` with the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hoptree.search.describe_space import condition_changes, describe
from hoptree.search.errors import NoExtensionError
from hoptree.search.parse_space import Space
from hoptree.search.plain_data import (
    RebuildError,
    data_text,
    rebuild_setting,
    rebuild_space,
    setting_data,
    space_data,
)
from hoptree.search.protocol import Goal, Procedure, Search, begin
from hoptree.search.rungs import rung_epochs

FORMAT = 1


class SearchVersion(msgspec.Struct, frozen=True):
    """A study's search as data: its procedures, its space, and the hashes of its conditions."""

    procedures: list[Any]
    space: Any
    where: list[list[str]]
    format: int = FORMAT

    @classmethod
    def of(cls, procedures: Sequence[Procedure], space: Space) -> SearchVersion:
        """Return the data of the current search."""
        return cls([setting_data(each) for each in procedures], space_data(space), describe(space)["where"])


class EarlierSearch(NamedTuple):
    """A procedure of an earlier version of the study, and the space that it searched."""

    procedure: Any
    space: Space


def searches(
    procedures: Sequence[Procedure], space: Space, goal: Goal, seed: int, versions: Sequence[SearchVersion] = ()
) -> list[Search]:
    """Return the searches of a study, given its earlier versions; the last version may be the current one."""
    earlier = [_rebuilt(version, procedures, space) for version in versions]
    found: list[Search] = []
    for index, procedure in enumerate(procedures):
        before = [own for version in earlier if not _is_same(own := version[index], procedure, space)]
        if not before:
            found.append(begin(procedure, space, goal, seed))
        elif callable(widen := getattr(procedure, "widen", None)):
            found.append(widen(before, space, goal, seed))
        else:
            raise NoExtensionError(_differs(before[-1].procedure, procedure) or "the space has changed")
    return found


def is_wider(
    procedures: Sequence[Procedure], space: Space, goal: Goal, seed: int, versions: Sequence[SearchVersion]
) -> bool:
    """Return whether a search extends its last version; False if they are equal, an error if it does not."""
    last = _rebuilt(versions[-1], procedures, space)
    if all(_is_same(own, procedure, space) for own, procedure in zip(last, procedures, strict=True)):
        return False
    searches(procedures, space, goal, seed, versions)
    return True


def only_more(procedure: Any, earlier: Sequence[EarlierSearch], space: Space, *fields: str) -> None:
    """Raise an error if the space or any setting has changed, except that the given fields may have grown."""
    if space_data(earlier[-1].space) != space_data(space):
        raise NoExtensionError("the space has changed, and only a Grid can take additional values")
    only_grown(procedure, earlier[-1].procedure, *fields)


def only_grown(procedure: Any, before: Any, *fields: str) -> None:
    """Raise an error if any setting has changed, except that the given fields may have grown."""
    for name, was, now in _changed(before, procedure):
        if name not in fields:
            raise NoExtensionError(f"{name}: was {data_text(was)}, is {data_text(now)}")
        if not (was is None or now is None or now >= was):
            raise NoExtensionError(f"{name}: was {was}, is {now}, which is less")


def drawn_one_by_one(procedure: Any, before: Any, field: str) -> None:
    """Raise an error if a sampler that places all configs together would have to draw more."""
    if procedure.sampler == "latin-hypercube" and getattr(procedure, field) != getattr(before, field):
        raise NoExtensionError(f"{field}: a Latin hypercube is built for a fixed number of configs")


def higher_rungs(procedure: Any, before: Any) -> None:
    """Raise an error if the new rungs do not start with the earlier ones."""
    old, new = (rung_epochs(each.min_epochs, each.max_epochs, each.factor) for each in (before, procedure))
    if new[: len(old)] != old:
        raise NoExtensionError(f"max_epochs: rungs were at {old}, are at {new}; the first ones must be the same")


def _rebuilt(version: SearchVersion, procedures: Sequence[Procedure], space: Space) -> list[EarlierSearch]:
    """Return the procedures of a version with their space, rebuilt with the current classes and functions."""
    if version.format != FORMAT:
        raise NoExtensionError(f"the store describes it in format {version.format}; this Hoptree reads {FORMAT}")
    if len(version.procedures) != len(procedures):
        raise NoExtensionError(f"the number of procedures was {len(version.procedures)}, is {len(procedures)}")
    try:
        was = rebuild_space(version.space, space)
        changed = condition_changes(version.where, describe(was)["where"])
        if changed:
            raise NoExtensionError("; ".join(changed))
        pairs = zip(version.procedures, procedures, strict=True)
        return [EarlierSearch(rebuild_setting(data, procedure), was) for data, procedure in pairs]
    except RebuildError as error:
        raise NoExtensionError(str(error)) from None


def _is_same(earlier: EarlierSearch, procedure: Procedure, space: Space) -> bool:
    same_space = (space_data(earlier.space), describe(earlier.space)) == (space_data(space), describe(space))
    return same_space and setting_data(earlier.procedure) == setting_data(procedure)


def _differs(before: Any, now: Any) -> str:
    changed = _changed(before, now)
    return "; ".join(f"{name}: was {data_text(was)}, is {data_text(is_now)}" for name, was, is_now in changed)


def _changed(before: Any, present: Any) -> list[tuple[str, Any, Any]]:
    """Return the settings that differ, each with its old and new value."""
    old, new = setting_data(before), setting_data(present)
    match old, new:
        case {"record": [_, dict(was)]}, {"record": [_, dict(are)]}:
            return [(name, was.get(name), now) for name, now in are.items() if was.get(name) != now]
    return [] if old == new else [("search", old, new)]
