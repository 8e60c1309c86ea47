"""A fingerprint depends on the behaviour of code, and on nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hoptree.core.schedules import linear
from hoptree.identity.errors import IdentityError
from hoptree.identity.fingerprints import covered, fingerprint
from hoptree.trainers import Torch, accuracy

SOURCE = """
import torch
from torch import nn
WIDTHS = [8, 16]
def depth(hp):
    return hp["depth"] + 1
class Block(nn.Module):
    scale = 2.0
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
    def forward(self, x):
        return torch.relu(self.inner(x)) * self.scale
def net(hp, gain=1.5):
    layers = [Block(width) for width in WIDTHS if width > 4]
    try:
        layers *= depth(hp)
    except KeyError:
        pass
    return nn.Sequential(*layers, nn.Linear(16, 10)), gain
"""

# The same program, in another style.
TIDIED = '''
"""A module."""
from torch import nn


import torch

# widths


class Block(nn.Module):
    """A block."""

    scale: float = 2.0  # doubled

    def forward(self, x):
        """Go forward."""
        return (
            torch.relu(
                self.inner(x),
            )
            * self.scale
        )

    def __init__(self, width: int) -> None:
        """Build."""
        super().__init__()

        self.inner = nn.Linear(width, width)


def net(hp, gain: float = 1.5):
    """Build a net."""
    stack = [
        Block(w)
        for w in WIDTHS
        if w > 4
    ]
    try:
        # repeat
        stack *= depth(hp)

    except KeyError:
        pass
    return nn.Sequential(*stack, nn.Linear(16, 10)), gain


def depth(hp): return hp["depth"] + 1


WIDTHS = [
    8, 16,
]
'''

CHANGES = [
    ("+ 1", "+ 2"),
    ("[8, 16]", "[8, 32]"),
    ("scale = 2.0", "scale = 3.0"),
    ("torch.relu", "torch.tanh"),
    ("> 4", ">= 4"),
    ("gain=1.5", "gain=1.25"),
    ("* self.scale", "+ self.scale"),
    ("KeyError", "ValueError"),
    ("nn.Linear(16, 10)", "nn.Linear(16, 11)"),
    ("nn.Linear(width, width)", "nn.Linear(width, width, bias=False)"),
]


def loaded(source, name="net", file="<user>"):
    scope = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def test_layout_comments_docstrings_and_order_do_not_count():
    assert fingerprint(loaded(SOURCE)) == fingerprint(loaded(TIDIED, file="/elsewhere/moved.py"))


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_edits_that_change_the_result_change_the_fingerprint(old, new):
    assert old in SOURCE
    assert fingerprint(loaded(SOURCE)) != fingerprint(loaded(SOURCE.replace(old, new)))


def test_another_process_agrees_whatever_its_hash_seed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        SOURCE
        + textwrap.dedent("""
        NAMES = {"alpha", "beta", "gamma", "delta"}
        def chosen(hp):
            return hp["name"] in {"alpha", "beta", "gamma"}, NAMES, net, Block
        if __name__ == "__main__":
            from hoptree.identity.fingerprints import fingerprint
            print(fingerprint(chosen))
        """)
    )
    runs = [
        subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == fingerprint(loaded(program.read_text(), "chosen")) + "\n"


def test_sending_to_a_worker_changes_nothing():
    net = loaded(SOURCE)
    assert fingerprint(cloudpickle.loads(cloudpickle.dumps(net))) == fingerprint(net)
    trainer = Torch(net, loss=nn.CrossEntropyLoss(), metrics={"accuracy": accuracy}, optimizer=torch.optim.Adam)
    sent = cloudpickle.loads(cloudpickle.dumps(trainer))
    assert sent.fingerprint == trainer.fingerprint


def test_every_setting_of_a_trainer_counts():
    net, other = loaded(SOURCE), loaded(SOURCE.replace("+ 1", "+ 2"))
    loss = nn.functional.cross_entropy
    trainers = [
        Torch(net, loss=loss),
        Torch(other, loss=loss),
        Torch(net, loss=nn.functional.mse_loss),
        Torch(net, loss=loss, optimizer="sgd"),
        Torch(net, loss=loss, optimizer=lambda params, hp: torch.optim.SGD(params)),
        Torch(net, loss=loss, optimizer=lambda params, hp: torch.optim.SGD(params, lr=1.0)),
        Torch(net, loss=nn.CrossEntropyLoss()),
        Torch(net, loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
        Torch(net, loss=loss, metrics={"accuracy": accuracy}),
        Torch(net, loss=loss, inputs="x"),
        Torch(net, loss=loss, target="z"),
        Torch(net, loss=loss, clip=1.0),
        Torch(net, loss=loss, accumulate=2),
        Torch(net, loss=loss, precision="float64"),
        Torch(net, loss=loss, threads=2),
    ]
    assert len({trainer.fingerprint for trainer in trainers}) == len(trainers)


def capturing(value):
    def function():
        return value

    return function


@dataclass
class Point:
    x: float
    y: tuple[int, ...] = (1, 2)


VALUES = [
    None, True, 1, 1.0, "1", b"1", 1j, (1,), [1], {1}, {"a": 1}, {"b": 1}, {"a": 2}, range(3), ..., slice(1, 2),
    np.arange(3), np.arange(3.0), np.arange(3)[::-1], np.float32(1), np.dtype("f4"), np.tanh, np.sin,
    torch.arange(3), torch.arange(3).float(), torch.ones(2, dtype=torch.bfloat16), nn.Parameter(torch.ones(2)),
    torch.float32, torch.float64, torch.relu, torch.nn.functional.gelu, nn.Linear, len, [].append,
    linear(0.0, 1.0, over=2), linear(0.0, 1.0, over=3), Point(1.0), Point(2.0), Point, nn.ReLU(),
    nn.ReLU(inplace=True),
    functools.partial(max, 1), functools.partial(max, 2), functools.lru_cache(capturing(1)), Point(1.0).__eq__,
    np.random.default_rng(1), np.random.default_rng(2), torch, np,
]  # fmt: skip


def test_captured_values_count_and_copies_are_equal():
    prints = [fingerprint(capturing(value)) for value in VALUES]
    assert len(set(prints)) == len(VALUES)
    for value, known in zip(VALUES, prints, strict=True):
        assert fingerprint(capturing(value)) == known
        if not isinstance(value, type([].append) | functools._lru_cache_wrapper):
            assert fingerprint(cloudpickle.loads(cloudpickle.dumps(capturing(value)))) == known


@given(
    st.recursive(st.integers() | st.text() | st.floats(allow_nan=False), lambda x: st.lists(x) | st.tuples(x, x))
)
@settings(max_examples=100, deadline=None)
def test_equal_values_have_equal_fingerprints(value):
    copy = cloudpickle.loads(cloudpickle.dumps(value))
    assert fingerprint(value) == fingerprint(copy)
    assert fingerprint(value) != fingerprint([value])


def test_functions_that_call_each_other():
    even = "def f(n):\n    return n == 0 or g(n - 1)\ndef g(n):\n    return n != 0 and f(n - 1)\n"
    assert fingerprint(loaded(even, "f")) == fingerprint(loaded(even, "f"))
    assert fingerprint(loaded(even, "f")) != fingerprint(loaded(even.replace("!= 0", "!= 1"), "f"))
    assert fingerprint(loaded(even, "f")) != fingerprint(loaded(even, "g"))
    loop: list[object] = [1]
    loop.append(loop)
    assert fingerprint(loop) != fingerprint([1])


def test_a_users_own_module_counts_by_what_is_used_of_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    prints = []
    texts = [
        "def used():\n    return 1\n",
        "# note\ndef used():\n    return 1\nother = 3\n",
        "def used():\n    return 2\n",
    ]
    for text in texts:
        (tmp_path / "users_own_lib.py").write_text(text)
        sys.modules.pop("users_own_lib", None)
        prints.append(fingerprint(loaded("import users_own_lib\ndef net(hp):\n    return users_own_lib.used()\n")))
    inside = loaded("def net(hp):\n    import users_own_lib\n    return users_own_lib.used()\n")
    assert prints[0] == prints[1] != prints[2]
    assert fingerprint(inside) not in prints


@pytest.mark.parametrize("value", [threading.Lock(), (x for x in ()), sys.stdout])
def test_an_object_without_a_fingerprint_is_refused_by_name(value):
    def net(hp):
        return value

    with pytest.raises(
        IdentityError, match=r"the captured variable 'value' of 'net'.*create it inside the function"
    ):
        fingerprint(net)
    with pytest.raises(IdentityError, match="the variable 'LOCK' of function 'net'"):
        fingerprint(loaded("import threading\nLOCK = threading.Lock()\ndef net(hp):\n    return LOCK\n"))


def test_importing_the_package_is_fast():
    code = "import sys, hoptree.trainers as t; known = 'torch' in sys.modules; t.Torch; assert not known"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


MODULE_NAMED = """
import logging
from dataclasses import dataclass
import torch
log = logging.getLogger(__name__)
@dataclass
class Shape:
    width: int = 4
