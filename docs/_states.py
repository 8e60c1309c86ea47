"""The page on state machines, written from the tables in the code: ``python docs/_states.py`` after a change."""

from __future__ import annotations

from pathlib import Path

from hoptree.backends.worker_states import as_table
from hoptree.core.transitions import TABLES, Table, mermaid

PAGE = Path(__file__).with_name("states.md")
HEAD = """# State machines

Runs, active lineages, trials and worker handles change their state through tables only: `core/transitions.py` and
`backends/worker_states.py`. An event that the table does not list for a state is a bug of Hoptree and raises an
error with the log of what led to it. This page is written from the tables by `docs/_states.py`, and a test compares
them.
"""
ABOUT = {
    "run": (
        "A unit or an evaluation that a worker was given. One that evaluates a stored state starts as `evaluating`."
    ),
    "active lineage": (
        "A lineage that is being trained. A barrier or another driver may hold it; a ready one is in the queue of "
        "its next partition."
    ),
    "trial": "A config that a study follows.",
    "worker handle": "A worker as its backend sees it. Events that change nothing are left out.",
}
INITIAL = {
    "run": ["training", "evaluating"],
    "active lineage": ["idle"],
    "trial": ["running"],
    "worker handle": ["starting"],
}


def page() -> str:
    """Return the page: for each machine a diagram and its table."""
    tables: dict[str, Table] = {**TABLES, "worker handle": as_table()}
    return "\n".join([HEAD, *(_section(name, table) for name, table in tables.items())])


def _section(name: str, table: Table) -> str:
    plain = {_word(state): {event: _word(to) for event, to in events.items()} for state, events in table.items()}
    rows = [f"| {state} | {event} | {to} |" for state, events in table.items() for event, to in events.items()]
    diagram = mermaid(plain, [_word(state) for state in INITIAL[name]])
    lines = [f"## {name.capitalize()}", "", ABOUT[name], "", "```mermaid", diagram, "```", ""]
    return "\n".join([*lines, "| state | event | next state |", "|---|---|---|", *rows, ""])


def _word(state: str) -> str:
    """Return a state as one word, as Mermaid needs it."""
    return state.replace(" ", "_")


if __name__ == "__main__":
    PAGE.write_text(page())
