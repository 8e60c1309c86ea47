"""The outcome of a study: the results that users get, built from its record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hoptree.core.lineage import beginning
from hoptree.core.plan import Trial
from hoptree.record.cost import study_cost
from hoptree.record.record import Record
from hoptree.record.results import Results, Savings, TrialResult
from hoptree.record.retrain import Retrainer
from hoptree.report.traffic import Traffic

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Store
    from hoptree.study.study import Study


def study_results(study: Study, store: Store, record: Record, savings: Savings) -> Results:
    """Return the results of one study; savings and traffic are those of all studies that ran together."""
    retrainer = Retrainer(record, study.trainer, study.data, study.seed)
    own = [trial for trial in record.trials if trial.study == study.name]
    trials = [TrialResult(number, trial, record, store.states, retrainer) for number, trial in enumerate(own)]
    traffic = _traffic(study.data, record.trials, savings)
    cost = study_cost(record.state.nodes, record.now)
    return Results(trials, study.goal, savings, traffic, study.study_timeline, cost)


def _traffic(data: Dataset, trials: Sequence[Trial], savings: Savings) -> Traffic | None:
    """Return the traffic of a run; None if nothing was trained."""
    if not savings.state_bytes:
        return None
    from hoptree.trainers.hyper_parameters import BATCH_SIZE

    configs = [dict(trial.history[-1].config) for trial in trials]
    given = [beginning(config).get("batch_size", BATCH_SIZE) for config in configs]
    sizes = [value for value in given if isinstance(value, int | float) and value >= 1] or [BATCH_SIZE]
    rows = data.rows / data.partitions
    return Traffic.count(
        savings.bytes_hopped,
        epochs=savings.epochs_trained,
        models=len(trials),
        partitions=data.partitions,
        state=savings.state_bytes,
        data=sum(file.bytes for file in data.manifest.train),
        batches=statistics.mean(math.ceil(rows / size) for size in sizes),
    )
