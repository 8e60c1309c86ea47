"""A trainer without a framework: its workers start at once, and its code misbehaves as its values say."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import hoptree as ht
from hoptree.trainers.base import ModelState, UnitSpec


class Plain(ht.Trainer):
    """Adds seeded noise to a vector; ``act`` is what goes wrong, ``nap`` how long a unit takes."""

    fingerprint = "plain"

    def __init__(self, size: int = 16) -> None:
        self.size = size

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        return {"w": np.random.default_rng(seed).normal(size=self.size), "units": 0}

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        values = unit.at(0, 1)
        misbehave(values.get("act"), values.get("where"))
        if unit.partitions > 1:  # in rehearsal there is one
            time.sleep(float(values.get("nap") or 0.0))
        noise = np.random.default_rng(unit.seed).normal(size=self.size)
        model["w"] += float(values["lr"]) * noise * data["x"].mean()
        model["units"] += 1

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        if values.get("act") == "words":
            return {"loss": "low"}  # type: ignore[dict-item]
        return {"loss": float("nan") if values.get("act") == "nan" else float(np.abs(model["w"]).mean())}

    def dump(self, model: Any) -> ModelState:
        return ModelState({"w": model["w"]}, {"units": model["units"]})

    def load(self, model: Any, state: ModelState) -> None:
        np.copyto(model["w"], state.arrays["w"])
        model["units"] = state.meta["units"]


def misbehave(act: Any, where: Any) -> None:
    match act:
        case "raise":
            raise ValueError("lone \ud800 surrogate")
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "leave":
            sys.exit(4)
        case "memory":
            np.empty(1 << 60, np.uint8)
        case "hang":
            spin_for_ever()
        case "needs":  # something outside that may be there the next time
            if not Path(str(where)).exists():
                raise FileNotFoundError(f"no {where}")
        case "once":  # the first time it takes its worker down from outside, then never again
            flag = Path(str(where))
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), 9)
        case "kill" | "terminate":
            os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGTERM)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "fork":
            os.fork()  # and both go on
        case "scribble":
            for descriptor in range(3, 64):
                with suppress(OSError):
                    os.write(descriptor, b"\0\0\0\x01\xc1")
        case "long":
            raise ValueError("x" * 60_000_000 + "yyy the end")
        case "limit" | "hard limit":
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard if act == "limit" else 4096))
        case "greedy":  # one call into C that lets no other thread run
            Path(str(where)).touch()
            any(map((time.monotonic() + 3.0).__lt__, iter(time.monotonic, None)))
        case "held":  # the same, until somebody changes the first byte of a file
            with Path(str(where)).open("r+b") as file, mmap.mmap(file.fileno(), 1) as shared:
                Path(f"{where}-begun").touch()
                any(map(shared.__getitem__, itertools.repeat(0)))
        case "children":
            with Path(str(where)).open("a") as pids:
                pids.write(f"{subprocess.Popen(['sleep', '1000']).pid}\n")
        case "print":
            print("something " * 10_000, flush=True)
            print("something " * 10_000, flush=True, file=sys.stderr)


def spin_for_ever() -> None:
    while True:
        pass


def dataset(folder: Path, partitions: int = 2, valid: float = 0.25) -> ht.Dataset:
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    return ht.Dataset.from_arrays(x=rows, partitions=partitions, valid=valid, to=folder / "data")


def study(
    folder: Path, *acts: str, name: str = "plain", epochs: int = 2, nap: float = 0.0, **options: Any
) -> ht.Study:
    """Return a study with one trial per act."""
    space = {"lr": 0.1, "act": ht.choice(*(acts or ("fine",))), "nap": nap, "where": str(folder / "flag")}
    settings: dict[str, Any] = {"trainer": Plain(), "space": space, "search": ht.Grid(epochs=epochs)}
    settings.update(options)
    folder.mkdir(parents=True, exist_ok=True)
    if "data" not in settings:
        settings["data"] = dataset(folder)
    return ht.Study(name, minimize="loss", store=folder / "store", **settings)