@torch.no_grad()
def start(model):
    model.weight.zero_()
    log.info("%s", __name__)
    return model
def net(hp):
    return start(torch.nn.Linear(Shape().width, 2))
"""


def test_a_program_and_the_same_file_as_a_module_have_one_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "a_module.py"
    tell = "from hoptree.identity.fingerprints import fingerprint\nprint(fingerprint(net))\n"
    file.write_text(MODULE_NAMED + tell)
    ways = ([str(file)], ["-c", "import a_module"])
    prints = {subprocess.check_output([sys.executable, *way], cwd=tmp_path, text=True) for way in ways}
    assert len(prints) == 1


def test_covered_names_the_module_that_differs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for number in (1, 1, 2):
        (tmp_path / "covered_part.py").write_text(f"def used():\n    return {number}\n")
        (tmp_path / "covered_other.py").write_text("def other():\n    return 5\n")
        program = "import covered_part, covered_other\n"
        program += "def net(hp):\n    return covered_part.used(), covered_other.other()\n"
        for name in ("covered_part", "covered_other"):
            sys.modules.pop(name, None)
        found.append(covered(loaded(program)))
    assert set(found[0]) == {"__main__", "covered_part", "covered_other"}
    assert found[0] == found[1]
    assert found[0]["covered_part"] != found[2]["covered_part"]
    assert found[0]["covered_other"] == found[2]["covered_other"]


def circle(numbers):
    """Return the source of functions that all call each other."""
    names = ", ".join(f"f{each}" for each in sorted(numbers))
    return "".join(f"def f{each}(n):\n    return {each} + sum(f(n - 1) for f in ({names}))\n" for each in numbers)


def test_functions_that_call_each_other_are_described_once():
    source = circle(range(40))  # following every path through all of them would never end
    assert fingerprint(loaded(source, "f3")) == fingerprint(loaded(circle(range(39, -1, -1)), "f3"))
    assert fingerprint(loaded(source, "f3")) != fingerprint(loaded(source, "f4"))
    assert fingerprint(loaded(source, "f3")) != fingerprint(
        loaded(source.replace("return 39 +", "return 7 +"), "f3")
    )


def test_a_trainer_notices_what_is_redefined_after_it_was_made():
    scope = {"__name__": "__main__"}
    exec(
        "import torch\nWIDTH = 3\ndef size():\n    return WIDTH\n"
        "def net(hp):\n    return torch.nn.Linear(4, size())\n",
        scope,
    )
    trainer = Torch(scope["net"], loss=nn.functional.cross_entropy)
    first = trainer.fingerprint
    scope["WIDTH"] = 4
    second = trainer.fingerprint
    exec("def size():\n    return WIDTH + 1\n", scope)
    assert len({first, second, trainer.fingerprint}) == 3
    exec("WIDTH = 3\ndef size():\n    return WIDTH\n", scope)
    assert trainer.fingerprint == first


def test_what_is_covered_in_a_module_does_not_depend_on_the_modules_that_it_uses(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "covered_upper.py").write_text("import covered_lower\ndef up():\n    return covered_lower.low()\n")
    found = []
    for number in (1, 2):
        (tmp_path / "covered_lower.py").write_text(f"def low():\n    return {number}\n")
        for name in ("covered_upper", "covered_lower"):
            sys.modules.pop(name, None)
        found.append(covered(loaded("import covered_upper\ndef net(hp):\n    return covered_upper.up()\n")))
    assert found[0]["covered_upper"] == found[1]["covered_upper"]
    assert found[0]["covered_lower"] != found[1]["covered_lower"]


def leave() -> None:
    sys.exit(4)


def test_a_builtin_that_a_library_has_replaced_counts_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wandb replaces ``sys.exit`` in the driver, but not in a worker."""
    before = fingerprint(leave)
    for replacement in (textwrap.TextWrapper().fill, textwrap.dedent):
        monkeypatch.setattr(sys, "exit", replacement)
        assert fingerprint(leave) == before


def test_a_builtin_that_the_user_has_replaced_counts_by_the_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(leave)
    monkeypatch.setattr(sys, "exit", lambda code: None)
    assert fingerprint(leave) != before
