"""Short texts about failures: the last line of a traceback, and the location in the user's own code."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from hoptree.core.plan import Trial

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?', re.MULTILINE)
_OURS = f"{Path(__file__).resolve().parents[1]}/"
_COMPILED = (
    ".pyx",
    ".pxi",
)  # sources of compiled extensions, which tracebacks name although they are not installed
_LIBRARIES = (
    "site-packages", "dist-packages", f"{Path(re.__file__).parent.parent}/", "<frozen ", _OURS, *_COMPILED,
)  # fmt: skip
_HEADING = "Traceback (most recent call last):"
_BETWEEN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_OUR_MODULE = re.compile(r"^hoptree(?:\.\w+)*\.(?=\w+: )")


def gist(error: str) -> str | None:
    r"""Return the most informative line of an error: the last line of its traceback, else its first line.

    >>> gist("Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: odd\n\nmodel: raised this")
    'ValueError: odd'
    """
    lines = [line for line in error.splitlines() if line.strip()]
    ends = [line for before, line in pairwise(lines) if before.startswith("  ") and not line.startswith("  ")]
    return ends[-1] if ends else next(iter(lines), None)


def whereabouts(error: str) -> str | None:
    r"""Return the last location in a traceback outside of libraries: most likely the user's own code.

    >>> whereabouts('  File "/home/me/net.py", line 7, in net\n    raise ValueError\nValueError')
    'net.py, line 7, in net'
    """
    place = own_place(error)
    return None if place is None else place[0]


def own_place(error: str) -> tuple[str, str] | None:
    r"""Return that location and its source line ("" if the traceback does not show it).

    >>> own_place('  File "/home/me/net.py", line 7, in net\n    raise ValueError\nValueError')
    ('net.py, line 7, in net', 'raise ValueError')
    """
    own = [frame for frame in _FRAME.finditer(error) if not any(part in frame["file"] for part in _LIBRARIES)]
    if not own:
        return None
    frame = own[-1]
    function = f", in {frame['name']}" if frame["name"] else ""
    after = error[frame.end() :].partition("\n")[2].partition("\n")[0]
    source = after.strip() if after.startswith("    ") else ""
    return f"{Path(frame['file']).name}, line {frame['line']}{function}", source


def has_trace(error: str) -> bool:
    r"""Return whether a message contains a traceback.

    >>> has_trace('lr: a log range starts at 0'), has_trace('  File "net.py", line 7, in net\n    f()\nKeyError')
    (False, True)
    """
    return _FRAME.search(error) is not None


def without_traces(error: str) -> str:
    r"""Return a message without its tracebacks; their last lines and all other text remain.

    >>> print(without_traces('model:\nTraceback (most recent call last):\n  File "a", line 1\n    f()\nKeyError'))
    model:
    KeyError
    """
    kept: list[str] = []
    inside = False
    for line in error.splitlines():
        if line.endswith(_HEADING) or _FRAME.match(line):
            inside = True
        elif not line.strip() or line in _BETWEEN or (inside and line.startswith(" ")):
            continue
        else:
            inside = False
            kept.append(_OUR_MODULE.sub("", line))
    return "\n".join(kept)


def error_in_one_line(error: str) -> str:
    r"""Return the error and its location in the user's code, in one line.

    >>> error_in_one_line('  File "/home/me/net.py", line 7, in net\n    raise ValueError\nValueError: odd')
    'ValueError: odd (net.py, line 7, in net)'
    """
    what, where = gist(error) or "unknown reason", whereabouts(error)
    return f"{what} ({where})" if where else what


def failure_text(trial: Trial, number: int) -> str:
    """Return everything known about a failed trial."""
    config = "\n".join(f"  {name}: {value}" for name, value in dict(trial.history[-1].config).items())
    return f"trial {number} of {trial.study}\nreported epochs: {trial.reached}\nconfig:\n{config}\n\n{trial.reason}"
