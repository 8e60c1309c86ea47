"""``hoptree profile``: measure what units take on one worker and on several."""

from __future__ import annotations

import shutil
import sys

import click

from hoptree.ui.common import interruptible, print_json, stdout_kept_for_json


@click.command(name="profile", short_help="Measure units on one worker and on several.")
@click.argument("target", metavar="FILE[:NAME]", type=click.Path())
@click.option("--workers", type=int, help="Workers that train together at most.  [default: one per core]")
@click.option("--again", is_flag=True, help="Measure again what the store has already.")
@click.option("--memory-per-worker", metavar="SIZE", help="Limit the memory of a worker, for example '2 GB'.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile_command(
    target: str, workers: int | None, again: bool, memory_per_worker: str | None, as_json: bool
) -> None:
    """Measure the time and memory of a unit, for each architecture and layout, on one worker and on several.

    Workers of this machine train a few batches of each; more workers are tried as long as they are faster, and
    layouts are left out if a simpler one shows that they are slower and need more memory. The
    result is kept in the store: runs start with the widths that pay, and explain shows them. The study itself is
    neither trained nor changed.

    \b
    Examples:
      hoptree profile digits.py
      hoptree profile digits.py --workers 4 --json
    """  # noqa: D301 click needs the real character
    from hoptree.ui.programs import program

    with interruptible("Interrupted."), stdout_kept_for_json(as_json), program(target) as study:
        report = study.profile(workers, again=again, memory_per_worker=memory_per_worker)
    if as_json:
        print_json(report.to_dict())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
        click.echo(report.text(max(40, width)))
