"""Random histories: an engine driven through arrivals, failures, losses, joins, repeated and late messages.

A history ends without faults: all workers join and nothing fails any more, so every trial must end.
"""

from __future__ import annotations

from random import Random

from hoptree.core.actions import CancelUnit, DropState, EndTrial, Evaluate, RunUnit, SaveState
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    Event,
    LineageFreed,
    LineageTaken,
    ReportFound,
    StateEvaluated,
    StateFound,
    StateLost,
    StateSaved,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.fact_reader import fold
from hoptree.core.fact_writer import FactWriter
from hoptree.core.facts import Entry
from hoptree.core.invariants import InvariantChecker
from hoptree.core.layout_choice import LayoutChoice, LayoutOptions
from hoptree.core.lineage import config_items
from hoptree.core.policies import POLICIES
from hoptree.core.profile import Profile
from hoptree.core.saving import SavePolicy
from hoptree.core.settings import Settings
from hoptree.core.snapshots import restored, snapshot_of
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from tests.history_inputs import CONFIGS, cost_of, deal, formula, known_results

ONCE = StateLost | WorkerLost | WorkerJoined | WorkerDrained | TrialStopped | LineageTaken | StateFound


class History:
    """One random history; ``journal`` holds every entry with its time.

    With ``learns`` costs are learned during the history, with ``retries`` failed trials are retried, and with
    ``rebases`` code or environment change; up to ``gangs`` workers train a unit together; with a ``profile`` of
    gangs, which dry runs need, workers are on two machines. They are off by default so that old seeds give the same
    histories.
    """

    def __init__(
        self,
        random: Random,
        steps: int = 60,
        settings: Settings | None = None,
        *,
        learns: bool = False,
        retries: bool = False,
        rebases: bool = False,
        gangs: int = 1,
        layouts: LayoutOptions | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.layouts = layouts
        self.too_large: dict[tuple[str, str, int], bool] = {}  # by config, layout and workers: drawn when tried
        self.gangs = gangs
        self.profile = profile
        self.rebases = rebases
        self.retries = retries
        self.learns = learns
        self.random = random
        self.steps = steps
        self.settings = settings or Settings(
            partitions=random.choice([1, 2, 3, 4]),
            order=random.choice(["strict", "strict", "free"]),
            policy=random.choice(POLICIES[:5]),  # those that there were when the pinned seeds were found
            ahead=random.random() < 0.7,
            affinity=random.random() < 0.7,
            retries=random.choice([0, 1, 2]),
            patience=random.choice([1, 5]),
        )
        self.costs = {config_items(c)[0][1]: random.choice([0.5, 1.0, 2.0]) for c in CONFIGS}
        self.extra = Random(hash(random.getstate()[1][:8]))  # so that seeds mean the same as before
        self.policy = SavePolicy(every=self.extra.choice([0, 1, 2]), spares=self.extra.random() < 0.5)
        self.engine = self.fresh_engine()
        self.writer = FactWriter(self.engine.state)
        self.checker = InvariantChecker(self.engine)
        self.workers = [f"w{index}" for index in range(random.choice([1, 2, 3, 5]))]
        self.holds = deal(random, self.workers, self.settings.partitions)
        self.here: dict[str, list[RunUnit | Evaluate]] = {}
        self.evaluating: set[int] = set()
        self.stored: list[tuple[int, int]] = []
        self.past: list[Event] = []
        self.lost_runs: list[RunUnit | Evaluate] = []
        self.journal: list[tuple[float, Entry]] = []
        self.saving: list[tuple[int, int]] = []
        self.now = 0.0
        self.trials = 0
        self.barrier = random.random() < 0.2
        self.share = random.random() < 0.8
        self.trained: list[RunUnit] = []
        self.company = self.settings.order == "strict" and random.random() < 0.5
        self.taken: list[tuple[int, int]] = []  # places from which another driver trains on

    def fresh_engine(self, state: StudyState | None = None) -> Engine:
        allotment = None
        if self.gangs > 1:
            allotment = Allotment(self.gangs, self.profile or Profile(), exact=self.profile is not None)
        layouts = LayoutChoice(self.gangs, limit=1000)
        if self.layouts is not None:
            layouts.offer(self.layouts)
        return Engine(self.settings, cost_of, state=state, saving=self.policy, allotment=allotment, layouts=layouts)

    def restart(self) -> None:
        """The driver is killed, and another one resumes from the journal."""
        state = StudyState(self.settings)
        fold(state, self.journal)
        assert snapshot_of(state, 0.0) == snapshot_of(self.engine.state, 0.0)
        state = restored(snapshot_of(state, 0.0), self.settings)
        assert snapshot_of(state, 0.0) == snapshot_of(self.engine.state, 0.0)
        before = [(node.key, node.tree) for node in self.engine.plan.nodes]
        assert [(node.key, node.tree) for node in state.plan.nodes] == before
        self.engine = self.fresh_engine(state)
        self.writer = FactWriter(state)
        self.checker.follow(self.engine)
        self.lost_runs.clear()
        self.here.clear()
        self.evaluating.clear()
        self.taken.clear()
        self.past.clear()
        self.take_up()
        self.step(DriverStarted())

    def take_up(self) -> None:
        """Called when another engine continues; for subclasses."""

    def join(self, worker: str) -> WorkerJoined:
        machine = str(self.workers.index(worker) % 2) if self.profile is not None else ""
        return WorkerJoined(worker, self.holds[worker], machine=machine)

    def begin(self) -> None:
        for worker in self.workers:
            self.step(self.join(worker))
        self.ask()

    def run(self) -> None:
        self.begin()
        for _ in range(self.steps):
            if self.extra.random() < 0.02:
                self.restart()
            if self.learns and self.random.random() < 0.1:
                self.step(CostsLearned(formula(self.random)), more=self.random.random() < 0.3)
            failed = [trial.number for trial in self.engine.trials.values() if trial.ending == "failed"]
            if self.retries and failed and self.random.random() < 0.2:
                self.retry(self.random.choice(failed))
            if self.rebases and self.trials and self.random.random() < 0.1:
                self.rebase()
            self.move()
        self.calm()

    def calm(self) -> None:
        for worker in self.workers:
            self.step(self.join(worker))
        self.company = False
        while self.taken:
            self.step(LineageFreed(*self.taken.pop()))
        for _ in range(20_000):
            busy = [worker for worker, queue in self.here.items() if queue]
            if not busy:
                break
            self.progress(self.random.choice(busy), healthy=True)
        unfinished = [t for t in self.engine.trials.values() if t.ending is None]
        assert not unfinished, f"{unfinished} never ended"
        assert self.engine.live == 0

    def step(self, event: Event, *, more: bool = False) -> None:
        self.now += self.random.choice([0.0, 0.0, 1.0])
        actions = self.engine.step(event, self.now, more=more)
        step = self.engine.state.note(event, self.now, more, actions)
        self.record(step)
        self.past.append(event)
        if isinstance(event, WorkerJoined):
            self.here.setdefault(event.worker, [])
        if isinstance(event, WorkerLost):
            self.lost_runs += self.here.pop(event.worker, [])
        if isinstance(event, TrialAsked | TrialRetried | TrialRebased) and event.known is not None:
            held = [(node.id, unit) for node in self.engine.plan.nodes for unit in node.states]
            held += [(action.node, action.unit) for action in actions if isinstance(action, DropState)]
            self.stored += [state_id for state_id in held if state_id not in self.stored]
        self.checker.see(step)
        given_up: list[Event] = []
        for action in actions:
            if isinstance(action, RunUnit) and self.company and self.random.random() < 0.1:
                given_up += self.refuse(action)
            elif isinstance(action, RunUnit | Evaluate):
                self.here[action.worker].append(action)
            elif isinstance(action, CancelUnit):
                given_up += self.cancel(action)
            elif isinstance(action, DropState):
                self.stored.remove((action.node, action.unit))
                self.saving = [state_id for state_id in self.saving if state_id != (action.node, action.unit)]
            elif isinstance(action, SaveState) and action.durable:
                self.saving.append((action.node, action.unit))
            elif isinstance(action, EndTrial):
                assert action.ending != "failed" or action.reason
        for index, event in enumerate(given_up):
            self.step(event, more=index + 1 < len(given_up))

    def record(self, step: Step) -> None:
        """Append a step to the journal."""
        self.journal.append((step.now, self.writer.entry(step)))

    def refuse(self, run: RunUnit) -> list[Event]:
        """Another driver trains that unit already: the run never starts."""
        if any(other.node == run.node and other.unit == run.unit - 1 for other in self.here[run.worker]):
            self.here[run.worker].append(run)  # the run that it follows is under way: let it be
            return []
        self.taken.append((run.node, run.unit))
        return [UnitCancelled(run.run, run.worker), LineageTaken(run.node, run.unit)]

    def hear(self) -> None:
        """Let another driver produce a result, take a lineage or stop."""
        random = self.random
        nodes = [node for node in self.engine.plan.nodes if node.targets]
        if self.taken and random.random() < 0.4:
            self.step(LineageFreed(*self.taken.pop(random.randrange(len(self.taken)))))
        if not nodes:
            return
        node = random.choice(nodes)
        if random.random() < 0.6:
            unit = random.randint(node.start + 1, node.targets[-1])
            if unit not in node.states:
                self.stored.append((node.id, unit))
                self.step(StateFound(node.id, unit), more=random.random() < 0.5)
                if unit not in node.states and (node.id, unit) in self.stored:  # what runs will make it
                    self.stored.remove((node.id, unit))
        if node.requests and random.random() < 0.6:
            self.step(ReportFound(node.id, random.choice(list(node.requests)), {"loss": "inf"}))
        if node.targets and random.random() < 0.2:
            state_id = node.id, random.randint(node.start, node.targets[-1])
            if state_id not in self.taken:
                self.taken.append(state_id)
                self.step(LineageTaken(*state_id))

    def cancel(self, action: CancelUnit) -> list[UnitCancelled]:
        """Let a worker cancel a run at once, or finish it because the request came too late."""
        queue = self.here.get(action.worker, [])
        run = next((r for r in queue if r.run == action.run), None)
        if run is None or run.run in self.evaluating:
            return []
        if run.run not in self.engine.runs:  # taken back: its worker drops it silently
            queue.remove(run)
            self.lost_runs += [run] if self.gangs > 1 else []
        elif self.random.random() < 0.6:
            queue.remove(run)
            return [UnitCancelled(run.run, run.worker)]
        return []

    def ask(self) -> None:
        config = self.random.choice(CONFIGS)
        every = self.random.choice([0, 0, 1, 2])
        self.step(
            TrialAsked(
                self.trials,
                config_items(config),
                until=self.random.randint(1, 4),
                every=1 if self.barrier else every,
                barrier=self.barrier,
                alone=not self.share,
                known=known_results(self.random),
                **self.base(),
            ),
            more=self.random.random() < 0.3,
        )
        self.trials += 1

    def base(self) -> dict[str, str]:
        """Return the current root and variant."""
        if not self.rebases:
            return {}
        return {"root": self.random.choice(["", "new"]), "variant": self.random.choice(["", "v1", "v2"])}

    def rebase(self) -> None:
        """Change the code or environment of one trial, or of all."""
        base, numbers = self.base(), list(range(self.trials))
        if self.random.random() < 0.5:
            numbers = [self.random.choice(numbers)]
        for number in numbers:
            if number in self.engine.trials:
                more = self.random.random() < 0.5
                self.step(
                    TrialRebased(number, base["root"], base["variant"], known_results(self.random)), more=more
                )

    def retry(self, trial: int) -> None:
        self.step(TrialRetried(trial, known_results(self.random)), more=self.random.random() < 0.3)

    def move(self) -> None:
        random = self.random
        busy = [worker for worker, queue in self.here.items() if queue]
        choice = random.random()
        if choice < 0.55 and busy:
            self.progress(random.choice(busy), healthy=False)
        elif choice < 0.70:
            self.ask()
        elif choice < 0.74 and self.here:
            self.step(WorkerLost(random.choice(list(self.here))))
        elif choice < 0.80:
            worker = random.choice(self.workers)
            self.step(self.join(worker))
        elif choice < 0.82 and self.here:
            self.step(WorkerDrained(random.choice(list(self.here))))
        elif choice < 0.85 and self.stored:
            state_id = random.choice(self.stored)
            self.stored.remove(state_id)
            self.step(StateLost(*state_id))
        elif choice < 0.87 and self.stored:
            random.choice([0, 0, 1])
            random.choice(self.stored)
            if self.saving:
                self.step(StateSaved(*self.saving.pop(self.extra.randrange(len(self.saving)))))
        elif choice < 0.89:
            self.step(TrialStopped(random.randrange(self.trials)))
        elif choice < 0.92:
            number = random.randrange(self.trials)
            until = self.engine.trials[number].until + random.randint(-2, 2)
            self.step(TrialExtended(number, max(1, until)))
        elif choice < 0.94:
            self.branch()
        elif choice < 0.96 and self.company:
            self.hear()
        elif choice < 0.97:
            repeated = random.choice(self.past)
            if not isinstance(repeated, ONCE):
                self.step(repeated)
        elif self.lost_runs:
            run = random.choice(self.lost_runs)
            self.step(UnitFinished(run.run, run.worker))

    def is_too_large(self, run: RunUnit) -> bool:
        """Return whether a run is out of memory: the same layout of the same config always is, or never."""
        if self.layouts is None:
            return False
        tried = repr(sorted(run.values.constants().items())), run.layout, 1 + len(run.crew)
        return self.too_large.setdefault(tried, self.extra.random() < 0.5)

    def branch(self) -> None:
        source = self.engine.trials[self.random.randrange(self.trials)]
        at = self.random.randint(1, source.until)
        config = config_items(self.random.choice(CONFIGS))
        event = TrialBranched(self.trials, source.number, at, config, at + self.random.randint(1, 2))
        self.trials += 1
        self.step(event)

    def progress(self, worker: str, *, healthy: bool) -> None:
        """Let the first run in a worker's queue end, one way or another."""
        run = self.here[worker][0]
        if isinstance(run, RunUnit) and run.run not in self.evaluating and self.is_too_large(run):
            self.here[worker].pop(0)
            self.step(UnitFailed(run.run, worker, "out of memory", "memory", limit=1000, asked=1))
            return
        luck = 1.0 if healthy else self.random.random()
        if luck < 0.12:
            self.here[worker].pop(0)
            self.evaluating.discard(run.run)
            fault = self.random.choice(["user", "system"])
            self.step(UnitFailed(run.run, worker, "it broke", fault))
            return
        more = not healthy and self.random.random() < 0.2
        if isinstance(run, RunUnit) and run.run not in self.evaluating:
            self.stored.append((run.node, run.unit + 1))
            self.trained.append(run)
            if run.evaluate:
                self.evaluating.add(run.run)
            else:
                self.here[worker].pop(0)
            seconds = 1.0 / (1 + len(run.crew)) ** self.extra.choice([0.0, 0.9]) if self.gangs > 1 else 0.0
            self.step(UnitFinished(run.run, worker, seconds), more=more)
        else:
            self.here[worker].pop(0)
            self.evaluating.discard(run.run)
            self.step(StateEvaluated(run.run, worker, {"loss": self.random.random()}), more=more)
