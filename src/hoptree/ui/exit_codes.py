"""How a command ends: exit codes that mean something, and one look for all errors."""

from __future__ import annotations

from typing import Final

import click

from hoptree.core.errors import HoptreeError
from hoptree.record.error_format import told, told_bug, told_place

FAILED: Final = 1  # it was done, and something failed: no trial is complete, bits differ, a check does not hold
REFUSED: Final = 2  # it was not done: wrong usage, or something given that cannot be
BROKEN: Final = 3  # a bug
INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C has ended


def guarded(command: click.Group) -> int:
    """Run the command line and return its exit code; no traceback is ever printed."""
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
        click.echo(told(error), err=True)
        return REFUSED
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except Exception as error:
        refused = told_place(error) if isinstance(error, OSError) else None
        click.echo(refused or told_bug(error), err=True)
        return REFUSED if refused else BROKEN
    return code if isinstance(code, int) else 0
