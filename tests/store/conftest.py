"""A real PostgreSQL server for the tests, reached by a Unix socket in a private folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from hoptree.store import Store

_INSTALL = ["-y", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", "postgresql"]


def _find_binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _binaries() -> Path:
    if _find_binaries() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["-q", "-o", "DPkg::Lock::Timeout=300", "update"], _INSTALL):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", *command], check=True, env=environment, stdout=subprocess.DEVNULL)
    found = _find_binaries()
    if found is None:
        pytest.fail("PostgreSQL is needed for these tests and is not installed: apt-get install postgresql")
    return found


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The folder of the socket of a server that lives as long as the session."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="hoptree-postgres-"))
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    if user:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
        done = subprocess.run(
            command,
            user=user,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert done.returncode == 0, done.stderr.decode()

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield str(folder)
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgresql(server: str) -> str:
    """The URL of a database that is empty when the test begins."""
    with psycopg.connect(host=server, user="postgres", autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return f"postgresql://postgres@/postgres?host={server}"


@pytest.fixture(params=["sqlite", "postgresql"])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the journal is: both databases keep the same promises."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/journal.sqlite"
    url: str = request.getfixturevalue("postgresql")
    return url


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(tmp_path: Path, journal_url: str, clock: Clock) -> Iterator[Callable[..., Store]]:
    """Opens the test's store as often as it is called: every driver has its own connections."""
    opened = []

    def opener(**options: object) -> Store:
        opened.append(Store(tmp_path / "store", journal_url=journal_url, clock=clock, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store()
