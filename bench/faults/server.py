"""A real PostgreSQL server that can be killed and stopped, reached by a Unix socket in a private folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.faults.driver import children, is_alive

_PATIENCE = 20.0  # seconds


class Server:
    """Started once for a campaign; each run has a database of its own."""

    def __init__(self) -> None:
        self._binaries = _binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="hoptree-faults-postgres-"))
        self._user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
        self._databases = 0
        if self._user:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()

    def database(self) -> str:
        """Make a database, and return its URL."""
        self._databases += 1
        name = f"run{self._databases}"
        command = ["psql", "-h", str(self._folder), "-U", "postgres", "-q", "-c", f"CREATE DATABASE {name}"]
        subprocess.run([str(self._binaries / command[0]), *command[1:]], check=True)
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def start(self) -> None:
        """Start it, and wait until it can be reached."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
        limit = time.monotonic() + _PATIENCE
        while True:
            try:
                self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")
                return
            except RuntimeError:
                if time.monotonic() > limit:
                    raise

    def kill(self) -> None:
        """Kill all its processes with signal 9: what was in its own memory is lost."""
        processes = self._processes()
        self._send(signal.SIGKILL, processes)
        limit = time.monotonic() + _PATIENCE
        while any(map(is_alive, processes)) and time.monotonic() < limit:
            time.sleep(0.01)  # until then its memory counts as in use, and it does not start again

    def freeze(self) -> None:
        """Stop all its processes."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue them."""
        self._send(signal.SIGCONT)

    def shut_down(self) -> None:
        """Stop it in order; connections are cut."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def close(self) -> None:
        """End it, and remove all of it."""
        with suppress(RuntimeError):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _send(self, number: signal.Signals, processes: Sequence[int] = ()) -> None:
        for pid in processes or self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        first = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        return [first, *children(first)]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), "-D", str(self._folder / "data"), *arguments],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr}")


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    if not found and not on_path:
        sys.exit("PostgreSQL is needed for the kinds database-*, and is not installed: make services")
    return found[-1].parent if found else Path(str(on_path)).parent
