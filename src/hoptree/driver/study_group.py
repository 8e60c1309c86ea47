"""A study group: the studies that one driver runs together, with one engine, one journal and one set of workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

from hoptree.core.errors import WorkloadError
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import history
from hoptree.core.policies import Policy
from hoptree.core.policy_choice import PolicyChoice, planned, try_out
from hoptree.record.spec import StudySpec
from hoptree.search.sampling import some_configs
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuner, Tuners

if TYPE_CHECKING:
    from hoptree.core.schedules import Config
    from hoptree.data import Dataset
    from hoptree.search.protocol import Goal, Procedure, Search
    from hoptree.search.space import Space
    from hoptree.search.widening import SearchVersion
    from hoptree.store import Store
    from hoptree.trainers.base import Trainer

_EXAMPLES = 12  # configs of a study's space that are tried if those that begin fail
_ALIKE = (
    "trainer",
    "data",
    "seed",
    "share",
    "settings",
    "reuse",
)  # what lineages start from, and how they are trained


class StudyDefinition(Protocol):
    """A study as its driver needs it."""

    name: str
    trainer: Trainer
    data: Dataset
    space: Space
    search: Procedure | Sequence[Procedure]
    goal: Goal
    seed: int
    share: bool
    keep: int
    save_every: int

    @property
    def store(self) -> Path:
        """The folder in which it keeps its states."""
        ...

    @property
    def spec(self) -> StudySpec:
        """What it is made of, as the catalog keeps it."""
        ...

    def open_store(self, create: bool = True) -> Store:
        """Open the store that it keeps everything in."""
        ...

    def searches(self, versions: Sequence[SearchVersion] = ()) -> list[Search]:
        """Return its searches, at their beginning; ``versions`` are those that it went on with."""
        ...

    def widens(self, versions: Sequence[SearchVersion]) -> bool:
        """Return whether its search is wider than the last of some versions; refuse another one."""
        ...


@final
class StudyGroup:
    """One study, or several that have in common what lineages start from."""

    def __init__(self, studies: Sequence[StudyDefinition]) -> None:
        if not studies:
            raise WorkloadError("studies: none given; expected at least one")
        self.studies = list(studies)
        self.first = studies[0]
        self.names = [study.name for study in studies]
        self.name = "+".join(self.names)
        if len(set(self.names)) < len(self.names):
            raise WorkloadError(f"studies: the names {self.names} are not all different; give each its own")
        for study in studies[1:]:
            if study.store != self.first.store:
                raise WorkloadError(
                    f"studies: {study.name!r} is kept in {study.store}, {self.names[0]!r} in {self.first.store}; "
                    "expected one store for all"
                )
            own, first = study.spec, self.first.spec
            for field in _ALIKE:
                if getattr(own, field) != getattr(first, field):
                    raise WorkloadError(
                        f"studies: {study.name!r} has another {field} than {self.names[0]!r}, so they have nothing "
                        "to share; run them one after the other"
                    )

    @property
    def specs(self) -> dict[str, StudySpec]:
        """What its studies are made of, by name."""
        return {study.name: study.spec for study in self.studies}

    @property
    def goals(self) -> dict[str, Goal]:
        """What its studies look for, by name."""
        return {study.name: study.goal for study in self.studies}

    @property
    def shares(self) -> list[tuple[str, bool]]:
        """Its studies, and whether their trials share."""
        return [(study.name, study.share) for study in self.studies]

    @property
    def save_every(self) -> int:
        """The epochs between states that are saved; 0: only when much would be lost."""
        return min((study.save_every for study in self.studies if study.save_every), default=0)

    def policy(self, choice: PolicyChoice, spec: StudySpec) -> Policy | None:
        """Return the policy that is given other than by its name; the rows of a schedule are the first trials.

        One that does not fit, or answers nonsense, is refused.
        """
        if isinstance(choice, str):
            return None
        asked = [event for event in self.tuners(spec).start() if isinstance(event, TrialAsked)]
        own = choice
        if not isinstance(own, Policy):
            if spec.settings.order != "free":
                raise WorkloadError(
                    f"policy: a solved schedule, with order={spec.settings.order!r}; expected Study(order='free'), "
                    "since a schedule says when a trial visits each partition"
                )
            histories = [history(dict(event.config)) for event in asked]
            own = planned(own, histories, spec.root, spec.settings.partitions)
        try_out(own, spec.settings, asked)
        return own

    def examples(self) -> list[Config]:
        """Return configs that the searches may come to, of every study in turn."""
        found = [some_configs(study.space, study.seed, _EXAMPLES) for study in self.studies]
        return [config for kind in zip_longest(*found) for config in kind if config is not None]

    def widens(self, name: str, versions: Sequence[SearchVersion]) -> bool:
        """Return whether a study's search is wider than the last of its versions; refuse another one."""
        return next(study for study in self.studies if study.name == name).widens(versions)

    def tuners(self, spec: StudySpec, numbers: TrialNumbers | None = None) -> Tuners:
        """Return the searches of all studies, at their beginning, as wide as they have become."""
        given = TrialNumbers(self.names) if numbers is None else numbers
        tuners = [
            Tuner(search, study=study.name, root=spec.root, place=place, numbers=given, share=study.share)
            for study in self.studies
            for place, search in enumerate(study.searches(spec.versions.get(study.name, ())))
        ]
        return Tuners(tuners, given)
