"""Exit codes of commands, and one format for all errors."""

from __future__ import annotations

from typing import Final

import click

from hoptree.core.errors import HoptreeError
from hoptree.record.error_format import format_bug, format_error, format_unwritable_path

FAILED: Final = 1  # the command ran, and something failed: no trial is complete, bits differ, a check fails
REFUSED: Final = 2  # nothing was done: wrong usage or invalid input
BROKEN: Final = 3  # a bug in Hoptree
INTERRUPTED: Final = 130  # what shells report for a command that Ctrl-C ended


def guarded(command: click.Group) -> int:
    """Run the command line and return its exit code; never print a traceback."""
    try:
        code = command.main(prog_name="hoptree", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HoptreeError as error:
        click.echo(format_error(error), err=True)
        return REFUSED
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except Exception as error:
        refused = format_unwritable_path(error) if isinstance(error, OSError) else None
        click.echo(refused or format_bug(error), err=True)
        return REFUSED if refused else BROKEN
    return code if isinstance(code, int) else 0
