"""One disturbed run: a folder and a store of its own, drivers one after the other until the study is done."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.faults.driver import MARK, Driver, Ended, end, marked, name_of
from bench.faults.reference import Reference, Trial, compare, read_outcome

MEMORY = Path("/dev/shm")
PATIENCE = 90.0  # seconds after which a driver that should end is taken for stuck
DRIVERS = 6  # at most so many, one after the other, until a study must be done
_OTHERS = ("PostgreSQL.", "sem.", "plasma", "ray")  # what else programs keep in shared memory
_SHIFTED = Path(__file__).with_name("shifted")

DEFAULTS: dict[str, Any] = {
    "name": "study", "halving": True, "end": 0, "size": 4096, "nap": 0.03, "tame": False, "acts": [],
    "journal": None, "run": {}, "workers": 2,
}  # fmt: skip


class Finding(NamedTuple):
    """Something that must not be: what it is, in a word, and what was seen."""

    what: str
    seen: str


class StuckError(Exception):
    """The run is stuck: a driver does not end, or an expected event does not occur."""


class Run:
    """What a disturbance has in hand: drivers to start, moments to wait for, and a generator for all chances."""

    def __init__(self, folder: Path, random: Random, reference: Reference, **options: Any) -> None:
        self.folder = folder
        self.random = random
        self.reference = reference
        self.options = {**DEFAULTS, **options, "folder": str(folder)}
        self.mark = f"{os.getpid()}-{folder.name}"
        self.store = folder / "store"
        self.logs = folder / "logs"
        self.findings: list[Finding] = []
        self.refusals: list[str] = []
        self.drivers: list[Driver] = []
        self.notes: list[str] = []
        self.names = [str(self.options["name"])]  # of the studies, which are all the same
        self.free: dict[str, set[str]] = {}  # endings that trials with an act may have
        self.may_refuse = False  # to refuse for good is as well as to be done
        self.may_differ = False  # states were damaged: what looks at them may train them again
        self.most_again: int | None = None  # so many units may be trained again
        self.most_drivers: int | None = None  # so many drivers must be enough
        self.variables: dict[str, str] = {}  # of the environment of all drivers
        self.looks: list[Callable[[], None]] = []  # what else is to be looked at when all is done
        self.at_end: list[Callable[[], None]] = []
        self.logs.mkdir(parents=True)

    # --- drivers ----------------------------------------------------------------------------------------

    def begin(self) -> Driver:
        """Return the driver that runs, or start one."""
        return next((driver for driver in self.drivers if driver.alive), None) or self.start()

    def start(self, name: str = "", pipe: bool = False, clock: bool = False, **options: Any) -> Driver:
        """Start a driver of the study, or of another one."""
        name = name or self.names[0]
        environment = self.environment(clock, **{**options, "name": name})
        driver = Driver(len(self.drivers), name, environment, self.logs, pipe)
        self.drivers.append(driver)
        self.note(f"driver {driver.number} of {name} started as process {driver.pid} {options or ''}")
        return driver

    def environment(self, clock: bool = False, **options: Any) -> dict[str, str]:
        """Return the environment of a driver."""
        options = {**self.options, **options}
        given = {**os.environ, **self.variables, MARK: self.mark, "HOPTREE_FAULTS": json.dumps(options)}
        if clock:
            path = os.pathsep.join([str(_SHIFTED), *filter(None, [os.environ.get("PYTHONPATH")])])
            given |= {"HOPTREE_FAULTS_CLOCK": str(self.clock), "PYTHONPATH": path}
        return given

    @property
    def clock(self) -> Path:
        """The file that says by how much clocks are shifted."""
        return self.folder / "clock"

    def note(self, text: str) -> None:
        """Write down what was done, for whoever reads the log of a finding."""
        self.notes.append(f"{time.strftime('%H:%M:%S')} {self.units():3} units: {text}")
        (self.logs / "notes.txt").write_text("\n".join(self.notes) + "\n")

    # --- moments ----------------------------------------------------------------------------------------

    def units(self) -> int:
        """Return how many different units have begun."""
        return len(self._trained())

    def again(self) -> int:
        """Return how many units have begun that had begun before."""
        return sum(count - 1 for count in self._trained().values())

    def _trained(self) -> Counter[str]:
        file = self.folder / "units.log"
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(line.split()[1] for line in lines if line.count(" ") == 1)

    def until(self, units: int, driver: Driver | None = None) -> bool:
        """Wait until so many units have begun; False if the driver has ended before."""
        limit = time.monotonic() + PATIENCE
        driver = driver or self.begin()
        while self.units() < units:
            if not driver.alive:
                return False
            if time.monotonic() > limit:
                raise StuckError(f"driver {driver.number} has begun {self.units()} units, and goes no further")
            time.sleep(0.005)
        return True

    def moment(self, low: float = 0.0, high: float = 0.95, driver: Driver | None = None) -> bool:
        """Wait for a moment by chance between two shares of the work; False if the driver has ended before.

        Earlier work does not count: for a resumed driver the moment is later.
        """
        share, pause = self.random.random(), self.random.uniform(0.0, 0.06)
        first = max(low * self.reference.units, self.units(), 1)
        last = max(high * self.reference.units, first)
        reached = self.until(round(first + share * (last - first)), driver)
        time.sleep(pause)
        return reached

    # --- what is there ----------------------------------------------------------------------------------

    def states(self) -> list[Path]:
        """Return the files of states in the store."""
        return sorted(path for path in (self.store / "states").rglob("*") if path.suffix == ".safetensors")

    def slots(self) -> list[Path]:
        """Return the files of states on their way."""
        folders = [path for path in MEMORY.iterdir() if path.is_dir()]
        return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())

    def flip(self, path: Path, low: float = 0.0, high: float = 1.0) -> None:
        """Flip one bit of a file, between two shares of its length."""
        size = path.stat().st_size
        at = min(size - 1, int(size * self.random.uniform(low, high)))
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))
        self.note(f"flipped a bit of byte {at} of {size} in {path.name}")

    # --- the end ----------------------------------------------------------------------------------------

    def found(self, what: str, seen: str) -> None:
        """Write a finding down."""
        self.findings.append(Finding(what, seen))
        self.note(f"FOUND {what}: {seen}")

    def stop(self, driver: Driver) -> Ended:
        """Wait for the end of a driver, and check how it ended."""
        ended = driver.wait(PATIENCE)
        if ended is None:
            driver.kill()
            raise StuckError(f"driver {driver.number} has not ended after {PATIENCE:g} s")
        if not driver.judged:
            driver.judged = True
            self._judge(driver, ended)
        return ended

    def _judge(self, driver: Driver, ended: Ended) -> None:
        self.note(f"driver {driver.number} ended with {ended.code}")
        refusal = ended.refusal
        interrupted = ended.last_line.startswith("KeyboardInterrupt") and -signal.SIGINT in driver.forgiven
        if (printed := driver.log.stat().st_size) > 1_000_000:
            self.found("flood", f"driver {driver.number} printed {printed:,} characters")
            driver.log.write_text(ended.text)
        if ended.code == 0:
            if "Traceback (most recent call last)" in ended.text and not self.options["acts"]:
                self.found("traceback", f"driver {driver.number} ended well, and printed: {ended.last_line}")
        elif refusal:
            self.refusals.append(refusal)
            self.note(refusal)
        elif not (ended.code in driver.forgiven and (ended.code < 0 or interrupted)):
            self.found("unclear error", f"driver {driver.number} ended with {ended.code}: {ended.last_line}")

    def finish(self) -> dict[str, list[Trial]]:
        """Run again until all studies are done, and return their trials, but for what was refused for good."""
        for driver in list(self.drivers):
            self.stop(driver)
        return {name: trials for name in self.names if (trials := self._finish(name))}

    def _finish(self, name: str) -> list[Trial]:
        """Run one study until it is done; an empty list if that is refused for good."""
        while True:
            mine = [driver for driver in self.drivers if driver.study == name]
            outcome = read_outcome(self.folder, name)
            last = mine[-1].process.returncode if mine else -1
            interrupted = bool(mine) and -signal.SIGINT in mine[-1].forgiven
            if outcome is not None and last == 0 and not interrupted:
                differences = compare(outcome, self.reference, self.free)
                if not differences.open:  # until then a trial of a rung is complete and may continue or stop
                    for text in differences.silent:
                        self.found("difference", text)
                    for text in differences.failed:
                        self.found("trial", text)
                    return outcome
            if self.may_refuse and mine and self.refusals and last > 0:
                return []
            if len(mine) >= DRIVERS:
                said = self.refusals[-1] if self.refusals else "no refusal"
                self.found("no end", f"not done after {len(mine)} drivers; the last ended with {last}: {said}")
                return []
            (self.folder / f"{name}.outcome.json").unlink(missing_ok=True)
            self.stop(self.start(name))

    def finish_reference(self) -> list[Trial]:
        """Run the study once, undisturbed, and verify every trial."""
        ended = self.stop(self.start())
        done = self.command("verify", self.names[0], "--json")
        outcome = read_outcome(self.folder, self.names[0])
        if ended.code or done.returncode or outcome is None or self.findings:
            raise RuntimeError(f"the reference cannot be trained: {ended.text}\n{done.stdout}\n{done.stderr}")
        return outcome

    def check(self, outcomes: dict[str, list[Trial]], deeply: bool) -> None:
        """Look for what was left behind, and compare what commands say with what the program got."""
        orphans = marked(self.mark, patience=10.0)
        if orphans:
            self.found("orphan", f"{len(orphans)} processes live on: {sorted({name_of(pid) for pid in orphans})}")
            end(orphans)
        for look in self.looks:
            look()
        if len(outcomes) == len(self.names):
            left = [path.name for path in MEMORY.iterdir() if not path.name.startswith(_OTHERS)]
            if left:
                self.found("left in memory", f"{left} in {MEMORY}")
            parts = [str(path.relative_to(self.store)) for path in self.store.rglob("*.partial")]
            parts += [path.name for path in self.store.glob("slots-*")]
            if parts:
                self.found("left in the store", str(parts))
            self._count_again()
        if self.most_drivers is not None and len(self.drivers) > self.most_drivers:
            why = self.refusals[-1] if self.refusals else "no refusal"
            self.found("gave up", f"{len(self.drivers)} drivers, expected {self.most_drivers}: {why}")
        for name, outcome in outcomes.items():
            self._show(name, outcome)
            if deeply:
                self._verify(name, outcome)

    def _count_again(self) -> None:
        pids = {str(driver.pid) for driver in self.drivers}
        lines = (self.folder / "units.log").read_text().splitlines()
        alone = sum(line.split()[0] in pids for line in lines if line.strip())
        if alone and not self.may_differ:
            self.found("state missing", f"the state of a complete trial was gone: {alone} units trained to tell it")
        if self.most_again is not None and (again := self.again()) > self.most_again:
            self.found("lost units", f"{again} units were trained again; expected at most {self.most_again}")

    def _show(self, name: str, outcome: list[Trial]) -> None:
        done = self.command("show", name, "--json", name=name)
        if done.returncode:
            self.found("show", Ended(done.returncode, done.stderr).last_line)
            return
        shown = json.loads(done.stdout)["trials"]
        if len(shown) != len(outcome):
            self.found("difference", f"show tells of {len(shown)} trials, the program of {len(outcome)}")
        for trial, told in zip(outcome, shown, strict=False):
            epochs = trial["curve"]
            last = float.fromhex(epochs[max(epochs, key=int)]["loss"]) if epochs else math.nan
            loss = told["metrics"].get("loss")
            same = math.isnan(last) or loss == last
            if told["state"] != trial["ending"] or not same:
                self.found("difference", f"show: {told}, expected {trial['ending']} with {last}")

    def _verify(self, name: str, outcome: list[Trial]) -> None:
        complete = [number for number, trial in enumerate(outcome) if trial["ending"] == "complete"]
        trial = self.random.choice(complete)
        done = self.command("verify", name, str(trial), "--json", name=name, tame=True)
        if done.returncode:
            self.found("verify", f"trial {trial}: {done.stdout.strip()[-300:]} {done.stderr.strip()[-300:]}")

    def command(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line on the run's store."""
        where = ["--store", str(self.store), *(["--journal", j] if (j := self.options["journal"]) else [])]
        start = [sys.executable, "-c", "from hoptree.ui.cli import main; main()", *arguments, *where]
        environment = self.environment(**{**options, "end": 0})
        try:
            return subprocess.run(start, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise StuckError(f"{' '.join(arguments)} has not ended after {PATIENCE:g} s") from None

    def close(self) -> None:
        """End what is still there, and undo what was done to the machine."""
        for driver in self.drivers:
            if driver.alive:
                driver.kill()
        end(marked(self.mark))
        for undo in reversed(self.at_end):
            undo()
