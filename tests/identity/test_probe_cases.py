"""Changes that neither the fingerprint of the code nor observation can detect: the probe does.

Each case is a net, and a change of its surroundings while the program stays as it is.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import decimal
import os
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

import hoptree as ht
from hoptree.trainers.probe import probe

RNG = np.random.default_rng(0)
TRAIN = {"x": RNG.normal(size=(80, 6)).astype("float32"), "y": RNG.integers(0, 3, 80)}
VALID = {"x": RNG.normal(size=(40, 6)).astype("float32"), "y": RNG.integers(0, 3, 40)}
FOLDER = Path(tempfile.mkdtemp(prefix="hoptree-probe-"))
LIBC = ctypes.CDLL(None, use_errno=True)
MEMORY = SharedMemory(create=True, size=8)
PIPE = os.memfd_create("scale")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
atexit.register(MEMORY.unlink)
atexit.register(MEMORY.close)


class Case(NamedTuple):
    """``scale`` is the factor of the net's inputs; ``change`` is active in the second run."""

    name: str
    scale: Callable[[], float]
    change: Callable[[], AbstractContextManager[Any]]
    changes: bool = True
    mechanism: str = "probe"


class Net(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.parts = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x: Any) -> Any:
        return self.parts(x * self.scale)


def probed(scale: Callable[[], float]) -> str:
    trainer = ht.Torch(lambda hp: Net(scale()), loss=nn.functional.cross_entropy, metrics={"accuracy": ht.accuracy})
    return probe(trainer, {"lr": 0.1, "batch_size": 16}, TRAIN, VALID)


