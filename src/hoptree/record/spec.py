"""The definition of a study as stored in the catalog, and what of it may change when the study is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from hoptree.core.errors import HoptreeError, StudyChangedError
from hoptree.core.settings import Settings
from hoptree.search.errors import NoExtensionError
from hoptree.search.protocol import Goal
from hoptree.search.space import changes
from hoptree.search.widening import SearchVersion

if TYPE_CHECKING:
    from hoptree.store import Store

Widens: TypeAlias = Callable[[str, Sequence[SearchVersion]], bool]
"""Returns whether the search of a study (by name) is wider than its last version or the same; else raises."""

_ACCEPTABLE = ("trainer", "data")  # what may change if the user accepts it


class StudySpec(msgspec.Struct, frozen=True):
    """The definition of a study, as stored in the catalog.

    ``root`` identifies what lineages start from: code, data and seed. ``program`` is the file that defined the
    study, for commands that need its code. ``members`` are the studies of a group that was run together.
    ``environments`` are the versions and processors that it was run with, on which bits may depend. ``versions``
    are the searches of each study, oldest first: more than one if it was extended; ``search`` and ``space`` are
    texts of the last one. ``variants`` identify what else changes bits, oldest first: more than one if the user
    has accepted changes; ``platform`` belongs to the last one.
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
    versions: dict[str, list[SearchVersion]] = {}
    reuse: Literal["always", "never"] = "always"
    variants: list[str] = []
    platform: dict[str, str] = {}

    compared = ("trainer", "data", "goal", "seed", "share", "reuse")

    @property
    def variant(self) -> str:
        """The variant of the last run; "" for a study that was started before variants existed."""
        return self.variants[-1] if self.variants else ""

    @classmethod
    def together(cls, specs: Mapping[str, StudySpec]) -> StudySpec:
        """Return the spec of a group of studies, by name, which have the same trainer, data and seed."""
        first, *others = specs.values()
        if not others:
            return first
        space = {
            part: [[f"{name}: {line[0]}", *line[1:]] for name, spec in specs.items() for line in spec.space[part]]
            for part in ("names", "where")
        }
        search = "; ".join(_describe(name, spec) for name, spec in specs.items())
        versions = {name: found for spec in specs.values() for name, found in spec.versions.items()}
        return msgspec.structs.replace(first, space=space, search=search, members=list(specs), versions=versions)

    def of(self, name: str, spec: StudySpec) -> StudySpec:
        """Return the part of a group's spec that belongs to one member; ``spec`` is that member's present spec."""
        space = {
            part: [
                [line[0].removeprefix(f"{name}: "), *line[1:]] for line in lines if line[0].startswith(f"{name}: ")
            ]
            for part, lines in self.space.items()
        }
        same = _describe(name, spec) in self.search
        search = spec.search if same else self.search
        versions = {name: self.versions[name]} if name in self.versions else {}
        return msgspec.structs.replace(
            self, space=space, search=search, goal=spec.goal, members=[], versions=versions
        )

    @classmethod
    def read(cls, spec: dict[str, Any]) -> StudySpec:
        """Return a spec as read from the catalog; raise an error if another version wrote it."""
        from hoptree.store import StoreVersionError

        try:
            return msgspec.convert(spec, cls)
        except msgspec.ValidationError as error:
            raise StoreVersionError(
                f"study: this version of Hoptree cannot read its definition in the catalog ({error}); use the "
                "version that ran it, or another name"
            ) from None


class AgreedSpec(NamedTuple):
    """The spec that studies continue with; ``is_changed`` if code or data differ from the last run.

    A spec with changed code or data is not in the catalog yet: failed trials are requested again first, so that a
    driver that is killed in between leaves nothing undone.
    """

    spec: StudySpec
    is_changed: bool = False


def agree(
    store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool, widens: Widens | None = None
) -> AgreedSpec:
    """Compare the studies with those in the store; return the spec to continue with, or raise an error.

    ``widens`` says which searches extend the earlier ones; without it, they must be the same.
    """
    refuse_others(store, name, studies, accept, widens)
    spec, known = StudySpec.together(studies), store.catalog.find(name)
    if known is None:
        store.catalog.register(name, msgspec.to_builtins(spec))
        return AgreedSpec(spec)
    if not store.journal.last(name):  # it has never run: it may be redefined
        store.catalog.set_spec(name, msgspec.to_builtins(spec))
        return AgreedSpec(spec)
    before = StudySpec.read(known.spec)
    refuse_changes(name, before, spec, accept, widens)
    agreed = continued(before, spec, widens)
    is_changed = (before.trainer, before.data) != (spec.trainer, spec.data)
    if not is_changed:
        store.catalog.set_spec(name, msgspec.to_builtins(agreed))
    return AgreedSpec(agreed, is_changed)


