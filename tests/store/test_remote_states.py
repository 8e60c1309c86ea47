"""States on a real object store: what is not in the contract that all state stores keep (tests/testing)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hoptree as ht
from hoptree.store import (
    FolderStates,
    StateDamagedError,
    Store,
    StoreError,
    StoreMissingError,
    StoreUnreachableError,
    open_states,
)
from tests.object_store import object_store, surroundings
from tests.system.plain import study


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with object_store() as address:
        yield address


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in surroundings(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://hoptree/{secrets.token_hex(4)}"


def test_a_truncated_transfer_is_detected(url: str) -> None:
    import s3fs

    states = open_states(url)
    states.put("0abc", {"w": np.zeros(300)}, {})
    files = s3fs.S3FileSystem()
    content = files.cat_file(states.address("0abc"))
    for damaged in (content[:-8], content[:100], content[:4], b"", content[:-1] + b"x"):
        files.pipe_file(states.address("0abc"), damaged)
        with pytest.raises(StateDamagedError, match=r"s3://hoptree/.*0abc.safetensors: this state is damaged"):
            states.get("0abc")


def test_a_store_remembers_where_its_states_are(tmp_path: Path, url: str) -> None:
    with Store(tmp_path, states=url) as store:
        store.states.put("0abc", {"w": np.zeros(3)}, {})
    with Store(tmp_path, create=False) as store:
        assert store.states.location == url
        assert store.states.keys() == ["0abc"]
    with pytest.raises(StoreError, match=r"states: s3://other/place; this store keeps its states in s3://hoptree"):
        Store(tmp_path, create=False, states="s3://other/place")
    with Store(tmp_path / "plain") as store:
        assert isinstance(store.states, FolderStates)
    with pytest.raises(StoreError, match=r"this store keeps its states in .*plain/states; leave states= out"):
        Store(tmp_path / "plain", states=url)


def test_an_absolute_folder_works_in_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("store", states="elsewhere"):
        pass
    monkeypatch.chdir("/")
    with Store(tmp_path / "store", create=False) as store:
        assert store.states.location == str(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ("s3://no-such-bucket/x", "s3://no-such-bucket/x: cannot access the store's states: .*check that the"),
        ("gopher://x/y", "states: gopher://x/y: .*expected a folder, or a URL of a file system"),
        ("memory://x", "states: memory://x exists in one process only"),
        ("gs://bucket/x", "gs://bucket/x: .*gcsfs.*it must be installed wherever workers run"),
    ],
)
def test_an_unusable_location_is_refused_and_no_store_is_created(
    tmp_path: Path, url: str, states: str, message: str
) -> None:
    with pytest.raises(ht.HoptreeError, match=message):
        study(tmp_path, states=states).run(workers=1)
    with pytest.raises(StoreMissingError):
        Store(tmp_path / "store", create=False)


def test_a_server_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    with object_store() as address:
        for name, value in surroundings(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)  # five would take ten seconds
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        states = open_states("s3://hoptree/gone")
        states.put("0abc", {"w": np.zeros(3)}, {})
    with pytest.raises(StoreUnreachableError, match=r"cannot access the store's states: .*its server runs"):
        states.get("0abc")


@pytest.mark.slow
def test_a_study_with_its_states_on_an_object_store(tmp_path: Path, url: str) -> None:
    rates, later = {"lr": ht.choice(0.1, 0.2)}, {"lr": ht.choice(0.2, 0.3)}
    here = study(tmp_path / "here", space=rates).run(workers=2)
    first = study(tmp_path, space=rates, states=url).run(workers=2)
    assert [t.fingerprint for t in first.trials] == [t.fingerprint for t in here.trials]
    assert not (tmp_path / "store" / "states").exists()
    longer = study(tmp_path, space=later, name="longer", epochs=3, states=url).run(workers=2)
    assert longer.savings.epochs_trained == 1 + 3  # 0.2 goes on from its second epoch
    assert all(found.holds for found in study(tmp_path, space=rates).verify())
