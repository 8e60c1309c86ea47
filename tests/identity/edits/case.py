"""One edit of a small program, and how to tell whether it affects training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

Files: TypeAlias = Mapping[str, str]
Mechanism: TypeAlias = Literal["code", "observed", "probe"]

# The beginning and the end of every program, unless it defines these itself.
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
PLAIN_NET = "def net(hp):\n    return nn.Linear(4, 2)\n"


class Edit(NamedTuple):
    """A program as files, one edit of it, and whether the edit changes the trained bits.

    ``program.py`` defines ``net``, and may define ``loss``, ``optimizer``, ``metrics`` and ``prepare``, which is
    called in the driver before anything else. ``before`` and ``after`` are the files without and with the edit.
    ``mechanism`` says what notices it: the fingerprint of the code, what is observed in workers, or the probe.
    """

    name: str
    before: Files
    after: Files
    changes: bool
    mechanism: Mechanism = "code"
    known_alarm: str = ""  # why a harmless edit changes the fingerprint, as the guide says


def edit(name: str, text: str, old: str, new: str, *, changes: bool = True, net: str = "", alarm: str = "") -> Edit:
    """Return an edit of a program of one file."""
    source = HEAD + text + net
    assert old in source, f"{name}: {old!r} is not in the program"
    files, changed = {"program.py": source}, {"program.py": source.replace(old, new)}
    return Edit(name, files, changed, changes, known_alarm=alarm)


def files(
    name: str, before: Files, file: str, old: str, new: str, *, changes: bool = True, alarm: str = ""
) -> Edit:
    """Return an edit of one file of several; ``program.py`` gets the usual imports."""
    whole = {path: (HEAD + text if path == "program.py" else text) for path, text in before.items()}
    assert old in whole[file], f"{name}: {old!r} is not in {file}"
    return Edit(name, whole, {**whole, file: whole[file].replace(old, new)}, changes, known_alarm=alarm)


def same(name: str, text: str, old: str, new: str, *, net: str = "", alarm: str = "") -> Edit:
    """Return an edit of a program of one file that does not affect training."""
    return edit(name, text, old, new, changes=False, net=net, alarm=alarm)
