"""Counts the faults of each display on a screen, and measures flicker, time and bytes: `python -m bench.live_view`.

A scenario is a simulated run in a window. After every picture, the window's content is compared with the lines that
the display had to draw and with the lines that were printed. A picture is faulty if the window does not end in
exactly those lines, or if parts of earlier pictures stand above them. The figures go to bench/RESULTS.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyte

from bench.live_view.displays import DISPLAYS, LiveDisplay
from bench.live_view.program import SimulatedRun
from bench.live_view.windows import CuttingWindow, UnknownCuttingWindow, Window, WrappingWindow, window
from bench.results import record, table
from bench.start import measure
from hoptree.store.logs import Logs

TRIALS = 200  # their pictures are as high as the window
FEW = 8
PICTURES = 24  # of every scenario
TIMES = 10
LONG = 170  # letters: more than two lines of most windows
PROGRAM, CHILD = "print", "print from a child"
WINDOWS: dict[str, type[Window]] = {
    "wraps": WrappingWindow,
    "cuts": CuttingWindow,
    "cuts, unknown": UnknownCuttingWindow,
}


class Scenario(NamedTuple):
    """Windows of some sizes one after the other, and who prints how many lines before every picture."""

    name: str
    sizes: Sequence[tuple[int, int]]
    printer: str = ""
    lines: int = 1
    interrupt: bool = False
    trials: int = TRIALS


def sizes_at_random(lowest: int) -> list[tuple[int, int]]:
    generator = random.Random(0)
    return [(generator.randint(10, 160), generator.randint(lowest, 50)) for _ in range(12)]


NARROWER = [(120, 50), (100, 50), (80, 50), (60, 50), (40, 50), (20, 50)]
LOWER = [(80, 40), (80, 30), (80, 20), (80, 12), (80, 8), (80, 5)]
SCENARIOS = [
    Scenario("80 x 24", [(80, 24)]),
    Scenario("80 x 24, the program prints", [(80, 24)], PROGRAM),
    Scenario("80 x 24, a child process prints", [(80, 24)], CHILD),
    Scenario("80 x 24, a child process prints 60 lines at a time", [(80, 24)], CHILD, lines=60),
    Scenario("200 x 50, a child process prints", [(200, 50)], CHILD),
    Scenario("12 x 24 (narrow), the program prints", [(12, 24)], PROGRAM),
    Scenario("80 x 4 (low), the program prints", [(80, 4)], PROGRAM),
    Scenario("12 x 4, the program prints", [(12, 4)], PROGRAM),
    Scenario("20 x 1, the program prints", [(20, 1)], PROGRAM),
    Scenario("few trials, narrower 5 times", NARROWER, trials=FEW),
    Scenario("few trials, narrower 5 times, the program prints", NARROWER, PROGRAM, trials=FEW),
    Scenario("few trials, 12 sizes at random, the program prints", sizes_at_random(30), PROGRAM, trials=FEW),
    Scenario("many trials, narrower 5 times", NARROWER),
    Scenario("many trials, wider 5 times", NARROWER[::-1]),
    Scenario("many trials, lower 5 times", LOWER),
    Scenario("many trials, higher 5 times", LOWER[::-1]),
    Scenario("many trials, 12 sizes at random, the program prints", sizes_at_random(3), PROGRAM),
    Scenario("80 x 24, Ctrl-C while a child process prints", [(80, 24)], CHILD, interrupt=True),
]


class Faults(NamedTuple):
    """Faulty pictures, lines of old ones, printed lines lost or doubled, and whether the cursor stays hidden."""

    pictures: int
    left: int
    printed: int
    cursor: bool

    def __str__(self) -> str:
        found = [
            f"{self.pictures} of {PICTURES + 1} pictures" if self.pictures else "",
            f"{self.left} old lines stay" if self.left else "",
            f"{self.printed} printed lines lost or doubled" if self.printed else "",
            "cursor hidden" if self.cursor else "",
        ]
        return ", ".join(filter(None, found)) or "none"


def printed(number: int) -> str:
    """Return a line without a space in it, every third too long for a window; every fourth overwrites a bar."""
    bar = "10%\r" if number % 4 == 3 else ""
    return f"{bar}<{number}:{'a' * (LONG if number % 3 == 2 else 5)}>"


def others(lines: list[str]) -> tuple[int, Counter[int]]:
    """Return how many lines are not printed ones, and how often each printed line is there."""
    text = "\n".join(line.rstrip() for line in lines)
    whole = re.compile(r"<\n?((?:\d\n?)+):(?:\n?a)*(?:\n?>)?")  # a narrower window may have cut its end
    found = Counter(int(number.replace("\n", "")) for number in whole.findall(text))
    rest = whole.sub("", text)
    return sum(bool(line.strip()) for line in rest.split("\n")), found


def look_at(lines: list[str], expected: list[str]) -> tuple[bool, list[str]]:
    """Return whether the window ends with the drawn lines, and the lines above them."""
    shown = [line.rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    size = len(expected)
    return shown[-size:] == [line.rstrip() for line in expected], shown[:-size]


def play(scenario: Scenario, kind: type[Window], display: str) -> Faults:
    pictures, number = 0, 0
    with window(kind, display, scenario.trials, *scenario.sizes[0]) as opened:
        for i in range(PICTURES):
            if i and i % (PICTURES // len(scenario.sizes)) == 0:
                opened.resize(*scenario.sizes[i * len(scenario.sizes) // PICTURES])
            if scenario.printer:
                for _ in range(scenario.lines):
                    opened.tell(scenario.printer, printed(number))
                    number += 1
            opened.tell("go on")
            expected = opened.tell("look")
            good, rest = look_at(opened.lines(), expected)
            pictures += not good or others([*opened.history(), *rest])[0] > others(opened.history())[0]
        if scenario.interrupt:
            opened.press_ctrl_c()
            last = opened.answer()
        else:
            last = opened.tell("end")
        history = opened.history()
        good, rest = look_at([*history, *opened.lines()], last)
        left, found = others(rest)
        wrong = sum(found[i] != 1 for i in range(number))
        return Faults(pictures + (not good), left, wrong, opened.cursor_is_hidden)


def faults() -> str:
    rows = []
    for scenario in SCENARIOS:
        for name, kind in WINDOWS.items():
            if name == "wraps" or len(scenario.sizes) > 1:
                title = f"{scenario.name} ({name})" if len(scenario.sizes) > 1 else scenario.name
                rows.append([title, *(play(scenario, kind, display) for display in DISPLAYS)])
                print(*rows[-1], sep=" | ")
    return table(["scenario", *DISPLAYS], rows)


def most_blank(opened: CuttingWindow) -> tuple[int, int, int]:
    """Return how many lines of a picture are blank at most while the next is drawn, of how many, and its bytes."""
    before = opened.tell("look")
    mark = len(opened.received)
    opened.tell("look")
    sent = bytes(opened.received[mark:])
    screen = pyte.Screen(opened.screen.columns, opened.screen.lines)
    stream = pyte.ByteStream(screen)
    stream.feed(bytes(opened.received[:mark]))
    blank = 0
    for i in range(len(sent)):
        stream.feed(sent[i : i + 1])
        if sent[i : i + 1] in b"JK":  # what erases ends in one of these
            blank = max(blank, sum(not line.strip() for line in screen.display[: len(before)]))
    return blank, len(before), len(sent)


def costs() -> str:
    rows = []
    for columns, lines in ((80, 24), (200, 50)):
        for display in DISPLAYS:
            with window(CuttingWindow, display, TRIALS, columns, lines) as opened:
                for _ in range(100):
                    opened.tell("go on")
                blank, drawn, sent = most_blank(opened)
                found = [opened.tell("time", 20) for _ in range(5)]
                opened.tell("end")
            shown, made = (statistics.median(times) * 1000 for times in zip(*found, strict=True))
            row = [f"{columns} x {lines}", display, f"{shown:.2f}", f"{shown - made:.2f}", sent]
            rows.append([*row, f"{blank} of {drawn}"])
    return table(["window", "display", "ms", "of that: showing", "bytes", "blank lines at most"], rows)


def starts() -> str:
    found: dict[str, list[tuple[float, float]]] = {display: [] for display in DISPLAYS}
    for _ in range(TIMES):
        for display in DISPLAYS:
            with window(CuttingWindow, display, TRIALS, 80, 24) as opened:
                opened.tell("end")
                _, _, used = os.wait4(opened.process.pid, 0)
                opened.process.returncode = 0  # it has been waited for
                found[display].append((opened.seconds, used.ru_utime + used.ru_stime))
    rows = []
    for name, times in found.items():
        wall, processor = (statistics.median(column) for column in zip(*times, strict=True))
        rows.append([f"first picture: {name}", f"{wall:.3f}", f"{processor:.3f}"])
    for program in ("hoptree", "hoptree.progress.terminal", "hoptree.progress.terminal, rich.live"):
        start = measure(["-c", f"import {program}"])
        rows.append([f"import {program}", f"{start.wall:.3f}", f"{start.processor:.3f}"])
    return table(["what", "seconds", "processor seconds"], rows)


def lines_in_a_pipe() -> int:
    """Return how many lines `Live` writes into a pipe before the run has ended."""
    run, out = SimulatedRun(20), io.StringIO()
    with contextlib.redirect_stderr(out):
        display = LiveDisplay()
        display.begin(run.views, Logs(Path("logs")))
        run.drive(lambda: display.update(run.views))
        lines = len(out.getvalue().splitlines())
        display.end(run.views)
    return lines


def report_faults() -> None:
    text = f"""## The live view: faults of ours and of rich's `Live`

