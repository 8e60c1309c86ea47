"""``hoptree interrupt``: have whoever runs a study stop, as Ctrl-C would."""

from __future__ import annotations

import click

from hoptree.ui.common import of_a_store, print_json, study_argument


@click.command(name="interrupt", short_help="Have a running study stop, and save what it has.")
@study_argument
@of_a_store
def interrupt_command(name: str, location: str, journal: str | None, as_json: bool) -> None:
    """Have whoever runs a study stop, as Ctrl-C would.

    The units that run end and are saved. Run the study again, and it goes on.

    Example: hoptree interrupt digits
    """
    from hoptree.ui.studies_view import reading, refuse_unknown

    with reading(location, journal) as store:
        refuse_unknown(store, name)
        holder = store.ask_to_stop(name)
    if as_json:
        print_json({"study": name, "host": holder.host, "pid": holder.pid})
    else:
        click.echo(f"{name}: process {holder.pid} on {holder.host} stops when the units that run are done.")
