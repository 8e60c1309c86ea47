"""How a command ends: exit codes that mean something, and one look for all errors.

What happened and what to do is in the message; then where in the user's own code, and which file has the whole
trace.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import click

from hoptree.core.errors import HoptreeError

FAILED: Final = 1  # it was done, and something failed: no trial is complete, bits differ, a check does not hold
REFUSED: Final = 2  # it was not done: wrong usage, or something given that cannot be
BROKEN: Final = 3  # a bug
INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C has ended

_OURS = str(Path(__file__).resolve().parents[1])
_LINES = 30  # of a message that are shown


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
        click.echo(told_bug(error), err=True)
        return BROKEN
    return code if isinstance(code, int) else 0


def told(error: HoptreeError) -> str:
    """Return what an error of ours says, where in the user's code it came from, and where all of it is."""
    text = f"{type(error).__name__}: {error}"
    lines = text.splitlines()
    place = _own_line(error.__traceback__)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 3], "  …", *lines[-_LINES * 2 // 3 :]]
    elif place is None:
        return text
    return "\n".join([*lines, *([f"  at {place}"] if place else []), *_whole(error)])


def told_bug(error: Exception) -> str:
    """Return what is known of an error that nobody thought of."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    place = _own_line(error.__traceback__)
    lines = [f"{type(error).__name__}: {error}"]
    if place is not None:
        lines += [f"  at {place}", "  Hoptree did not expect this of your code."]
    else:
        where = f" ({Path(ours[-1].filename).relative_to(_OURS)}, line {ours[-1].lineno})" if ours else ""
        lines.append(f"  Hoptree did not expect this{where}: it is a bug; please report it with the whole trace.")
    return "\n".join([*lines, *_whole(error)])


def _own_line(trace: TracebackType | None) -> str | None:
    """Return the last line of a trace that is neither ours nor a library's."""
    from hoptree.report.failures import whereabouts

    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(_OURS)]
    return whereabouts("".join(traceback.format_list(frames)))


def _whole(error: BaseException) -> list[str]:
    """Write the whole trace to a file, and return the line that names it."""
    from tempfile import gettempdir

    from hoptree.store.logs import Logs

    store = Path(".hoptree")
    home = store.absolute() if store.is_dir() else Path(gettempdir(), f"hoptree-{os.getuid()}")
    logs = Logs(home / "logs")
    text = f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}"
    file = logs.write(logs.of_command(), text)
    return [] if file is None else [f"  The whole trace: {file}"]
