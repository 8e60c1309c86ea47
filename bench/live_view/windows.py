"""Windows in which a program runs: pyte cuts lines when it becomes narrower, as xterm does; tmux wraps them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, final

import pyte

ROOT = Path(__file__).parents[2]
_PATIENCE = 60.0  # seconds for a window to take a new size


def _environment() -> dict[str, str]:
    hidden = ("CI", "COLUMNS", "LINES", "NO_COLOR", "TMUX", "STY", "TERM_PROGRAM", "VTE_VERSION", "XTERM_VERSION")
    known = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**known, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}


class Window(ABC):
    """A program in a terminal of some size that can be seen and changed."""

    def __init__(self, folder: Path, display: str, trials: int) -> None:
        pipes = [folder / "commands", folder / "answers"]
        for path in pipes:
            os.mkfifo(path)
        self._program = [sys.executable, "-m", "bench.live_view.program", display, str(trials), *map(str, pipes)]
        self._pipes = pipes

    def _open(self) -> None:
        self._commands = self._pipes[0].open("w")
        self._answers = self._pipes[1].open()

    def tell(self, name: str, *arguments: Any) -> Any:
        """Give the program a command, and return its answer."""
        self._commands.write(f"{json.dumps([name, *arguments])}\n")
        self._commands.flush()
        return self.answer()

    def answer(self) -> Any:
        """Return the next answer of the program."""
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the program ended:\n" + "\n".join(self.lines()))
        return json.loads(line)

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size, and wait until the program can see it."""
        self._resize(columns, lines)
        until = time.monotonic() + _PATIENCE
        while self.tell("size") != [columns, lines]:
            if time.monotonic() > until:
                raise RuntimeError(f"the window did not become {columns} x {lines}")
            time.sleep(0.01)

    @abstractmethod
    def _resize(self, columns: int, lines: int) -> None: ...

    @abstractmethod
    def press_ctrl_c(self) -> None:
        """Interrupt the program as from a keyboard."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the lines of the window."""

    @abstractmethod
    def history(self) -> list[str]:
        """Return what has left the window at its top."""

    @property
    @abstractmethod
    def cursor_is_hidden(self) -> bool:
        """Whether the cursor cannot be seen."""

    @abstractmethod
    def close(self) -> None:
        """End the program."""


class _Screen(pyte.HistoryScreen):
    """A screen that answers questions of the program."""

    def __init__(self, master: int, columns: int, lines: int) -> None:
        self._master = master
        super().__init__(columns, lines, history=100_000, ratio=0.5)

    def write_process_input(self, data: str) -> None:
        os.write(self._master, data.encode())

    def take_size(self, columns: int, lines: int) -> None:
        """Cut lines at the right, and move lines at the top into the history until the cursor fits."""
        row = self.cursor.y
        above = max(0, row + 1 - lines)
        self.cursor.y = self.lines - 1
        for _ in range(above):
            self.index()
        for gone in range(lines, self.lines):
            self.buffer.pop(gone, None)
        self.lines = lines
        self.cursor.y = row - above
        self.resize(columns=columns)


class UnknownCuttingWindow(Window):
    """A pseudo terminal that pyte follows; no variable says that it cuts lines."""

    _variables: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, display: str, trials: int, columns: int, lines: int) -> None:
        super().__init__(folder, display, trials)
        self._master, self._slave = pty.openpty()
        self.screen = _Screen(self._master, columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self._resize(columns, lines)
        self.received = bytearray()
        self.seconds: float | None = None  # until the first picture
        began = time.perf_counter()
        self.process = subprocess.Popen(
            self._program,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**_environment(), **self._variables},
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        threading.Thread(target=self._read, args=(began,), daemon=True).start()
        self._open()

    def _read(self, began: float) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            self.received += data
            if self.seconds is None and b"simulated" in self.received:
                self.seconds = time.perf_counter() - began
            self.stream.feed(data)

    def _resize(self, columns: int, lines: int) -> None:
        self.screen.take_size(columns, lines)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press_ctrl_c(self) -> None:
        """Interrupt the program as from a keyboard."""
        os.write(self._master, b"\x03")

    def lines(self) -> list[str]:
        """Return the lines of the window."""
        return list(self.screen.display)

    def history(self) -> list[str]:
        """Return what has left the window at its top."""
        return ["".join(row[x].data for x in range(max(row, default=-1) + 1)) for row in self.screen.history.top]

    @property
    def cursor_is_hidden(self) -> bool:
        """Whether the cursor cannot be seen."""
        return bool(self.screen.cursor.hidden)

    def close(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()
        os.close(self._slave)


@final
class CuttingWindow(UnknownCuttingWindow):
    """One that can be recognised by the variable that xterm sets."""

    _variables: ClassVar[Mapping[str, str]] = {"XTERM_VERSION": "pyte"}


@final
class WrappingWindow(Window):
    """A window of a tmux server of its own."""

    def __init__(self, folder: Path, display: str, trials: int, columns: int, lines: int) -> None:
        super().__init__(folder, display, trials)
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        command = shlex.join(self._program)
        options = ["set -g status off", "set -g history-limit 100000", "set -g remain-on-exit on"]
        configuration = folder / "tmux.conf"
        configuration.write_text("\n".join(options))
        self._tmux[-1] = str(configuration)
        size = ["-x", str(columns), "-y", str(lines)]
        subprocess.run([*self._tmux, "new-session", "-d", *size, command], check=True, env=_environment(), cwd=ROOT)
        self._open()

    def _resize(self, columns: int, lines: int) -> None:
        self._ask("resize-window", "-x", str(columns), "-y", str(lines))

    def press_ctrl_c(self) -> None:
        """Interrupt the program as from a keyboard."""
        self._ask("send-keys", "C-c")

    def lines(self) -> list[str]:
        """Return the lines of the window."""
        return self._ask("capture-pane", "-p").splitlines()

    def history(self) -> list[str]:
        """Return what has left the window at its top."""
        size = int(self._ask("display-message", "-p", "#{history_size}"))
        return self._ask("capture-pane", "-p", "-S", "-").splitlines()[:size]

    @property
    def cursor_is_hidden(self) -> bool:
        """Whether the cursor cannot be seen."""
        return self._ask("display-message", "-p", "#{cursor_flag}").strip() == "0"

    def close(self) -> None:
        """End the program."""
        self._ask("kill-server")

    def _ask(self, *command: str) -> str:
        done = subprocess.run(
            [*self._tmux, *command], check=True, capture_output=True, text=True, env=_environment()
        )
        return done.stdout


@contextmanager
def window(kind: type[Any], display: str, trials: int, columns: int, lines: int) -> Iterator[Any]:
    """Open a window for a while."""
    with TemporaryDirectory() as folder:
        opened = kind(Path(folder), display, trials, columns, lines)
        try:
            yield opened
        finally:
            opened.close()
