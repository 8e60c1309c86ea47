"""``hoptree migrate``: bring the tables of an older store up to date."""

from __future__ import annotations

import click

from hoptree.ui.common import print_json


@click.command(name="migrate", short_help="Bring an older store up to date.")
@click.argument("store", metavar="STORE")
@click.option("--journal", metavar="URL", help="The journal's database.  [default: in the store]")
@click.option("--no-backup", is_flag=True, help="Make no copy of the old tables first.")
@click.option("--json", "as_json", is_flag=True, help="Print it for programs.")
def migrate_command(store: str, journal: str | None, no_backup: bool, as_json: bool) -> None:
    """Bring the tables of an older store up to date, after making a copy.

    Opening a store does the same, so this is needed only where that was
    refused: while a driver used the store, or by a user who may not write it.
    The copy is a file beside the journal, or in PostgreSQL a schema in the same
    database. If anything fails, the store stays as it was.

    \b
    Examples:
      hoptree migrate .hoptree
      hoptree migrate .hoptree --journal postgresql://me@host/studies
    """  # noqa: D301 click needs the real character
    import msgspec

    from hoptree.store import migrate

    done = migrate(store, journal, backup=not no_backup)
    if as_json:
        print_json(msgspec.to_builtins(done))
    elif done.before == done.after:
        click.echo(f"{store}: the tables have revision {done.after}; there is nothing to do.")
    else:
        copy = f" A copy of the old ones: {done.backup}" if done.backup else ""
        click.echo(f"{store}: the tables were brought from revision {done.before} to {done.after}.{copy}")
