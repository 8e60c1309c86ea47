"""The whole state of an engine as plain data: engines with equal state behave equally from here on."""

from __future__ import annotations

from typing import Any

from hoptree.core.engine import Engine


def books_of(engine: Engine) -> dict[str, Any]:
    """Return the whole state of an engine, also what journals do not hold: lineages, queues, users."""
    barriers = engine._barriers._by_study.items()
    repricing = engine._repricing
    return {
        "trials": [
            (t.number, t.until, t.reached, t.ending, t.reason, sorted(t.open), sorted(t.wanting), repr(t.pinned))
            for t in engine.trials.values()
        ],
        "nodes": [
            (
                node.id,
                node.key,
                list(node.targets),
                dict(node.counts),
                node.waiting,
                node.todo,
                node.cost,
                sorted(node.trained.items()),
                sorted((s.unit, s.home, s.order, s.users, s.kept) for s in node.states.values()),
                sorted(node.reports.items()),
                sorted(node.attempts.items()),
                sorted(node.taken),
                [
                    (c.unit, c.order, c.partition, c.peak, c.sequence, c.status, [r.number for r in c.runs])
                    for c in node.active
                ],
            )
            for node in engine.plan.nodes
        ],
        "workers": [
            (w.name, w.partitions, w.draining, [r.number for r in w.queue]) for w in engine.workers.by_name.values()
        ],
        "idle": [list(idle) for idle in engine.workers.idle],
        "evaluations": [repr(state) for state in engine.states.evaluations],
        "issued": engine._dispatcher.issued,
        "formula": engine.plan.formula,
        "repricing": (repricing._unpriced, repricing._ranked, repricing._until),
        "backlog": engine.open_work.backlog,
        "done": list(engine.open_work.done),
        "barriers": {
            name: (barrier.level, list(barrier.members), [repr(c) for c in barrier.held])
            for name, barrier in barriers
        },
        "policy": engine._policy.memory(),
    }
