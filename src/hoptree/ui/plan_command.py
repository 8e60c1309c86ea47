"""``hoptree plan``: what a study would cost, by deadline, before anything is spent."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from hoptree.core.errors import WorkloadError
from hoptree.ui.common import interruptible, print_json, stdout_kept_for_json
from hoptree.ui.instance_options import for_money, take_instance


@click.command(name="plan", short_help="Plan how many nodes a study has when, and what it costs.")
@click.argument("target", metavar="FILE[:NAME]", type=click.Path())
@for_money
@click.option("--accept-changes", is_flag=True, help="Assume that run gets --accept-changes too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_command(target: str, accept_changes: bool, as_json: bool, **options: Any) -> None:
    """Plan how many nodes a study has when, and what that costs, before anything is spent.

    Shows the best fixed cluster and the best elastic plan over a range of deadlines, and the chosen plan by stage:
    the cheapest that meets --deadline, or the fastest within --budget. Each figure is said to be given, measured or
    assumed. Nothing is provisioned; hoptree run with the same options follows the plan.

    \b
    Examples:
      hoptree plan digits.py --deadline 2h --instance p3.8xlarge \\
        --price 12.24 --devices 4
      hoptree plan digits.py --budget 20 --instance p3.8xlarge \\
        --prices vms.csv
    """  # noqa: D301 click needs the real character
    from hoptree.ui.programs import program

    instance = take_instance(options)
    if instance is None:
        raise WorkloadError("--instance: not given; expected the instance type of the nodes, with its price")
    with interruptible("Interrupted."), stdout_kept_for_json(as_json), program(target) as study:
        plan = study.plan(instance=instance, accept_changes=accept_changes, **options)
    if as_json:
        print_json(plan.to_dict())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
        click.echo(plan.text(max(40, width)))