def continued(before: StudySpec, spec: StudySpec, widens: Widens | None = None) -> StudySpec:
    """Return the spec with which a study continues: an extended search is added as a new version.

    Changed code or data have another root: nothing is trained under the earlier one any more.
    """
    new = [each for each in spec.environments if each not in before.environments]
    versions = {}
    for study, present in spec.versions.items():
        earlier = before.versions.get(study, [])
        wider = widens is not None and bool(earlier) and widens(study, earlier)
        versions[study] = [*earlier, *present] if wider else earlier or present
    return msgspec.structs.replace(
        spec,
        settings=before.settings,
        variants=before.variants,
        platform=before.platform,
        environments=[*before.environments, *new],
        versions=versions,
    )


def first_version(store: Store, study: str) -> SearchVersion | None:
    """Return the first search of a study, alone or in a group: it stays the same however often it is extended."""
    for known in store.catalog.all():
        try:
            versions = StudySpec.read(known.spec).versions.get(study)
        except HoptreeError:
            continue  # written by another version: skip it
        if versions:
            return versions[0]
    return None


def _describe(name: str, spec: StudySpec) -> str:
    return f"{name}: {spec.search}, {spec.goal}"


def refuse_others(
    store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool, widens: Widens | None = None
) -> None:
    """Raise an error if studies were started with another definition, alone or in another group than this one."""
    for known in store.catalog.all():
        if known.name == name or not store.journal.last(known.name):
            continue
        try:
            before = StudySpec.read(known.spec)
        except HoptreeError:
            continue  # written by another version: skip it
        for study, spec in studies.items():
            if study in before.members:
                refuse_changes(study, before.of(study, spec), spec, accept, widens)
            elif study == known.name:
                refuse_changes(study, before, spec, accept, widens)


def refuse_changes(
    name: str, before: StudySpec, spec: StudySpec, accept: bool, widens: Widens | None = None
) -> None:
    """Raise an error if a study cannot continue because its definition differs.

    Code and data may change if the user accepts that, and the search if ``widens`` says that it is an extension.
    """
    changed = [field for field in StudySpec.compared if getattr(before, field) != getattr(spec, field)]
    refused = [
        f"{field}: was {getattr(before, field)}, is {getattr(spec, field)}"
        for field in changed
        if field not in _ACCEPTABLE
    ]
    acceptable = [field for field in changed if field in _ACCEPTABLE]
    differences = _search_changes(before, spec)
    why = _no_extension(before, spec, widens) if differences else None
    refused += differences if why is not None else []
    if before.settings.partitions != spec.settings.partitions:
        refused.append(f"partitions: was {before.settings.partitions}, is {spec.settings.partitions}")
    if before.settings.order != spec.settings.order:
        refused.append(f"order: was {before.settings.order}, is {spec.settings.order}")
    if refused:
        raise StudyChangedError(
            f"study {name!r} differs from the one that was started ({'; '.join(refused)}){why or ''}; give it "
            "another name: work that both have in common is reused from the store"
        )
    if acceptable and not accept:
        raise StudyChangedError(
            f"study {name!r}: {', '.join(acceptable)} changed since it was started; give it another name, or use "
            "run(accept_changes=True) or --accept-changes: complete trials stay as they are, and the others are "
            "trained from the start"
        )


def _search_changes(before: StudySpec, spec: StudySpec) -> list[str]:
    """Return the differences in search and space, one line each."""
    search = [f"search: was {before.search}, is {spec.search}"] if before.search != spec.search else []
    return [*search, *changes(before.space, spec.space)]


def _no_extension(before: StudySpec, spec: StudySpec, widens: Widens | None) -> str | None:
    """Return why searches do not extend the earlier ones; None if they do."""
    if widens is None or before.versions.keys() != spec.versions.keys():
        return ""
    try:
        for study, versions in before.versions.items():
            widens(study, versions)
    except NoExtensionError as error:
        return f", and does not extend it ({error})"
    return None
