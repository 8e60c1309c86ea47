"""State machines of the engine as tables: for each state, the events that may happen in it and what they lead to.

Runs, active lineages and trials change their state through these tables only. An event that is not in the table of
the current state is a bug of ours and raises TransitionError. The diagrams in the documentation are drawn from the
same tables, by ``mermaid``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from hoptree.core.errors import TransitionError

Table: TypeAlias = Mapping[str, Mapping[str, str]]

RunStatus: TypeAlias = Literal["training", "cancelling", "evaluating", "done", "failed", "cancelled", "lost"]
RunEvent: TypeAlias = Literal[
    "unit finished",
    "unit finished, evaluation due",
    "evaluated",
    "cancel requested",
    "run cancelled",
    "run failed",
    "worker lost",
]
RUN: Final[dict[RunStatus, dict[RunEvent, RunStatus]]] = {
    "training": {
        "unit finished": "done",
        "unit finished, evaluation due": "evaluating",
        "cancel requested": "cancelling",
        "run cancelled": "cancelled",
        "run failed": "failed",
        "worker lost": "lost",
    },
    "cancelling": {  # the unit may end before the request reaches the worker
        "unit finished": "done",
        "unit finished, evaluation due": "evaluating",
        "run cancelled": "cancelled",
        "run failed": "failed",
        "worker lost": "lost",
    },
    "evaluating": {  # also the first state of a run that evaluates a stored state
        "evaluated": "done",
        "run cancelled": "cancelled",
        "run failed": "failed",
        "worker lost": "lost",
    },
    "done": {},
    "failed": {},
    "cancelled": {},
    "lost": {},
}

LineageStatus: TypeAlias = Literal["idle", "held", "ready", "running", "removed"]
LineageEvent: TypeAlias = Literal["hold", "release", "enqueue", "dequeue", "start", "end last run", "remove"]
ACTIVE_LINEAGE: Final[dict[LineageStatus, dict[LineageEvent, LineageStatus]]] = {
    "idle": {"enqueue": "ready", "hold": "held", "start": "running", "remove": "removed"},
    "held": {"release": "idle", "hold": "held", "remove": "removed"},  # by a barrier or by another driver
    "ready": {"enqueue": "ready", "dequeue": "idle"},  # enqueued again when its rank has changed
    "running": {"start": "running", "end last run": "idle"},  # one unit runs, and the next may wait behind it
    "removed": {},
}

TrialStatus: TypeAlias = Literal["running", "complete", "stopped", "failed"]
TrialEvent: TypeAlias = Literal["extended", "complete", "stopped", "failed", "retried"]
TRIAL: Final[dict[TrialStatus, dict[TrialEvent, TrialStatus]]] = {
    "running": {"extended": "running", "complete": "complete", "stopped": "stopped", "failed": "failed"},
    "complete": {"extended": "running", "stopped": "stopped"},
    "stopped": {"extended": "stopped"},
    "failed": {"extended": "failed", "retried": "running"},  # it gets the granted epochs when it is retried
}

TABLES: Final[dict[str, Table]] = {"run": RUN, "active lineage": ACTIVE_LINEAGE, "trial": TRIAL}  # type: ignore[dict-item]


def wrong_transition(item: object, kind: str, status: str, event: str) -> TransitionError:
    """Return the error for an event that the table does not allow."""
    allowed = ", ".join(TABLES[kind][status]) or "nothing"
    return TransitionError(f"{item}: {event!r} happened to a {kind} that is {status}; expected {allowed}")


def reachable(table: Table, start: str) -> set[str]:
    """Return the states to which any number of events lead, including the first.

    >>> sorted(reachable(TABLES["trial"], "stopped"))
    ['stopped']
    """
    found, left = {start}, [start]
    while left:
        new = set(table[left.pop()].values()) - found
        found |= new
        left.extend(new)
    return found


def mermaid(table: Table, initial: Iterable[str]) -> str:
    """Return a table as a Mermaid state diagram; a state without events is final.

    >>> print(mermaid({"open": {"close": "closed"}, "closed": {}}, ["open"]))
    stateDiagram-v2
        [*] --> open
        open --> closed: close
        closed --> [*]
    """
    lines = [f"    [*] --> {state}" for state in initial]
    for state, events in table.items():
        lines += [f"    {state} --> {target}: {event}" for event, target in events.items()]
        if not events:
            lines.append(f"    {state} --> [*]")
    return "\n".join(["stateDiagram-v2", *lines])
