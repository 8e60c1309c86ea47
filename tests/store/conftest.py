"""What tests of the store begin with: both databases, a clock that stands still, and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hoptree.store import Store, StoreTiming
from tests.store.postgres import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that lives as long as the session."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def postgresql(server: Server) -> str:
    """The URL of a database that is empty when the test begins."""
    return server.empty()


@pytest.fixture(scope="module")
def killed_server() -> Iterator[Server]:
    """A server that tests kill; it leaves the writing of what was not durable for as long as it can."""
    server = Server(wal_writer_delay="10s", autovacuum="off", bgwriter_lru_maxpages="0", checkpoint_timeout="1h")
    yield server
    server.close()


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
        opened.append(
            Store(tmp_path / "store", journal_url=journal_url, timing=StoreTiming(clock=clock), **options)
        )
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store()
