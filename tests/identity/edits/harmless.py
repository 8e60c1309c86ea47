"""Edits that do not affect training: style, names, messages, locations."""

from __future__ import annotations

from tests.identity.edits.case import HEAD, Edit, files, same

NET = """
import logging
import warnings
log = logging.getLogger(__name__)
SIZE = 3
def _width(n):
    return n + 1
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.last = nn.Linear(width, 2)
    def forward(self, x):
        hidden = torch.relu(self.first(x))
        for _ in range(2):
            hidden = hidden * 1.5
        return self.last(hidden)
def net(hp):
    width = _width(SIZE)
    model = Net(width)
    return model
def loss(output, target):
    value = F.cross_entropy(output, target)
    return value
"""
HELPER = "SIZE = 3\ndef _width(n):\n    return n + 1\n"
REST = NET.replace(HELPER, "")
IN_FORWARD = "        return self.last(hidden)"
NESTED = """
def net(hp):
    def block(size):
        return nn.Linear(size, 2)
    def outer(size, more=1):
        total = size + more - 1
        return block(total)
    return outer(4)
"""
ROOT = """
import os
from pathlib import Path
ROOT = Path(__file__).parent
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
def net(hp):
    name = str(ROOT / "x") + DATA
    return nn.Linear(4, 2 + 0 * len(name))
"""


def told(name: str, statement: str) -> Edit:
    """Return an edit that adds a statement to a forward pass."""
    return same(name, NET, IN_FORWARD, f"        {statement}\n{IN_FORWARD}")


def moved(name: str, program: str, before: str, after: str) -> Edit:
    """Return the same program in another folder."""
    one, two = ({f"{folder}/program.py": program, ".folder": folder} for folder in (before, after))
    return Edit(name, one, two, False)


EDITS: list[Edit] = [
    same("a comment", NET, "SIZE = 3", "SIZE = 3  # small"),
    same("blank lines", NET, "def net(hp):", "\n\n\ndef net(hp):"),
    same("layout", NET, "nn.Linear(4, width)", "nn.Linear(\n            4,\n            width,\n        )"),
    same("parentheses", NET, "hidden * 1.5", "(hidden * (1.5))"),
    same("quotes", NET.replace("_width(SIZE)", "_width(len('abc'))"), "'abc'", '"abc"'),
    same("a number written in another way", NET, "SIZE = 3", "SIZE = 0b11"),
    same("constants folded", NET, "SIZE = 3", "SIZE = 1 + 2"),
    same("a function's docstring", NET, "    width = _width", '    """Build."""\n    width = _width'),
    same("a module's docstring", NET, "import logging\n", '"""A program."""\nimport logging\n'),
    same("annotations", NET, "def _width(n):", "def _width(n: int) -> int:"),
    same("annotations of a local variable", NET, "    width = _width", "    width: int = _width"),
    same("annotations of a nested function", NESTED, "def outer(size, more=1):", "def outer(size: int, more: int = 1) -> nn.Module:"),
    same("annotations of a nested function that captures", NESTED, "def block(size):", "def block(size: 'int | None') -> 'nn.Module':"),
    same("annotations from the future", NESTED, "def net(hp):", "def net(hp: dict):"),
    same("a local variable's name", NET, "hidden", "inner"),
    same("a loop variable's name", NET, "for _ in", "for step in"),
    same("a private function's name", NET, "_width(", "_size_of("),
    same("a class's name that nothing asks for", NET, "Net(", "Model("),
    same("a constant's name", NET, "SIZE", "HIDDEN"),
    Edit("functions in another order", {"program.py": HEAD + HELPER + REST}, {"program.py": HEAD + REST + HELPER}, False),
    same("an import that is not used", NET, "import logging\n", "import logging\nimport json, os.path\n"),
    same("nn.Linear written torch.nn.Linear", NET, "nn.Linear(", "torch.nn.Linear("),
    same("a class imported by name", NET.replace("SIZE = 3", "from torch.nn import Linear\nSIZE = 3"), "nn.Linear(", "Linear("),
    Edit("a class imported under another name", {"program.py": HEAD + NET},
         {"program.py": HEAD + "from torch.nn import Linear as L\n" + NET.replace("nn.Linear(", "L(")}, False),
    same("a function written in another way", NET, "F.cross_entropy", "nn.functional.cross_entropy"),
    told("print", "print('here')"),
    told("print of a shape", "print(x.shape, hidden.dtype)"),
    told("print of an f-string", "print(f'{hidden.shape} {len(x)} {SIZE:>5}', end='')"),
    told("print with arithmetic", "print('mean', 100 * len(x) / 2, sep=' ')"),
    told("logging", "logging.info('forward %s', x.shape)"),
    told("a logger", "log.debug('forward %s of %d', x.shape, len(x))"),
    same("a warning", NET.replace("def net(hp):\n", "def net(hp):\n    warnings.simplefilter('ignore')\n"),
         IN_FORWARD, "        warnings.warn('slow')\n" + IN_FORWARD),
    same("print of a loss", NET, "    return value\n", "    print('loss', value.item(), round(value.item(), 3))\n    return value\n"),
    same("print in a loop", NET, "hidden = hidden * 1.5\n", "hidden = hidden * 1.5\n            print('step')\n"),
    same("print first", NET, "def net(hp):\n", "def net(hp):\n    print('building', hp)\n"),
    same("print changed", NET.replace("def net(hp):\n", "def net(hp):\n    print('a')\n"), "print('a')", "print('b', SIZE)"),
    same("print at module level", NET, "SIZE = 3\n", "SIZE = 3\nprint('loaded')\n"),
    same("a function that nothing uses", NET, "def net(hp):", "def unused():\n    return torch.rand(1)\ndef net(hp):"),
    same("a variable that nothing uses", NET, "SIZE = 3", "SIZE = 3\nOTHER = 4"),
    same("a function that was called before", NET, "def loss(", "_width(3)\nnet({})\ndef loss("),
    same("a logger under another name", NET, "getLogger(__name__)", "getLogger('other')"),
    same("what only the program itself does", NET, "def loss(", "if __name__ == '__main__':\n    print('run')\ndef loss("),
    same("a message behind a condition", NET, IN_FORWARD, f"        if SIZE > 5:\n            print('wide')\n{IN_FORWARD}",
         alarm="a condition around a message"),
    moved("a folder that moved", HEAD + NET, "here", "there"),
    moved("a folder that moved, with paths in it", HEAD + ROOT, "project", "copies"),
    moved("a folder that moved, with modules reached by name", HEAD + NET.replace("_width(SIZE)", "globals()['_width'](SIZE)"), "a", "b"),
    files("another file beside the program", {"program.py": NET, "other.py": "X = 1\n"}, "other.py", "X = 1", "X = 2", changes=False),
]  # fmt: skip
