"""``hoptree plot``: plots of a study, drawn from its journal alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from hoptree.ui.common import in_a_store, study_argument

# The names in hoptree.report.plot.KINDS (a test compares them): importing it here would slow down every command.
KINDS: Final = ("curves", "best", "parallel", "importance", "slices", "tree", "gantt", "savings", "rungs", "nodes")


@click.command(name="plot", short_help="Plot a study, also while it runs.")
@study_argument
@click.argument("kind", type=click.Choice([*KINDS, "all"]), metavar="KIND")
@click.option(
    "--save",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="An .svg, .png or .pdf file; for `all` a folder.",
)
@click.option("--dark", is_flag=True, help="Use colours for a dark page.")
@click.option("--metric", help="For curves: the metric.  [default: the study's goal]")
@click.option("--names", help="For parallel and slices: hyper-parameters, separated by commas.")
@click.option("--evaluator", help="For importance: ped-anova, fanova or mean-decrease.  [default: ped-anova]")
@in_a_store
def plot_command(
    name: str,
    kind: str,
    path: Path,
    dark: bool,
    metric: str | None,
    names: str | None,
    evaluator: str | None,
    location: str,
    journal: str | None,
) -> None:
    """Plot a study, also while it runs; needs neither its code nor its states.

    \b
    KIND is one of
      curves      every trial's metric over its epochs
      best        the best value so far, over time and over trained epochs
      parallel    every trial as a line through its values
      importance  how much each hyper-parameter matters (Optuna's evaluators)
      slices      the metric over each hyper-parameter by itself
      tree        epochs that trials share, where they branch, and their results
      gantt       what each worker did, and states moved between workers
      savings     epochs that trials received, and epochs that were trained
      rungs       which trials reached which rung of a halving search
      nodes       nodes and their cost over time, beside what was planned
      all         all of these for which the study has data

    \b
    Examples:
      hoptree plot digits curves --save curves.svg
      hoptree plot digits all --save plots --dark
    """  # noqa: D301 click needs the real character
    from hoptree.record.load_timeline import load_timeline
    from hoptree.report import plot
    from hoptree.report.page import check_suffix
    from hoptree.report.timeline import ReportError
    from hoptree.ui.studies_view import reading

    options = _options(kind, metric, names, evaluator)
    if kind == "all":
        path.mkdir(parents=True, exist_ok=True)
    else:
        check_suffix(path)
    with reading(location, journal) as store:
        timeline = load_timeline(store, name)
    if kind != "all":
        click.echo(f"wrote {plot.save(plot.KINDS[kind](timeline, dark=dark, **options), path)}")
        return
    for each, draw in plot.KINDS.items():
        try:
            click.echo(f"wrote {plot.save(draw(timeline, dark=dark), path / f'{each}.svg')}")
        except (ReportError, ImportError) as error:
            click.echo(f"skipped {each}: {str(error).removeprefix(f'{each}: ')}", err=True)


def _options(kind: str, metric: str | None, names: str | None, evaluator: str | None) -> dict[str, Any]:
    """Return the options of a kind; raise an error for those that it would ignore."""
    from hoptree.report.timeline import ReportError

    given = {"metric": metric, "names": names, "evaluator": evaluator}
    takes = {"curves": ("metric",), "parallel": ("names",), "slices": ("names",), "importance": ("evaluator",)}
    for option, value in given.items():
        if value is not None and option not in takes.get(kind, ()):
            fitting = ", ".join(name for name, options in takes.items() if option in options)
            raise ReportError(f"--{option}: does not apply to {kind}, only to {fitting}")
    found: dict[str, Any] = {option: value for option, value in given.items() if value is not None}
    if "names" in found:
        found["names"] = [part.strip() for part in found["names"].split(",")]
    return found
