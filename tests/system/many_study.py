"""A study of many small trials, as a program: ``many_study.py FOLDER TRIALS``. Its workers print as they build.

Where there is a named pipe `gate` in the folder, the last trial waits until it is closed.
"""

import sys
from pathlib import Path
from typing import Any

import hoptree as ht
from tests.system.plain import Plain, dataset


class Talkative(Plain):
    """Prints in the worker, which would tear a picture in a terminal."""

    def build(self, values: Any, seed: int) -> Any:
        print(f"builds number {values['number']}", flush=True)
        if values["number"] == values["last"] and Path(str(values["where"])).exists():
            Path(str(values["where"])).read_bytes()
        return super().build(values, seed)


def main(folder: Path, trials: int) -> None:
    space = {
        "lr": 0.1,
        "number": ht.choice(*range(trials)),
        "last": trials - 1,
        "where": str(folder / "gate"),
    }
    study = ht.Study(
        "many",
        trainer=Talkative(),
        data=dataset(folder),
        space=space,
        search=ht.Grid(epochs=3),
        minimize="loss",
        store=folder / "store",
    )
    print("the best:", study.run(workers=2).best)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
