"""Functions that are defined in the cells of a notebook train in workers, like those of a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CELLS = [
    "import numpy as np\nfrom torch import nn\nimport hoptree as ht",
    "scale = 2.0\n\ndef helper(hp):\n    return nn.Linear(4, hp['width'])\n",
    "def net(hp):\n    return nn.Sequential(helper(hp), nn.ReLU(), nn.Linear(hp['width'], 3))",
    """random = np.random.default_rng(0)
study = ht.Study(
    "cells",
    trainer=ht.Torch(net, loss=lambda out, y: scale * nn.functional.cross_entropy(out, y), optimizer="sgd"),
    data=ht.Dataset.from_arrays(
        x=random.normal(size=(64, 4)).astype(np.float32), y=random.integers(0, 3, 64), partitions=2, valid=0.25
    ),
    space={"lr": 0.1, "width": ht.choice(4, 8)},
    search=ht.Grid(epochs=2),
    minimize="loss",
)""",
    "results = study.run(workers=2)\nprint([trial.state for trial in results.trials])",
    "print(study.verify()[0].holds, study.run().savings.epochs_trained)",
]

EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in json.load(sys.stdin)])
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(json.dumps(["".join(o.get("text", "") for o in c.outputs) for c in notebook.cells]))
"""


def test_cells(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE], input=json.dumps(CELLS), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout.strip().splitlines()[-1])
    assert outputs[-2].strip() == "['complete', 'complete']"
    assert outputs[-1].strip() == "True 0.0"
