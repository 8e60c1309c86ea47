"""A trainer whose code reads what its values say, when it builds, trains or evaluates a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hoptree as ht
from tests.system.plain import Plain


def read_json() -> None:
    with open("rates.json") as file:
        json.load(file)


def read_torch() -> None:
    import torch

    torch.load("weights.pt")


def read_numpy() -> None:
    import numpy as np

    np.load("weights.npy")


def read_memory_map() -> None:
    import numpy as np

    np.memmap(ht.file("weights.npy"), dtype=np.uint8, mode="r")


def read_safetensors() -> None:
    from safetensors.numpy import load_file

    load_file(ht.file("weights.safetensors"))


def read_module() -> None:
    import lazily_imported  # type: ignore[import-not-found]

    assert lazily_imported.SIZE


def read_variable() -> None:
    os.environ.get("READERS_MODE")


def read_folder() -> None:
    sorted(Path("parts").glob("*.txt"))


def read_nothing() -> None:
    pass


READERS = {name.removeprefix("read_"): item for name, item in list(globals().items()) if name.startswith("read_")}


class Reads(Plain):
    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        READERS[values.get("build") or "nothing"]()
        return super().build(values, seed)

    def train(self, model: Any, data: Any, unit: Any) -> None:
        READERS[unit.at(0, 1).get("train") or "nothing"]()
        super().train(model, data, unit)

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        READERS[values.get("evaluate") or "nothing"]()
        return super().evaluate(model, data, values)


def fill(folder: Path) -> None:
    """Write what is read, into the folder that a worker runs in."""
    import numpy as np
    import torch
    from safetensors.numpy import save_file

    (folder / "rates.json").write_text("[1.0]")
    torch.save({"w": torch.ones(2)}, folder / "weights.pt")
    np.save(folder / "weights.npy", np.ones(2))
    save_file({"w": np.ones(2)}, folder / "weights.safetensors")
    (folder / "lazily_imported.py").write_text("SIZE = 3\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "a.txt").write_text("a")


SUBJECTS = {  # what a reader reads, with the folder to fill in
    "json": "file:{}/rates.json",
    "torch": "file:{}/weights.pt",
    "numpy": "file:{}/weights.npy",
    "memory_map": "file:{}/weights.npy",
    "safetensors": "file:{}/weights.safetensors",
    "module": "module:lazily_imported",
    "variable": "environment:READERS_MODE",
    "folder": "folder:{}/parts",
}
