"""The options that say what nodes cost, and for what a run is planned: shared by ``hoptree plan`` and ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hoptree.core.durations import parse_duration
from hoptree.core.errors import WorkloadError
from hoptree.ui.common import Command

if TYPE_CHECKING:
    from hoptree.elastic.instance import Instance

_TERMS = ("price", "devices", "prices", "region", "spot", "minimum", "provision", "start", "max_count")


def for_money(command: Command) -> Command:
    """Add the options of deadline, budget and instance."""
    budget = click.option("--budget", type=float, metavar="DOLLARS", help="Finish soon for at most this.")
    deadline = click.option("--deadline", metavar="TIME", help="Finish in this time at least cost, such as '2h'.")
    return deadline(budget(of_instance(command)))


def of_instance(command: Command) -> Command:
    """Add the options that give the terms of an instance."""
    options = (
        click.option("--instance", metavar="TYPE", help="The instance type of the nodes."),
        click.option("--price", type=float, metavar="DOLLARS", help="Price of an instance per hour."),
        click.option("--devices", type=int, help="Devices of an instance."),
        click.option(
            "--prices", metavar="CSV", type=click.Path(), help="Prices by instance type, in place of --price."
        ),
        click.option("--region", help="Of several regions in --prices, this one."),
        click.option("--spot", is_flag=True, help="Use spot instances."),
        click.option("--minimum", metavar="TIME", help="Least time that is paid.  [default: 60 s]"),
        click.option("--provision", metavar="TIME", help="Time until a node runs.  [default: as measured]"),
        click.option("--start", metavar="TIME", help="Time until it can train.  [default: as measured]"),
        click.option("--max-count", type=int, metavar="N", help="Most nodes at a time."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def take_instance(options: dict[str, Any]) -> Instance | None:
    """Take the terms of an instance out of the options of a command; None if there are none.

    Raise an error if they are incomplete.
    """
    from hoptree.elastic.instance import Instance

    name = options.pop("instance")
    terms = {term: value for term in _TERMS if (value := options.pop(term)) not in (None, False)}
    if name is None:
        if terms:
            raise WorkloadError(
                f"--{next(iter(terms)).replace('_', '-')}: of no instance; give --instance TYPE too"
            )
        return None
    for term in ("minimum", "provision", "start"):
        if term in terms:
            terms[term] = parse_duration(terms[term], f"--{term}")
    prices, region = terms.pop("prices", None), terms.pop("region", None)
    if prices is not None:
        from hoptree.elastic.prices import instance_from_csv

        if "price" in terms:
            raise WorkloadError("--prices: with --price; expected the file or the price, not both")
        return instance_from_csv(prices, name, region=region, **terms)
    missing = [term for term in ("price", "devices") if term not in terms]
    if missing or region is not None:
        what = f"--{missing[0]} is missing" if missing else "--region without --prices"
        raise WorkloadError(
            f"--instance {name}: {what}; give --price (dollars per hour) and --devices, or --prices with a CSV file"
        )
    return Instance(name, **terms)