*Live* is used as rich documents it. *Live + our pipe* leads all output through our pipe and writes each picture at
once, between the marks of a synchronized update.

Faults in {PICTURES} pictures and in the last lines of a run. Old lines: lines of earlier pictures that stay when
it has ended, nearly all in the scrollback. When a window becomes narrower, tmux *wraps* the lines it shows, and
pyte *cuts* them, as xterm does; *unknown*: no variable says that the terminal cuts lines.

{faults()}
"""
    record("live-view-faults", "python -m bench.live_view faults", text)


def report_costs() -> None:
    text = f"""## The live view: costs of ours and of rich's `Live`

Processor time per picture, {TRIALS} trials, medians of 5 times 20 pictures. Blank lines: how many lines of a
picture are blank at most while the next one is drawn over it. Terminals without synchronized updates show that as
flicker, and with *Live* all terminals do, since it does not send their marks.

{costs()}

From the start of a process to its first picture, and to the end of an import; the processor seconds are those of
the whole process. Medians of {TIMES} processes. Seconds grow with the machine's load, which was
{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.

{starts()}

Lines that `Live` writes into a pipe before the run has ended: {lines_in_a_pipe()}.
"""
    record("live-view-costs", "python -m bench.live_view costs", text)


REPORTS = {"faults": report_faults, "costs": report_costs}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or REPORTS:
        REPORTS[chosen]()
