"""A study of many small trials, as a program: ``many_study.py FOLDER TRIALS [MORE]``. Its workers print.

With MORE, a study of that name runs with it, which shares the trials and trains them for longer.
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
        print(f"builds: 10 %\rbuilds number {values['number']}", flush=True)
        if values["number"] == values["last"] and Path(str(values["where"])).exists():
            Path(str(values["where"])).read_bytes()
        return super().build(values, seed)


def main(folder: Path, trials: int, more: str = "") -> None:
    space = {
        "lr": 0.1,
        "number": ht.choice(*range(trials)),
        "last": trials - 1,
        "where": str(folder / "gate"),
    }
    data = dataset(folder)
    studies = [
        ht.Study(
            name,
            trainer=Talkative(),
            data=data,
            space=space,
            search=ht.Grid(epochs=epochs),
            minimize="loss",
            store=folder / "store",
        )
        for name, epochs in (("many", 3), (more, 5))
        if name
    ]
    results = ht.run(studies, workers=2) if more else [studies[0].run(workers=2)]
    print("the best:", results[0].best)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
