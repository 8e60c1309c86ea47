"""What a study is made of, as the catalog keeps it, and what of it may change while it is under way."""

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
"""Says of a study by name whether its search is wider than its last version, or the same; else it raises."""

_ACCEPTABLE = ("trainer", "data")  # what may change when the user says so; the rest is what the study is


class StudySpec(msgspec.Struct, frozen=True):
    """What a study is made of, as the catalog keeps it.

    ``root`` stands for all that lineages start from: code, data and seed. ``program`` is the file that defined
    the study, for commands that need its code. ``members`` are the studies of a group that was run together.
    ``environments`` are the places where it was run: versions and processors, which bits may depend on.
    ``versions`` are what each study searched and how, oldest first: more than one where it was widened. ``search``
    and ``space`` are texts of the last one, for people. ``variants`` are names of what else changes bits, oldest
    first: more than one if the user has accepted changes. ``platform`` is that of the last one.
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
        """The variant under which it went on last; "" for a study that was begun before there were any."""
        return self.variants[-1] if self.variants else ""

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
        versions = {name: found for spec in specs.values() for name, found in spec.versions.items()}
        return msgspec.structs.replace(first, space=space, search=search, members=list(specs), versions=versions)

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
        versions = {name: self.versions[name]} if name in self.versions else {}
        return msgspec.structs.replace(
            self, space=space, search=search, goal=spec.goal, members=[], versions=versions
        )

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


class AgreedSpec(NamedTuple):
    """What studies go on with; ``is_changed`` if their code or data are not those of the last run.

    A spec with changed code or data is not in the catalog yet: first what failed is to be asked for again, so that
    a driver that is killed in between leaves nothing undone.
    """

    spec: StudySpec
    is_changed: bool = False


def agree(
    store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool, widens: Widens | None = None
) -> AgreedSpec:
    """Return what studies go on with, after comparing what they are made of now with what the store holds.

    ``widens`` says which searches are extensions of what was begun; without it, they must be the same.
    """
    refuse_others(store, name, studies, accept, widens)
    spec, known = StudySpec.together(studies), store.catalog.find(name)
    if known is None:
        store.catalog.register(name, msgspec.to_builtins(spec))
        return AgreedSpec(spec)
    if not store.journal.last(name):  # nothing came of it before: it may be anything
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
    """Return the spec with which a study goes on: a wider search is added to it.

    Changed code or data are another root: nothing is trained any more under the one before.
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
    """Return what a study searched at first, alone or in a group: it is the same however often it is widened."""
    for known in store.catalog.all():
        try:
            versions = StudySpec.read(known.spec).versions.get(study)
        except HoptreeError:
            continue  # of another version: it has nothing to say
        if versions:
            return versions[0]
    return None


def _told(name: str, spec: StudySpec) -> str:
    return f"{name}: {spec.search}, {spec.goal}"


def refuse_others(
    store: Store, name: str, studies: Mapping[str, StudySpec], accept: bool, widens: Widens | None = None
) -> None:
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
                refuse_changes(study, before.of(study, spec), spec, accept, widens)
            elif study == known.name:
                refuse_changes(study, before, spec, accept, widens)


def refuse_changes(
    name: str, before: StudySpec, spec: StudySpec, accept: bool, widens: Widens | None = None
) -> None:
    """Refuse to go on with a study that is another one now.

    Code and data may change if the user accepts that, and the search if ``widens`` says that it is an extension.
    """
    changed = [field for field in StudySpec.compared if getattr(before, field) != getattr(spec, field)]
    refused = [
        f"{field}: was {getattr(before, field)}, is {getattr(spec, field)}"
        for field in changed
        if field not in _ACCEPTABLE
    ]
    acceptable = [field for field in changed if field in _ACCEPTABLE]
    otherwise = _search_changes(before, spec)
    why = _no_extension(before, spec, widens) if otherwise else None
    refused += otherwise if why is not None else []
    if before.settings.partitions != spec.settings.partitions:
        refused.append(f"partitions: was {before.settings.partitions}, is {spec.settings.partitions}")
    if before.settings.order != spec.settings.order:
        refused.append(f"order: was {before.settings.order}, is {spec.settings.order}")
    if refused:
        raise StudyChangedError(
            f"study {name!r} is another than the one that was begun ({'; '.join(refused)}){why or ''}; give it "
            "another name: what both have in common is found in the store"
        )
    if acceptable and not accept:
        raise StudyChangedError(
            f"study {name!r}: {', '.join(acceptable)} changed since it was begun; give it another name, or say "
            "run(accept_changes=True), or --accept-changes: trials that are complete stay as they are, and the "
            "others are trained anew"
        )


def _search_changes(before: StudySpec, spec: StudySpec) -> list[str]:
    """Return what differs in search and space, one line each."""
    search = [f"search: was {before.search}, is {spec.search}"] if before.search != spec.search else []
    return [*search, *changes(before.space, spec.space)]


def _no_extension(before: StudySpec, spec: StudySpec, widens: Widens | None) -> str | None:
    """Return why other searches are no extensions of what was begun; None if they are."""
    if widens is None or before.versions.keys() != spec.versions.keys():
        return ""
    try:
        for study, versions in before.versions.items():
            widens(study, versions)
    except NoExtensionError as error:
        return f", and no extension of it ({error})"
    return None
