"""What a study is made of, as the catalog keeps it, and what of it may change while it is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.errors import StudyChangedError
from hoptree.core.settings import Settings
from hoptree.search.protocol import Goal
from hoptree.search.space import changes

if TYPE_CHECKING:
    from hoptree.store import Store

_ACCEPTABLE = ("trainer", "data")  # what may change when the user says so; the rest is what the study is


class StudySpec(msgspec.Struct, frozen=True):
    """What a study is made of, as the catalog keeps it.

    ``root`` stands for all that lineages start from: code, data and seed. ``program`` is the file that defined
    the study, for commands that need its code. ``members`` are the studies of a group that was run together.
    ``environments`` are the places where it was run: versions and processors, which bits may depend on.
    """

    trainer: str
    data: str
    space: dict[str, Any]
    search: str
    goal: Goal
    seed: int
    share: bool
    settings: Settings
    root: str
    program: str
    members: list[str] = []
    environments: list[dict[str, str]] = []

    compared = ("trainer", "data", "search", "goal", "seed", "share")

    @classmethod
    def read(cls, spec: dict[str, Any]) -> StudySpec:
        """Return a spec as the catalog gives it back."""
        from hoptree.store import StoreVersionError

        try:
            return msgspec.convert(spec, cls)
        except msgspec.ValidationError as error:
            raise StoreVersionError(
                f"study: the catalog describes it in a way that this Hoptree does not read ({error}); use the "
                "Hoptree that ran it, or another name"
            ) from None


def agree(store: Store, name: str, spec: StudySpec, accept: bool) -> StudySpec:
    """Return what a study goes on with, after comparing what it is made of now with what the store holds."""
    known = store.catalog.find(name)
    if known is None:
        store.catalog.register(name, msgspec.to_builtins(spec))
        return spec
    if not store.journal.last(name):  # nothing came of it before: it may be anything
        store.catalog.set_spec(name, msgspec.to_builtins(spec))
        return spec
    before = StudySpec.read(known.spec)
    refuse_changes(name, before, spec, accept)
    new = [each for each in spec.environments if each not in before.environments]
    agreed = msgspec.structs.replace(
        spec, root=before.root, settings=before.settings, environments=[*before.environments, *new]
    )
    store.catalog.set_spec(name, msgspec.to_builtins(agreed))
    return agreed


def refuse_changes(name: str, before: StudySpec, spec: StudySpec, accept: bool) -> None:
    """Refuse to go on with a study that is another one now; code and data may change if the user accepts that."""
    changed = [field for field in StudySpec.compared if getattr(before, field) != getattr(spec, field)]
    refused = [
        f"{field}: was {getattr(before, field)}, is {getattr(spec, field)}"
        for field in changed
        if field not in _ACCEPTABLE
    ]
    refused += changes(before.space, spec.space)
    if before.settings.partitions != spec.settings.partitions:
        refused.append(f"partitions: was {before.settings.partitions}, is {spec.settings.partitions}")
    if before.settings.order != spec.settings.order:
        refused.append(f"order: was {before.settings.order}, is {spec.settings.order}")
    if refused:
        raise StudyChangedError(
            f"study {name!r} is another than the one that was begun ({'; '.join(refused)}); give it another name: "
            "what both have in common is found in the store"
        )
    if changed and not accept:
        raise StudyChangedError(
            f"study {name!r}: {', '.join(changed)} changed since it was begun; give it another name, or say "
            "run(accept_changes=True), or --accept-changes, to go on as if nothing had changed"
        )
