"""Planning the nodes of studies: their stages, times and latencies, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, final

import msgspec

from hoptree.core.durations import parse_duration
from hoptree.core.errors import WorkloadError
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import Values, history, segments
from hoptree.core.profile import Profile, seconds_by_devices
from hoptree.driver.elastic_settings import ElasticSettings, check_budget, check_instance
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.study_stages import JobTerms, StudyStages, TrainingTimes
from hoptree.forecast.study_plan import FigureSource, StudyPlan, plan_nodes
from hoptree.record.latencies import Latencies, measured_latencies
from hoptree.record.record import Record
from hoptree.report.tables import counted, duration, money
from hoptree.study.arguments import as_procedures
from hoptree.study.explain_studies import LearnedStudy, StudyExplainer

if TYPE_CHECKING:
    from hoptree.driver.options import RunOptions
    from hoptree.elastic.instance import Instance
    from hoptree.study.study import Study

PROVISION = 90.0  # seconds until a node runs, if nobody knows
_EXAMPLES = 8  # configs whose units are shown
START = 30.0  # seconds from then until it can train, if nobody knows


@final
class StudyPlanner:
    """Plans the nodes of studies that run together.

    What the instance does not say is taken from earlier runs, and else assumed.
    """

    def __init__(self, studies: Sequence[Study], instance: object) -> None:
        self._studies = list(studies)
        self._group = StudyGroup(studies)
        self._instance: Instance = check_instance(instance)

    def plan(self, deadline: object = None, budget: object = None, *, accept_changes: bool = False) -> StudyPlan:
        """Return the plan; raise an error if nothing is left to train."""
        if deadline is not None and budget is not None:
            raise WorkloadError(f"deadline={deadline!r}, budget={budget!r}; expected one of them, not both")
        seconds = None if deadline is None else parse_duration(deadline, "deadline")
        dollars = None if budget is None else check_budget(budget)
        found = self._plan(seconds, dollars, accept_changes)
        if found is None:
            raise WorkloadError(f"{self._group.name}: there is nothing left to train, so there is nothing to plan")
        return found[0]

    def plan_run(self, options: RunOptions, asked: float) -> tuple[StudyPlan, ElasticSettings] | None:
        """Return the plan of a run, and with what it is followed; None if nothing is left to train."""
        found = self._plan(options.deadline_seconds, options.budget, options.accept_changes)
        if found is None:
            return None
        plan, stages, times, overhead = found
        settings = ElasticSettings(
            instance=plan.instance,
            deadline=options.deadline_seconds,
            budget=options.budget,
            asked=asked,
            stages=stages,
            times=times,
            doubt=plan.chosen.doubt,
            overhead=overhead,
        )
        return plan, settings

    def _plan(
        self, deadline: float | None, budget: float | None, accept_changes: bool
    ) -> tuple[StudyPlan, StudyStages, TrainingTimes, float] | None:
        with ExitStack() as stack:
            learned = StudyExplainer(self._studies).learn(stack, None, accept_changes)
            terms, scaling = self._terms(learned)
            instance, latencies = self._with_latencies(learned)
            measured = learned.measured
            times = TrainingTimes(measured.unit, measured.evaluation, noise=measured.noise)
            stages = self._stages(learned, terms)
            state = Record(learned.spec.settings).read(learned.journal).state
            jobs = stages.remaining(state, times)[1] if state.trials else stages.jobs(times)
            jobs = [job for job in jobs if job.stages]
            if not jobs:
                return None
            plan = plan_nodes(
                self._group.name,
                jobs,
                instance,
                deadline=deadline,
                budget=budget,
                doubt=measured.doubt(dict.fromkeys(self._examples(learned), 1.0)),
                sources=[self._price(), *latencies, self._unit_time(learned), self._devices(), scaling],
                simulated=stages.simulated,
            )
        return plan, stages, times, measured.overhead

    # --- stages and times -------------------------------------------------------------------------------

    def _stages(self, learned: LearnedStudy, terms: JobTerms) -> StudyStages:
        searches = {
            (study.name, place): procedure
            for study in self._studies
            for place, procedure in enumerate(as_procedures(study.search))
        }
        metrics = list(dict.fromkeys(goal.metric for goal in self._group.goals.values()))
        spec = learned.spec
        return StudyStages(searches, lambda: self._group.tuners(spec), metrics, spec.settings.partitions, terms)

    def _examples(self, learned: LearnedStudy) -> list[Values]:
        """Return the initial values of some trials, spread over those that the searches ask for first."""
        asked = [event for event in self._group.tuners(learned.spec).start() if isinstance(event, TrialAsked)]
        step = max(1, -(-len(asked) // _EXAMPLES))
        return [segments(history(dict(event.config)), partitions=1, units=1)[0].values for event in asked[::step]]

    def _terms(self, learned: LearnedStudy) -> tuple[JobTerms, FigureSource]:
        """Return how much faster a trial is on several devices, as the store's profile says."""
        trainer, store, spec = self._group.first.trainer, learned.store, learned.spec
        profile = Profile()
        if store is not None and trainer.shards > 1:
            profile = store.profiles.find(spec.trainer, spec.data).of_kind(trainer.device_kind())
        speeds = speed_ups(profile)
        size = sum(file.bytes for file in self._group.first.data.manifest.train) / 1e9
        terms = JobTerms(speed_ups=speeds, data_gb=size)
        if len(speeds) > 1:
            shown = ", ".join(f"{width}: {speed:.2f}" for width, speed in speeds.items())
            return terms, FigureSource("speed by devices", shown, "measured", "by profile")
        if trainer.shards > 1:
            note = "each trial trains on one device; hoptree profile measures more"
            return terms, FigureSource("speed by devices", "1: 1.00", "assumed", note)
        return terms, FigureSource(
            "speed by devices", "1: 1.00", "given", "without shards, one device trains a trial"
        )

    # --- terms of the provider --------------------------------------------------------------------------

    def _price(self) -> FigureSource:
        instance = self._instance
        value = f"{money(instance.price)} per hour of {instance.name}"
        return FigureSource("price", value, "given", f"at least {duration(instance.minimum)} are paid")

    def _with_latencies(self, learned: LearnedStudy) -> tuple[Instance, list[FigureSource]]:
        """Return the instance with latencies, and where they come from."""
        instance, store = self._instance, learned.store
        known = Latencies(None, None)
        if store is not None and (instance.provision is None or instance.start is None):
            known = measured_latencies(store, instance.name)
        found: dict[str, float] = {}
        sources: list[FigureSource] = []
        for field, figure, default in (
            ("provision", "time until a node runs", PROVISION),
            ("start", "time until it can train", START),
        ):
            given, seen = getattr(instance, field), getattr(known, field)
            how: Literal["given", "measured", "assumed"] = "given"
            note = ""
            if given is None and seen is not None:
                how, note = "measured", f"on {counted(known.nodes, 'node')} in earlier runs"
            elif given is None:
                how, note = "assumed", f"Instance({field}=…) sets it, and a run measures it"
            found[field] = given if given is not None else seen if seen is not None else default
            sources.append(FigureSource(figure, duration(found[field]), how, note))
        return msgspec.structs.replace(instance, **found), sources

    def _unit_time(self, learned: LearnedStudy) -> FigureSource:
        seconds = sorted(learned.measured.unit(values) for values in self._examples(learned))
        value = f"{duration(seconds[0])} to {duration(seconds[-1])}" if seconds else "unknown"
        return FigureSource("time of a unit", value, "measured", f"here, by {learned.measured.basis}")

    def _devices(self) -> FigureSource:
        value = f"{self._instance.devices} a node, each as fast as one here"
        return FigureSource("devices", value, "assumed", "a run measures it")


def speed_ups(profile: Profile) -> dict[int, float]:
    """Return how much faster a unit is on several devices than on one: the mean over architectures.

    >>> speed_ups(Profile())
    {1: 1.0}
    """
    found: dict[int, list[float]] = {1: [1.0]}
    for width, speed in _speeds(profile):
        found.setdefault(width, []).append(speed)
    return {width: sum(speeds) / len(speeds) for width, speeds in sorted(found.items())}


def _speeds(profile: Profile) -> Iterator[tuple[int, float]]:
    for architecture in profile.architectures():
        times = seconds_by_devices(architecture.entries)
        if 1 in times:
            yield from ((width, times[1] / seconds) for width, seconds in times.items() if width > 1 and seconds)
