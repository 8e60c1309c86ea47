"""A real PostgreSQL server, reached by a Unix socket in a private folder; it can be killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import final

import psutil
import psycopg

from tests.services import POSTGRESQL, require


@final
class Server:
    """A server with a new database; ``options`` are settings of postgresql.conf."""

    def __init__(self, **options: str) -> None:
        self._binaries = require(POSTGRESQL)
        self._user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
        self.folder = Path(tempfile.mkdtemp(prefix="hoptree-postgres-"))
        if self._user:
            shutil.chown(self.folder, self._user)
        settings = {
            "listen_addresses": "''",
            "unix_socket_directories": f"'{self.folder}'",
            "fsync": "off",
            **options,
        }
        self._options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        try:
            self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self.start()
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-t", "120", "-l", str(self.folder / "log"), "-o", self._options, "start")

    def suspend_wal_writer(self) -> None:
        """Let no process write in the background what commits have left: a busy machine gives it time."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        titles = {child: " ".join(child.cmdline()) for child in psutil.Process(pid).children()}
        writers = [child for child, title in titles.items() if "walwriter" in title or "checkpointer" in title]
        assert len(writers) == 2, titles
        for writer in writers:
            writer.suspend()

    def kill(self) -> None:
        """End all its processes by signal 9: what they had not written is lost."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        postmaster = psutil.Process(pid)
        postmaster.suspend()  # it starts no more
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family[1:]:
            process.suspend()  # so that none of them notices the death of another, and writes
        for process in family:
            process.kill()
        psutil.wait_procs(family)

    def empty(self) -> str:
        """Remove all there is, and return the URL."""
        with psycopg.connect(host=str(self.folder), user="postgres", autocommit=True) as connection:
            for (schema,) in connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'hoptree%'"):
                connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url

    def close(self) -> None:
        try:
            if (self.folder / "data" / "postmaster.pid").exists():
                self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "-D", str(self.folder / "data"), *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert done.returncode == 0, done.stderr.decode()
