"""``hoptree interrupt``: stop a running study, as Ctrl-C would."""

from __future__ import annotations

import click

from hoptree.ui.common import of_a_store, print_json, study_argument


@click.command(name="interrupt", short_help="Stop a running study and save its progress.")
@study_argument
@of_a_store
def interrupt_command(name: str, location: str, journal: str | None, as_json: bool) -> None:
    """Stop the process that runs a study, as Ctrl-C would.

    Units that are training finish and are saved. Run the study again to continue it.

    Example: hoptree interrupt digits
    """
    from hoptree.ui.studies_view import check_known, reading

    with reading(location, journal) as store:
        check_known(store, name)
        holder = store.ask_to_stop(name)
    if as_json:
        print_json({"study": name, "host": holder.host, "pid": holder.pid})
    else:
        click.echo(f"{name}: process {holder.pid} on {holder.host} stops after the units that are training now.")
