"""``hoptree migrate``: upgrade the tables of an older store."""

from __future__ import annotations

import click

from hoptree.ui.common import print_json


@click.command(name="migrate", short_help="Upgrade the tables of an older store.")
@click.argument("store", metavar="STORE")
@click.option("--journal", metavar="URL", help="The journal's database.  [default: in the store]")
@click.option("--no-backup", is_flag=True, help="Do not back up the old tables first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def migrate_command(store: str, journal: str | None, no_backup: bool, as_json: bool) -> None:
    """Upgrade the tables of an older store to this version, after a backup.

    Opening a store does the same, so this is needed only if that failed:
    because a driver used the store, or for lack of write permission. The
    backup is a file beside the journal, or in PostgreSQL a schema in the same
    database. If anything fails, the store is not changed.

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
        click.echo(f"{store}: the tables are up to date (revision {done.after}).")
    else:
        copy = f" Backup of the old tables: {done.backup}" if done.backup else ""
        click.echo(f"{store}: upgraded the tables from revision {done.before} to {done.after}.{copy}")
