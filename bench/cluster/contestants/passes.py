"""A study of cheap passes on a cluster: ``python -m bench.cluster.contestants.passes DATA OUT ADDRESS SETTINGS``.

SETTINGS is JSON: configs, epochs, bytes of a state, seconds that a unit takes at least.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import msgspec

import hoptree as ht
from bench.cluster.trainers import Pass
from bench.speed.workspace import STORE, STUDY


@dataclasses.dataclass(frozen=True)
class Passes:
    """How much is trained; the state has so many bytes."""

    configs: int
    epochs: int
    state: int
    nap: float = 0.0  # seconds that a unit takes at least

    def as_json(self) -> str:
        """Return it as the program takes it."""
        return json.dumps(dataclasses.asdict(self))


def main(data: Path, out: Path, address: str, passes: Passes) -> None:
    study = ht.Study(
        STUDY,
        trainer=Pass(passes.state, passes.nap),
        data=ht.Dataset.open(data),
        space={"number": ht.choice(*range(passes.configs)), "batch_size": 256},
        search=ht.Grid(epochs=passes.epochs),
        minimize="loss",
        share=False,
        store=out / STORE,
    )
    results = study.run(backend=ht.Ray(address=address, copy=True))
    assert [trial.state for trial in results.trials] == ["complete"] * passes.configs
    figures = {"savings": results.savings, "traffic": results.traffic}
    (out / "result.json").write_bytes(msgspec.json.encode(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Passes(**json.loads(sys.argv[4])))
