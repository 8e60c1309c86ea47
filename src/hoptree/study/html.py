"""A study as a notebook shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.search.space import describe

if TYPE_CHECKING:
    from hoptree.study.study import Study


def study_html(study: Study) -> str:
    """Return the definition of a study, and its results as far as the store has some, as HTML."""
    from hoptree.report.html import html_facts
    from hoptree.store import StoreMissingError, StudyMissingError

    space = describe(study.space)
    facts: dict[str, object] = {
        "goal": f"{'maximize' if study.goal.maximize else 'minimize'} {study.goal.metric}",
        "space": "\n".join(f"{name}: {values}" for name, values in space["names"]),
        "search": repr(study.search),
        "data": f"{study.data.rows:,} rows in {study.data.partitions} partitions",
        "store": str(study.store),
    }
    try:
        return html_facts(f"study {study.name}", facts) + study.results()._repr_html_()
    except (StoreMissingError, StudyMissingError):
        return html_facts(f"study {study.name}", {**facts, "trials": "none yet; run it"})
