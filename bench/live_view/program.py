"""A simulated run on a terminal that continues on command: `program.py DISPLAY TRIALS COMMANDS ANSWERS`.

Commands are lines of JSON in one named pipe, answers are lines of JSON in another. An answer comes when the
terminal has processed everything that was written to it before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, final

from bench.live_view.displays import DISPLAYS
from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.estimate import Estimator
from hoptree.progress import Display, RunStats, RunViews
from hoptree.progress.drawing import draw, draw_end
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Goal
from hoptree.search.tuner import Tuner
from hoptree.simulator import Cluster, Workload
from hoptree.store.logs import Logs

STUDY = "simulated"
WORKERS = 8


class EndedByCommand(Exception):  # noqa: N818 (no error)
    """A command ends the run."""


@final
class Remote:
    """Carries out commands between two steps of the run."""

    def __init__(self, display: Display, views: RunViews, commands: IO[str], answers: IO[str]) -> None:
        self._display = display
        self._views = views
        self._commands = commands
        self._answers = answers
        self._tty = os.open("/dev/tty", os.O_RDWR)
        tty.setcbreak(self._tty, termios.TCSANOW)

    def obey(self) -> None:
        """Carry out commands until the run may continue."""
        while True:
            name, *arguments = json.loads(self._commands.readline())
            answer: Any = None
            match name:
                case "look":
                    self._display.update(self._views)
                    answer = self.picture()
                case "print":
                    print(*arguments, flush=True)
                case "print from a child":
                    subprocess.run(["printf", "%s\n", *arguments], check=True)
                case "size":
                    answer = list(os.get_terminal_size(self._tty))
                case "time":
                    answer = self._seconds(arguments[0])
                case "go on":
                    self.answer(None)
                    return
                case "end":
                    raise EndedByCommand
                case _:
                    raise ValueError(f"{name!r} is no command")
            self.answer(answer)

    def picture(self, over: bool = False) -> list[str]:
        """Return what ought to be on the screen."""
        width, height = os.get_terminal_size(self._tty)
        width, height = max(1, width - 1), max(1, height - 1)
        scene = self._views.view(over)
        return [line.plain for line in (draw_end(scene, width) if over else draw(scene, width, height))]

    def answer(self, answer: Any) -> None:
        """Answer when the terminal has reported the cursor position: it has processed everything before that."""
        os.write(self._tty, b"\x1b[6n")
        reply = b""
        while not reply.endswith(b"R"):
            reply += os.read(self._tty, 1)
        self._answers.write(f"{json.dumps(answer)}\n")
        self._answers.flush()

    def _seconds(self, times: int) -> tuple[float, float]:
        """Return the processor's seconds for a picture, and for making its lines alone."""
        began = time.thread_time()
        for _ in range(times):
            self._display.update(self._views)
        shown = time.thread_time()
        for _ in range(times):
            self.picture()
        return (shown - began) / times, (time.thread_time() - shown) / times


@final
class SimulatedRun:
    """A run whose clock is the display's clock."""

    def __init__(self, trials: int) -> None:
        self._now = 0.0
        self._workload = Workload(configs=trials, epochs=20, partitions=2)
        self._cluster = Cluster(workers=WORKERS)
        self._landscape = self._workload.landscape()
        self._engine = Engine(Settings(self._workload.partitions), self._landscape.seconds)
        self._estimator = Estimator()
        self._stats = RunStats(self._engine, {STUDY: Goal("loss", maximize=False)}, lambda: self._now)
        self.views = RunViews(self._stats, WORKERS, self._estimator)

    def drive(self, between: Callable[[], None]) -> None:
        """Run to the end, with a call after every step."""
        parts = self._workload.partitions
        backend = SimulatedBackend(self._cluster, parts, self._landscape, state_bytes=0.0)
        tuner = Tuner(Fixed(self._workload.config_list(), self._workload.epochs, every=1), root="r")

        def watch(step: Step) -> None:
            self._now = step.now
            self._stats.see(step)
            self._estimator.watch(step)
            if not step.more:
                between()

        drive(self._engine, backend, tuner, [watch])


def main(name: str, trials: int, commands: Path, answers: Path) -> None:
    run, display = SimulatedRun(trials), DISPLAYS[name]()
    with commands.open() as read, answers.open("w") as write:
        remote = Remote(display, run.views, read, write)
        display.begin(run.views, Logs(Path("logs")))
        try:
            run.drive(remote.obey)
        except (EndedByCommand, KeyboardInterrupt):
            pass
        finally:
            display.end(run.views)
        remote.answer(remote.picture(over=True))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
