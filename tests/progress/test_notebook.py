"""Functions that are defined in the cells of a notebook train in workers, like those of a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    "results = study.run(workers=1)\nprint([trial.state for trial in results.trials])",
    "print(study.verify()[0].holds, study.run().savings.epochs_trained)",
]

EXECUTE = """
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in json.load(sys.stdin)])
NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
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


EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"

RUN = """
import json, sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
print(json.dumps([[dict(output) for output in cell.get("outputs", [])] for cell in notebook.cells]))
"""


@pytest.mark.slow
def test_the_example_runs_and_shows_itself(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in json.loads(done.stdout.strip().splitlines()[-1]) if cell]
    study, run, best, _, same, again = cells
    assert "none yet; run it" in html(study[-1])
    progress, results = run  # one output that was replaced in place, and what the cell returns
    assert progress["output_type"] == "display_data"
    assert '<progress value="1.0000"' in html(progress)
    assert "4 complete" in html(progress)
    assert html(results).count("<tr") == 5
    assert "12 epochs asked, 8 trained" in html(results)
    assert "<b>trial " in html(best[-1])
    assert same[-1]["data"]["text/plain"] == "True"
    assert "17 epochs asked, 2 trained" in html(again[-1])
    assert "<script" not in done.stdout


def html(output: dict[str, Any]) -> str:
    return "".join(output["data"]["text/html"])
