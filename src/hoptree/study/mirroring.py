"""Mirrors of a study: an Optuna storage, or a project of Weights & Biases, that shows its trials."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hoptree.core.keys import identity
from hoptree.record.spec import first_version
from hoptree.search.widening import SearchVersion
from hoptree.study.arguments import as_procedures

if TYPE_CHECKING:
    from hoptree.mirror import Mirror, WandB
    from hoptree.record.record import Record
    from hoptree.study.study import Study


def write_mirror(study: Study, record: Record, where: str | WandB) -> None:
    """Bring a mirror up to date with the record of a study."""
    from hoptree.mirror import shown_trials, timed

    trials = timed(shown_trials(record, study.name), study.study_timeline())
    with closing(open_mirror(study, where)) as mirror:
        mirror.show(trials)


def open_mirror(study: Study, where: str | WandB) -> Mirror:
    """Open the mirror of a study, or create it."""
    from hoptree.mirror import OptunaMirror, WandB, WandbMirror

    first = msgspec.to_builtins(_first_version(study))
    key = identity("mirror", first, (study.goal.metric, study.goal.maximize), study.seed)
    if isinstance(where, WandB):
        return WandbMirror(where, study.name, key)
    return OptunaMirror(where, study.name, key, study.space, study.goal)


def _first_version(study: Study) -> SearchVersion:
    """Return the first version of the search: an extended study keeps its mirror."""
    from hoptree.store import StoreMissingError

    present = SearchVersion.of(as_procedures(study.search), study.space)
    try:
        with study.open_store(create=False) as store:
            return first_version(store, study.name) or present
    except StoreMissingError:
        return present