def one() -> float:
    return 1.0


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def undone(do: Callable[[], Any], undo: Callable[[], Any]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


@contextmanager
def handle(made: Any) -> Iterator[None]:
    try:
        yield
    finally:
        made.remove()


# --- what the nets read -------------------------------------------------------------------------------------


def from_file_by_libc() -> float:
    """Read a file like a library in C: Python sees no open."""
    descriptor = LIBC.open(str(FOLDER / "scale").encode(), os.O_RDONLY)
    buffer = ctypes.create_string_buffer(8)
    LIBC.read(descriptor, buffer, 8)
    LIBC.close(descriptor)
    return float(np.frombuffer(buffer.raw[:8], np.float64)[0])


def write_scale(value: float) -> None:
    (FOLDER / "scale").write_bytes(np.float64(value).tobytes())


def from_database() -> float:
    with sqlite3.connect(FOLDER / "scales.sqlite") as database:
        return float(database.execute("select value from scales").fetchone()[0])


def write_database(value: float) -> None:
    with sqlite3.connect(FOLDER / "scales.sqlite") as database:
        database.execute("create table if not exists scales (value real)")
        database.execute("delete from scales")
        database.execute("insert into scales values (?)", (value,))


def from_shared_memory() -> float:
    return float(struct.unpack_from("d", MEMORY.buf)[0]) + 1


def write_shared_memory(value: float) -> None:
    struct.pack_into("d", MEMORY.buf, 0, value)


def from_descriptor() -> float:
    return 1.0 + len(os.pread(PIPE, 100, 0)) / 10


def from_size() -> float:
    return 1.0 + (FOLDER / "sized").stat().st_size / 10


def from_umask() -> float:
    before = os.umask(0)
    os.umask(before)
    return 1.0 + before / 100


def from_environment_of_c() -> float:
    LIBC.getenv.restype = ctypes.c_char_p
    return float(LIBC.getenv(b"HOPTREE_SCALE_OF_C") or b"1.0")


def from_decimal() -> float:
    return float(decimal.Decimal(10) / decimal.Decimal(3))


def from_printed_tensor() -> float:
    return float(str(torch.tensor(1 / 3)).removeprefix("tensor(").removesuffix(")"))


def from_printed_array() -> float:
    return float(str(np.array([1 / 3]))[1:-1])


def from_import_side_effect() -> float:
    return float(getattr(sys.modules["hoptree_settings_of_somebody"], "scale", 1.0))


def from_builtins() -> float:
    return float(vars(builtins).get("scale_of_somebody", 1.0))


def from_working_folder() -> float:
    return 1.0 + len(Path.cwd().parts)


def from_time_zone() -> float:
    return 1.0 + abs(time.timezone) / 36000


def set_time_zone(zone: str) -> None:
    LIBC.setenv(b"TZ", zone.encode(), 1)
    time.tzset()


def scaled(function: Any, factor: float) -> Any:
    return lambda *args, **options: function(*args, **options) * factor


def smaller_start(layer: Any) -> None:
    nn.init.uniform_(layer.weight, -0.01, 0.01)
    nn.init.zeros_(layer.bias)


def round_down() -> None:
    LIBC.fesetround(0x400)


def round_to_nearest() -> None:
    LIBC.fesetround(0)


def computed(*parts: str) -> str:
    return "".join(parts)


sys.modules.setdefault("hoptree_settings_of_somebody", types.ModuleType("hoptree_settings_of_somebody"))
SETTINGS = sys.modules["hoptree_settings_of_somebody"]
SETTINGS.scale = 1.0  # type: ignore[attr-defined]


CASES = [
    Case("a library in C rounds down", one, lambda: undone(round_down, round_to_nearest)),
    Case("a file read in C", from_file_by_libc, lambda: undone(lambda: write_scale(2), lambda: write_scale(1))),
    Case("a database", from_database, lambda: undone(lambda: write_database(2), lambda: write_database(1))),
    Case(
        "shared memory",
        from_shared_memory,
        lambda: undone(lambda: write_shared_memory(1), lambda: write_shared_memory(0)),
    ),
    Case(
        "an inherited descriptor",
        from_descriptor,
        lambda: undone(lambda: os.pwrite(PIPE, b"xx", 0), lambda: os.ftruncate(PIPE, 0)),
    ),
    Case(
        "a file's size, without opening it",
        from_size,
        lambda: undone(
            lambda: (FOLDER / "sized").write_bytes(b"12345"), lambda: (FOLDER / "sized").write_bytes(b"")
        ),
    ),
    Case("the umask", from_umask, lambda: undone(lambda: os.umask(0o077), lambda: os.umask(0o022))),
    Case(
        "an environment variable read in C",
        from_environment_of_c,
        lambda: undone(
            lambda: LIBC.setenv(b"HOPTREE_SCALE_OF_C", b"3.0", 1), lambda: LIBC.unsetenv(b"HOPTREE_SCALE_OF_C")
        ),
    ),
    Case("the precision of decimals", from_decimal, lambda: decimal.localcontext(prec=3)),
    Case(
        "torch's print options",
        from_printed_tensor,
        lambda: undone(
            lambda: torch.set_printoptions(precision=2), lambda: torch.set_printoptions(profile="default")
        ),
    ),
    Case("numpy's print options", from_printed_array, lambda: np.printoptions(precision=2)),
    Case("a setting of another module", from_import_side_effect, lambda: attribute(SETTINGS, "scale", 2.0)),
    Case(
        "a name added to builtins",
        from_builtins,
        lambda: undone(
            lambda: setattr(builtins, "scale_of_somebody", 2.0), lambda: delattr(builtins, "scale_of_somebody")
        ),
    ),
    Case(
        "the working folder",
        from_working_folder,
        lambda: undone(lambda: os.chdir("/"), lambda: os.chdir(FOLDER)),
    ),
    Case(
        "the time zone set in C",
        from_time_zone,
        lambda: undone(lambda: set_time_zone("Asia/Tokyo"), lambda: set_time_zone("UTC")),
    ),
    Case(
        "a function patched by a computed name",
        one,
        lambda: attribute(nn.functional, computed("re", "lu"), scaled(nn.functional.relu, 0.5)),
    ),
    Case(
        "a method patched by a computed name",
        one,
        lambda: attribute(nn.Linear, computed("for", "ward"), scaled(nn.Linear.forward, 1.5)),
    ),
    Case("another initialisation of a layer", one, lambda: attribute(nn.Linear, "reset_parameters", smaller_start)),
    Case(
        "a hook on every module's forward",
        one,
        lambda: handle(torch_module.register_module_forward_hook(lambda part, given, output: output * 1.01)),
    ),
    Case(
        "a hook on every optimizer's step",
        one,
        lambda: handle(torch_optimizer.register_optimizer_step_pre_hook(_half_of_the_gradients)),
    ),
    Case(
        "a metric patched at its library",
        one,
        lambda: attribute(torch.Tensor, "argmax", scaled(torch.Tensor.argmax, 0)),
    ),
    # No change.
    Case("nothing", one, lambda: undone(lambda: None, lambda: None), changes=False),
    Case(
        "global generators",
        one,
        lambda: undone(
            lambda: (random.random(), np.random.rand(), torch.rand(3)),
            lambda: None,
        ),
        changes=False,
    ),
    Case("gradients switched off", one, torch.no_grad, changes=False),
    Case(
        "another default type",
        one,
        lambda: undone(
            lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
        ),
        changes=False,
    ),
    Case(
        "another number of threads",
        one,
        lambda: undone(lambda: torch.set_num_threads(2), lambda: torch.set_num_threads(1)),
        changes=False,
    ),
    Case(
        "a function that nobody calls",
        one,
        lambda: attribute(nn.functional, "gelu", scaled(nn.functional.gelu, 2)),
        changes=False,
    ),
]


def _half_of_the_gradients(optimizer: Any, args: Any, options: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad *= 0.5
                parameter.grad += 0.01


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(FOLDER)
    write_scale(1)
    write_database(1)
    write_shared_memory(0)
    (FOLDER / "sized").write_bytes(b"")
    os.umask(0o022)
    set_time_zone("UTC")
    yield
    os.umask(0o022)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_probe_shows_what_nobody_else_can_see(case: Case) -> None:
    before = probed(case.scale)
    with case.change():
        changed = probed(case.scale)
    assert (changed != before) is case.changes
    assert probed(case.scale) == before


def test_there_are_enough_cases() -> None:
    assert sum(case.changes for case in CASES) >= 15
    assert {case.mechanism for case in CASES} == {"probe"}
