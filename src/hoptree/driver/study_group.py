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

_EXAMPLES = 12  # configs of a study's space to rehearse if those that start fail
_COMMON = (
    "trainer",
    "data",
    "seed",
    "share",
    "settings",
    "reuse",
)  # all studies of a group must have these in common


class SearchVersions(Protocol):
    """The searches of a study, and whether they extend those that it was started with."""

    def searches(self, versions: Sequence[SearchVersion] = ()) -> list[Search]:
        """Return its searches in their initial state; ``versions`` are those that the study was continued with."""
        ...

    def widens(self, versions: Sequence[SearchVersion]) -> bool:
        """Return whether its search is wider than the last version; raise an error if it is no extension of it."""
        ...


class StudyDefinition(SearchVersions, Protocol):
    """What a driver needs of a study."""

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
        """The folder of its states and journal."""
        ...

    @property
    def spec(self) -> StudySpec:
        """Its definition, as stored in the catalog."""
        ...

    def open_store(self, create: bool = True) -> Store:
        """Open its store."""
        ...


@final
class StudyGroup:
    """One study, or several with the same trainer, data and seed."""

    def __init__(self, studies: Sequence[StudyDefinition]) -> None:
        if not studies:
            raise WorkloadError("studies: none given; expected at least one")
        self.studies = list(studies)
        self.first = studies[0]
        self.names = [study.name for study in studies]
        self.name = "+".join(self.names)
        if len(set(self.names)) < len(self.names):
            raise WorkloadError(f"studies: the names {self.names} are not unique; give each study its own name")
        for study in studies[1:]:
            if study.store != self.first.store:
                raise WorkloadError(
                    f"studies: the store of {study.name!r} is {study.store}, and that of {self.names[0]!r} is "
                    f"{self.first.store}; expected the same store for all"
                )
            spec, first = study.spec, self.first.spec
            for field in _COMMON:
                if getattr(spec, field) != getattr(first, field):
                    raise WorkloadError(
                        f"studies: {study.name!r} and {self.names[0]!r} differ in {field}, so they cannot share "
                        "work; run them one after the other"
                    )

    @property
    def specs(self) -> dict[str, StudySpec]:
        """The definitions of its studies, by name."""
        return {study.name: study.spec for study in self.studies}

    @property
    def goals(self) -> dict[str, Goal]:
        """The goals of its studies, by name."""
        return {study.name: study.goal for study in self.studies}

    @property
    def shares(self) -> list[tuple[str, bool]]:
        """Its studies by name, and whether their trials share work."""
        return [(study.name, study.share) for study in self.studies]

    @property
    def save_every(self) -> int:
        """The number of epochs between saved states; 0: save only when much work would be lost."""
        return min((study.save_every for study in self.studies if study.save_every), default=0)

    def policy(self, choice: PolicyChoice, spec: StudySpec) -> Policy | None:
        """Return the policy if it is given as an object or as a schedule, else None.

        The rows of a schedule are the first trials. Raise an error if the schedule does not fit the study, or if
        the policy returns invalid ranks.
        """
        if isinstance(choice, str):
            return None
        asked = [event for event in self.tuners(spec).start() if isinstance(event, TrialAsked)]
        policy = choice
        if not isinstance(policy, Policy):
            if spec.settings.order != "free":
                raise WorkloadError(
                    f"policy: a solved schedule, with order={spec.settings.order!r}; expected Study(order='free'), "
                    "because a schedule sets when a trial visits each partition"
                )
            histories = [history(dict(event.config)) for event in asked]
            policy = planned(policy, histories, spec.root, spec.settings.partitions)
        try_out(policy, spec.settings, asked)
        return policy

    def examples(self) -> list[Config]:
        """Return configs that the searches may ask for, of every study in turn."""
        found = [some_configs(study.space, study.seed, _EXAMPLES) for study in self.studies]
        return [config for kind in zip_longest(*found) for config in kind if config is not None]

    def widens(self, name: str, versions: Sequence[SearchVersion]) -> bool:
        """Return whether a study's search is wider than its last version; raise if it is no extension of it."""
        return next(study for study in self.studies if study.name == name).widens(versions)

    def tuners(self, spec: StudySpec, numbers: TrialNumbers | None = None) -> Tuners:
        """Return the searches of all studies in their initial state, including all extensions."""
        given = TrialNumbers(self.names) if numbers is None else numbers
        tuners = [
            Tuner(search, study=study.name, root=spec.root, place=place, numbers=given, share=study.share)
            for study in self.studies
            for place, search in enumerate(study.searches(spec.versions.get(study.name, ())))
        ]
        return Tuners(tuners, given)
