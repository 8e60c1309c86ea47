"""States on a real object store."""

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
    StateFormatError,
    StateMissingError,
    StateStore,
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


@pytest.fixture(params=["folder", "object store"])
def states(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> StateStore:
    return open_states(tmp_path / "states" if request.param == "folder" else url)


def test_a_state_comes_back_as_it_was(states: StateStore) -> None:
    arrays = {"w": np.arange(6.0).reshape(2, 3), "n": np.array(3), "none": np.empty((0, 4), "int8")}
    size = states.put("0abc", arrays, {"epoch": 2, "lr": 0.1})
    found, meta = open_states(states.location).get("0abc")
    assert meta == {"epoch": 2, "lr": 0.1}
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (array.dtype, array.shape) for name, array in arrays.items()
    }
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert not any(array.flags.writeable for array in found.values())
    assert states.sizes() == {"0abc": size}
    assert states.size("0abc") == size


def test_states_are_replaced_listed_and_deleted_whoever_wrote_them(states: StateStore) -> None:
    other = open_states(states.location)
    assert states.keys() == []
    assert "0abc" not in states
    other.put("0abc", {"w": np.zeros(3)}, {})
    other.put("1abc", {"w": np.zeros(30)}, {})
    assert states.keys() == ["0abc", "1abc"]
    assert "0abc" in states
    other.put("0abc", {"w": np.ones(3)}, {})
    assert states.get("0abc")[0]["w"].tolist() == [1, 1, 1]
    size = states.size("1abc")
    assert other.delete("1abc") == size
    assert "1abc" not in states
    assert (states.delete("1abc"), states.size("1abc")) == (0, 0)
    with pytest.raises(StateMissingError, match="1abc: no such state in"):
        states.get("1abc")
    with pytest.raises(StateFormatError, match="key: '../up'"):
        states.put("../up", {}, {})
    assert states.partial() == {}
    assert states.clean() == 0


def test_a_sign_is_seen_by_others_and_is_no_state(states: StateStore) -> None:
    other = open_states(states.location)
    assert not other.signed("driver-1")
    states.sign("driver-1")
    assert other.signed("driver-1")
    assert other.keys() == []
    states.sign("driver-2-a")
    states.sign("driver-2-b")
    assert other.signs("driver-2-") == ["driver-2-a", "driver-2-b"]
    assert other.signs("driver-3-") == []
    other.unsign("driver-1")
    other.unsign("driver-1")
    assert not states.signed("driver-1")


def test_what_was_cut_off_on_its_way_is_found_out(url: str) -> None:
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


def test_a_folder_elsewhere_holds_in_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("store", states="elsewhere"):
        pass
    monkeypatch.chdir("/")
    with Store(tmp_path / "store", create=False) as store:
        assert store.states.location == str(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ("s3://no-such-bucket/x", "s3://no-such-bucket/x: the store's states cannot be reached: .*check that the"),
        ("gopher://x/y", "states: gopher://x/y: .*expected a folder, or a URL of a file system that fsspec knows"),
        ("memory://x", "states: memory://x exists in one process only"),
        ("gs://bucket/x", "gs://bucket/x: .*gcsfs.*it must be installed wherever workers run"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_and_no_store_is_made(
    tmp_path: Path, url: str, states: str, message: str
) -> None:
    with pytest.raises(ht.HoptreeError, match=message):
        study(tmp_path, states=states).run(workers=1)
    with pytest.raises(StoreMissingError):
        Store(tmp_path / "store", create=False)


def test_a_server_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    with object_store() as address:
        for name, value in surroundings(address).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)  # five would take ten seconds
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        states = open_states("s3://hoptree/gone")
        states.put("0abc", {"w": np.zeros(3)}, {})
    with pytest.raises(StoreUnreachableError, match=r"cannot be reached: .*its server runs"):
        states.get("0abc")


def test_a_study_with_its_states_on_an_object_store(tmp_path: Path, url: str) -> None:
    rates, later = {"lr": ht.choice(0.1, 0.2)}, {"lr": ht.choice(0.2, 0.3)}
    here = study(tmp_path / "here", space=rates).run(workers=2)
    first = study(tmp_path, space=rates, states=url).run(workers=2)
    assert [t.fingerprint for t in first.trials] == [t.fingerprint for t in here.trials]
    assert not (tmp_path / "store" / "states").exists()
    longer = study(tmp_path, space=later, name="longer", epochs=3, states=url).run(workers=2)
    assert longer.savings.epochs_trained == 1 + 3  # 0.2 goes on from its second epoch
    assert all(found.holds for found in study(tmp_path, space=rates).verify())
