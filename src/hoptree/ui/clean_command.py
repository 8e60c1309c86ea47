"""``hoptree clean``: show what a store holds and what can be removed, and remove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from hoptree.ui.common import complete_study, of_a_store, print_json

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.ui.cleanup import StoreHolding, StudyHolding


@click.command(name="clean", short_help="Show what a store holds, and remove what is not needed.")
@click.option("--yes", is_flag=True, help="Remove without asking. Default: show only; --forget asks first.")
@click.option("--keep", default="0", metavar="SIZE", help="Keep unused states up to this total size.  [default: 0]")
@click.option(
    "--forget",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_study,
    help="Remove a study; may be repeated.",
)
@click.option("--datasets", is_flag=True, help="Remove datasets in the store that no study uses.")
@click.option("--logs", is_flag=True, help="Remove logs.")
@of_a_store
def clean_command(
    yes: bool,
    keep: str,
    forget: tuple[str, ...],
    datasets: bool,
    logs: bool,
    location: str,
    journal: str | None,
    as_json: bool,
) -> None:
    """Show what a store holds and what can be removed; with --yes, remove it.

    States that a study needs are kept. --forget removes a study: its trials, reports, logs and claims, and the
    states that no other study needs. Without --yes, --forget asks first. A removed state that is needed again is
    trained again, with the same bits.

    \b
    Examples:
      hoptree clean
      hoptree clean --yes --keep '2 GB'
      hoptree clean --yes --forget old-study --datasets --logs
    """  # noqa: D301 click needs the real character
    from hoptree.store.ledger import parse_size
    from hoptree.ui.cleanup import Cleanup, Kind
    from hoptree.ui.studies_view import check_known, reading

    budget = parse_size(keep)
    chosen: list[Kind] = ["states", "strays", "partial"]
    chosen += ["forgotten"] if forget else []
    chosen += ["datasets"] if datasets else []
    chosen += ["logs"] if logs else []
    with reading(location, journal) as store:
        for name in forget:
            check_known(store, name)
        forget = tuple(dict.fromkeys(forget))
        if yes or not as_json:
            _check_not_running(store, forget)  # before the user is asked to confirm
        cleanup = Cleanup(store, budget, forget)
        studies, holdings = cleanup.studies(), cleanup.holdings()
        if not as_json:
            click.echo(_tables(studies, holdings, forget))
        done = yes or (bool(forget) and not as_json and _confirmed(forget, studies))
        freed = 0
        if done:
            freed = sum(store.forget(name).freed for name in forget)
            freed += cleanup.clean(chosen)
        folder = str(store.folder)
    if as_json:
        print_json(
            {
                "store": folder,
                "studies": msgspec.to_builtins(studies),
                "holdings": msgspec.to_builtins(holdings),
                "chosen": chosen,
                "done": done,
                "forgotten": list(forget) if done else [],
                "freed": freed,
            }
        )
        return
    click.echo(_summary(holdings, chosen, freed, done))


def _check_not_running(store: Store, names: Sequence[str]) -> None:
    """Raise an error if a process runs one of the studies."""
    for name in names:
        with store.lease(name):
            pass


def _confirmed(names: Sequence[str], studies: Sequence[StudyHolding]) -> bool:
    """Ask whether to remove studies; without a terminal the answer is no."""
    from hoptree.report.tables import size

    alone = sum(each.alone for each in studies if each.name in names)
    question = (
        f"Remove {', '.join(names)}: trials, reports, logs, and {size(alone)} of states that no other study needs?"
    )
    try:
        return click.confirm(question, default=False)
    except click.Abort:
        click.echo()
        return False


def _tables(studies: Sequence[StudyHolding], holdings: Sequence[StoreHolding], forget: tuple[str, ...]) -> str:
    from hoptree.report.tables import fitted_table, printable, size, text_table
    from hoptree.ui.study_tables import terminal_width

    rows = [
        [printable(each.name), each.status, each.states, size(each.size), size(each.alone)]
        for each in studies
        if not forget or each.name in forget
    ]
    width = terminal_width()
    columns = ["study", "status", "states", "size", "not shared"]
    first = fitted_table(columns, rows, width, drop=["states", "status"])
    kinds = [
        [each.kind, each.count, size(each.size), each.can_go, size(each.frees), each.what] for each in holdings
    ]
    second = text_table(["kind", "count", "size", "removable", "frees", ""], kinds, width=width)
    return f"{first}\n\n{second}\n"


def _summary(holdings: Sequence[StoreHolding], chosen: Sequence[str], freed: int, done: bool) -> str:
    from hoptree.report.tables import size

    if done:
        return f"Freed {size(freed)}."
    frees = sum(each.frees for each in holdings if each.kind in chosen)
    rest = [each.kind for each in holdings if each.kind not in chosen and each.can_go]
    also = f" {' and '.join(f'--{kind}' for kind in rest)} would free more." if rest else ""
    return f"Nothing was removed. --yes would free {size(frees)}.{also}"
