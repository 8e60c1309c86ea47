"""What a study is made of, as the catalog keeps it, and what of it may change while it is under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.errors import HoptreeError, StudyChangedError
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
    def together(cls, specs: Mapping[str, StudySpec]) -> StudySpec:
        """Return the spec of a group of studies, by name, that have in common what lineages start from."""
        first, *others = specs.values()
        if not others:
            return first
        space = {
            part: [[f"{name}: {line[0]}", *line[1:]] for name, spec in specs.items() for line in spec.space[part]]
            for part in ("names", "where")
        }
        search = "; ".join(_told(name, spec) for name, spec in specs.items())
        return msgspec.structs.replace(first, space=space, search=search, members=list(specs))

    def of(self, name: str, spec: StudySpec) -> StudySpec:
        """Return what a group's spec tells of a member, which is ``spec`` now."""
        space = {
            part: [
                [line[0].removeprefix(f"{name}: "), *line[1:]] for line in lines if line[0].startswith(f"{name}: ")
            ]
            for part, lines in self.space.items()
        }
        same = _told(name, spec) in self.search
        search = spec.search if same else self.search
        return msgspec.structs.replace(self, space=space, search=search, goal=spec.goal, members=[])

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


def agree(store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool) -> StudySpec:
    """Return what studies go on with, after comparing what they are made of now with what the store holds."""
    refuse_others(store, name, studies, accept)
    spec, known = StudySpec.together(studies), store.catalog.find(name)
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


def _told(name: str, spec: StudySpec) -> str:
    return f"{name}: {spec.search}, {spec.goal}"


def refuse_others(store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool) -> None:
    """Refuse studies that were begun as others, alone or in another group than the one of this name."""
    for known in store.catalog.all():
        if known.name == name or not store.journal.last(known.name):
            continue
        try:
            before = StudySpec.read(known.spec)
        except HoptreeError:
            continue  # of another version: it has nothing to say
        for study, spec in studies.items():
            if study in before.members:
                refuse_changes(study, before.of(study, spec), spec, accept)
            elif study == known.name:
                refuse_changes(study, before, spec, accept)


def refuse_changes(name: str, before: StudySpec, spec: StudySpec, accept: bool) -> None:
    """Refuse to go on with a study that is another one now; code and data may change if the user accepts that."""
    changed = [field for field in StudySpec.compared if getattr(before, field) != getattr(spec, field)]
    refused = [
        f"{field}: was {getattr(before, field)}, is {getattr(spec, field)}"
        for field in changed
        if field not in _ACCEPTABLE
    ]
    acceptable = [field for field in changed if field in _ACCEPTABLE]
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
    if acceptable and not accept:
        raise StudyChangedError(
            f"study {name!r}: {', '.join(acceptable)} changed since it was begun; give it another name, or say "
            "run(accept_changes=True), or --accept-changes, to go on as if nothing had changed"
        )
