"""Planning the nodes of a run, before anything is provisioned: it is refused if no plan can do what is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hoptree.backends.choice import node_offer, worker_count
from hoptree.core.errors import RefusedError
from hoptree.driver.elastic_settings import ElasticSettings
from hoptree.forecast.fixed_plan import fixed_plan
from hoptree.report.tables import counted
from hoptree.study.explain_studies import StudyExplainer
from hoptree.study.plan_studies import StudyPlanner

if TYPE_CHECKING:
    from hoptree.driver.options import RunOptions
    from hoptree.study.study import Study

log = logging.getLogger("hoptree")


def plan_run(studies: Sequence[Study], options: RunOptions) -> ElasticSettings | None:
    """Return the settings with which a run keeps to its deadline or budget; None if nothing has to be planned.

    DeadlineError and BudgetError say what can be had instead.
    """
    asked, instance, trainer = time.monotonic(), options.instance, studies[0].trainer
    assert instance is not None
    offer = node_offer(options.backend, instance, trainer, options.workers, options.memory_bytes)
    if offer.offered is False:
        raise RefusedError(
            f"instance: {instance.name!r}, which the cluster does not offer; expected the instance type of its "
            "nodes, or a cluster whose autoscaler starts such nodes"
        )
    if offer.scales:
        planned = StudyPlanner(studies, instance).plan_run(options, asked)
        if planned is None:
            return ElasticSettings(instance=instance, asked=asked)
        plan, settings = planned
        log.info("%s: %s", plan.study, plan.summary())
        if plan.simulated:
            log.warning("%s: the stages come from a simulation, because the search does not know them", plan.study)
        return settings
    workers = worker_count(options.workers, trainer)
    nodes = max(offer.nodes, -(-workers // instance.devices)) if options.backend == "local" else offer.nodes
    if options.backend != "local" and options.workers is None:
        workers = nodes * instance.devices
    forecast = StudyExplainer(studies).explain(workers, accept_changes=options.accept_changes)
    if not forecast.left.units:
        return None
    log.warning("nodes: their number is fixed here, so the run is planned for %s", counted(nodes, "node"))
    fixed = fixed_plan(forecast, instance, nodes, deadline=options.deadline_seconds, budget=options.budget)
    return ElasticSettings(instance=instance, asked=asked, fixed=fixed)
