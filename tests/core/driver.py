"""An engine driven step by step: a test says what each worker does next, and a checker checks every step."""

from __future__ import annotations

from typing import Any

from hoptree.core.actions import Action, CancelUnit, DropState, EndTrial, Evaluate, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    Fault,
    StateEvaluated,
    StateLost,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.invariants import InvariantChecker
from hoptree.core.lineage import config_items
from hoptree.core.plan import Cost
from hoptree.core.policies import Policy
from hoptree.core.schedules import Config
from hoptree.core.settings import Settings


class Driver:
    """Carries actions out as an honest backend would; nothing happens unless the test says so."""

    def __init__(
        self, partitions: int = 2, cost: Cost | None = None, policy: Policy | None = None, **settings: Any
    ) -> None:
        if isinstance(settings.get("policy"), str):
            raise TypeError("name the policy with the argument named")
        name = settings.pop("named", "longest-path")
        saving = settings.pop("saving", None)
        self.engine = Engine(Settings(partitions=partitions, policy=name, **settings), cost, policy, saving=saving)
        self.checker = InvariantChecker(self.engine)
        self.partitions = partitions
        self.queues: dict[str, list[RunUnit | Evaluate]] = {}
        self.evaluating: set[int] = set()
        self.cancelled: set[int] = set()
        self.stored: set[tuple[int, int]] = set()
        self.given: list[RunUnit] = []
        self.trained: list[RunUnit] = []
        self.evaluations: list[Evaluate] = []
        self.reports: list[tuple[int, int]] = []
        self.endings: list[tuple[int, str, str]] = []
        self.now = 0.0

    # --- what happens -----------------------------------------------------------------------------------

    def step(self, event: Event, *, more: bool = False) -> list[Action]:
        if isinstance(event, WorkerJoined):
            self.queues.setdefault(event.worker, [])
        if isinstance(event, WorkerLost):
            self.queues.pop(event.worker, None)
        actions = self.engine.step(event, self.now, more=more)
        self.checker.see(self.engine.state.note(event, self.now, more, actions))
        for action in actions:
            self._carry_out(action)
        return actions

    def join(self, worker: str, *partitions: int, speed: float = 1.0) -> list[Action]:
        return self.step(WorkerJoined(worker, partitions or tuple(range(self.partitions)), speed))

    def ask(self, trial: int, config: Config | float, until: int = 1, **more: Any) -> list[Action]:
        values = config if isinstance(config, dict) else {"lr": config}
        return self.step(TrialAsked(trial, config_items(values), until, **more))

    def branch(self, trial: int, source: int, at: int, config: Config | float, until: int) -> list[Action]:
        values = config if isinstance(config, dict) else {"lr": config}
        return self.step(TrialBranched(trial, source, at, config_items(values), until))

    def extend(self, trial: int, until: int) -> list[Action]:
        return self.step(TrialExtended(trial, until))

    def stop(self, trial: int) -> list[Action]:
        return self.step(TrialStopped(trial))

    def lose(self, worker: str) -> list[Action]:
        return self.step(WorkerLost(worker))

    def lose_state(self, node: int, unit: int) -> list[Action]:
        self.stored.remove((node, unit))
        return self.step(StateLost(node, unit))

    def train(self, worker: str) -> list[Action]:
        """Let a worker end the unit that it trains; an evaluation that goes with it is not done yet."""
        run = self.queues[worker][0]
        assert isinstance(run, RunUnit), f"{worker} has {run}"
        assert run.run not in self.evaluating, f"{worker} evaluates"
        if run.evaluate:
            self.evaluating.add(run.run)
        else:
            self.queues[worker].pop(0)
        self.stored.add((run.node, run.unit + 1))
        self.trained.append(run)
        return self.step(UnitFinished(run.run, worker))

    def evaluate(self, worker: str, loss: float = 0.5) -> list[Action]:
        """Let a worker end the evaluation that it is busy with."""
        run = self.queues[worker].pop(0)
        assert isinstance(run, Evaluate) or run.run in self.evaluating, f"{worker} does not evaluate"
        self.evaluating.discard(run.run)
        return self.step(StateEvaluated(run.run, worker, {"loss": loss}))

    def fail(self, worker: str, reason: str = "it broke", fault: Fault = "user") -> list[Action]:
        run = self.queues[worker].pop(0)
        self.evaluating.discard(run.run)
        return self.step(UnitFailed(run.run, worker, reason, fault))

    def give_up(self, worker: str) -> list[Action]:
        """Let a worker cancel a run as requested."""
        run = next(run for run in self.queues[worker] if run.run in self.cancelled)
        self.queues[worker].remove(run)
        self.cancelled.discard(run.run)
        return self.step(UnitCancelled(run.run, worker))

    def go_on(self, worker: str) -> list[Action]:
        """Let a worker end whatever it is busy with, well."""
        run = self.queues[worker][0]
        if run.run in self.cancelled:
            return self.give_up(worker)
        if isinstance(run, RunUnit) and run.run not in self.evaluating:
            return self.train(worker)
        return self.evaluate(worker)

    def finish(self) -> None:
        """Let all workers work, in turn, until they have nothing to do."""
        for _ in range(10_000):
            busy = [worker for worker, queue in self.queues.items() if queue]
            if not busy:
                return
            for worker in busy:
                if self.queues.get(worker):
                    self.go_on(worker)
        raise AssertionError("it never ends")

    def _carry_out(self, action: Action) -> None:
        match action:
            case RunUnit():
                self.queues[action.worker].append(action)
                self.given.append(action)
            case Evaluate():
                self.queues[action.worker].append(action)
                self.evaluations.append(action)
            case CancelUnit(number, worker):
                queue = self.queues.get(worker, [])
                if number in self.engine.runs:
                    self.cancelled.add(number)
                else:  # taken back before it began
                    self.queues[worker] = [run for run in queue if run.run != number]
            case DropState(node, unit):
                self.stored.remove((node, unit))
            case Report(trial, epoch, _):
                self.reports.append((trial, epoch))
            case EndTrial(trial, ending, reason):
                self.endings.append((trial, ending, reason))

    # --- what is the case -------------------------------------------------------------------------------

    def busy(self, worker: str) -> RunUnit | Evaluate | None:
        """Return what a worker is busy with."""
        queue = self.queues.get(worker, [])
        return queue[0] if queue else None

    def ending(self, trial: int) -> str | None:
        return self.engine.trials[trial].ending

    def units(self, since: int = 0) -> list[int]:
        """Return the units trained so far, by number."""
        return [run.unit for run in self.trained[since:]]
