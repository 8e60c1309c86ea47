"""Disks and shared memory without room."""

from __future__ import annotations

import errno
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from bench.faults.kinds import Kind
from bench.faults.run import MEMORY, Run
from bench.faults.stops import IN_FLIGHT

SIZE = 16_384  # numbers of a state: 128 KB
DISK = "8m"
LITTLE = "300k"  # room for two states


def fill_disk(run: Run) -> None:
    """Fill the disk for the rest of a driver's time; there is room again for the next."""
    _small_disk(run)
    driver = run.begin()
    if run.moment():
        filler = _fill(run, run.store)
        run.stop(driver)
        filler.unlink()


def fill_disk_for_short(run: Run) -> None:
    """Fill the disk, and make room again while the driver still runs."""
    _small_disk(run)
    run.begin()
    if run.moment():
        filler = _fill(run, run.store)
        time.sleep(run.random.uniform(0.0, 0.5))
        filler.unlink()
        run.note("the disk has room again")


def fill_disk_and_interrupt(run: Run) -> None:
    """Interrupt on a full disk: what could not be saved stays in memory, so no more is lost than by a kill."""
    _small_disk(run)
    driver = run.begin()
    if run.moment():
        filler = _fill(run, run.store)
        run.note("interrupted")
        driver.send(signal.SIGINT, group=True)
        run.stop(driver)
        filler.unlink()
    run.most_again = IN_FLIGHT


def little_memory(run: Run) -> None:
    """Leave room for two states in shared memory, from the start."""
    _mount(run, MEMORY, LITTLE)
    run.most_again = 0


def fill_memory(run: Run) -> None:
    """Fill shared memory at some moment."""
    _mount(run, MEMORY, DISK)
    run.begin()
    if run.moment():
        filler = _fill(run, MEMORY)
        run.at_end.append(lambda: filler.unlink(missing_ok=True))
        driver = run.drivers[-1]
        run.stop(driver)
        filler.unlink()


def fill_both(run: Run) -> None:
    """Fill both."""
    _small_disk(run)
    _mount(run, MEMORY, LITTLE)
    driver = run.begin()
    if run.moment():
        fillers = [_fill(run, MEMORY), _fill(run, run.store)]
        run.stop(driver)
        for filler in fillers:
            filler.unlink()


def _small_disk(run: Run) -> None:
    run.store.mkdir(exist_ok=True)
    _mount(run, run.store, DISK)


def _mount(run: Run, folder: Path, size: str) -> None:
    """Put a small file system over a folder, until the run's end; only this program's namespace sees it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    run.at_end.append(lambda: _unmount(folder))


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(run: Run, folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    run.note(f"{folder} is full")
    with suppress(OSError):
        filler.chmod(0o600)
    return filler


_LARGE = {"size": SIZE}

KINDS = {
    "disk-full": Kind(fill_disk, _LARGE),
    "disk-full-for-short": Kind(fill_disk_for_short, _LARGE),
    "disk-full-interrupted": Kind(fill_disk_and_interrupt, _LARGE),
    "little-memory": Kind(little_memory, _LARGE),
    "memory-full": Kind(fill_memory, _LARGE),
    "both-full": Kind(fill_both, _LARGE),
}
