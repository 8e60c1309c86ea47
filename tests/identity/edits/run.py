"""Take fingerprints of programs before and after an edit, or train them: ``python -m tests.identity.edits.run``.

Every program runs in a forked process of its own, so that none sees what another has imported or patched.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hoptree as ht
from hoptree.core.lineage import history, segments
from hoptree.store import fingerprint as state_fingerprint
from hoptree.trainers.base import UnitSpec
from tests.identity.edits.case import Edit, Files

TOPICS = ("calls", "imports", "classes", "values", "decorators", "dynamic", "harmless", "optimizers", "programs")


class Warm:
    """A program to begin with."""

    net = staticmethod(lambda hp: torch.nn.Linear(4, 2))


def main(topic: str, what: str) -> None:
    table: list[Edit] = importlib.import_module(f"tests.identity.edits.{topic}").EDITS
    ask = trained if what == "train" else taken
    torch.set_num_threads(1)
    ask(Warm)  # what is imported and cached now is there in every forked process
    gc.collect()
    gc.freeze()  # else each fork copies most of the memory when it collects
    answers = {each.name: [forked(ask, each.before), forked(ask, each.after)] for each in table}
    print(json.dumps(answers))


def forked(ask: Callable[[Any], str], files: Files) -> str:
    """Return the result of a program, from a process that ends with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with tempfile.TemporaryDirectory() as folder:
                answer = ask(loaded(files, folder))
        except BaseException:
            answer = "error: " + traceback.format_exc()
        os.write(writing, answer.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


def loaded(files: Files, folder: str) -> Any:
    """Return the module of a program that is written to a folder."""
    for path, text in files.items():
        if path.startswith("."):
            continue  # ".folder": the folder to import from
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    sys.path.insert(0, str(Path(folder, files.get(".folder", ""))))
    for path in files:  # a file may have the name of a library's module that is already loaded
        sys.modules.pop(Path(path).parts[0].removesuffix(".py"), None)
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    sys.stdout = io.StringIO()
    program = importlib.import_module("program")
    if hasattr(program, "prepare"):
        program.prepare()
    return program


def trainer(program: Any) -> ht.Torch:
    return ht.Torch(
        program.net,
        loss=getattr(program, "loss", torch.nn.functional.cross_entropy),
        optimizer=getattr(program, "optimizer", "sgd"),
        metrics=getattr(program, "metrics", None),
    )


def taken(program: Any) -> str:
    return trainer(program).fingerprint


def trained(program: Any) -> str:
    """Return the model's state and metrics after one unit of training on sixteen examples."""
    made = trainer(program)
    x = np.random.default_rng(1).standard_normal((16, 4)).astype(np.float32)
    data = {"x": x, "y": (x.sum(1) > 0).astype(np.int64)}
    values = {"lr": 0.1, "batch_size": 4, "width": 3, "kind": "a", "depth": 2}
    whole = segments(history(values), partitions=1, units=1)[0].values
    model = made.build(values, 7)
    made.train(model, data, UnitSpec(whole, 0, 1, 0, 11, 13))
    metrics = made.evaluate(model, data, values)
    return state_fingerprint(made.dump(model).arrays) + json.dumps(metrics)


if __name__ == "__main__":
    main(*sys.argv[1:])
