"""What no cluster can do is refused before anything is trained, and says how to mend it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.backends.ray_auth import warn_if_open
from hoptree.backends.ray_cluster import set_authentication
from hoptree.store import Store
from tests.clusters.conftest import Nodes
from tests.object_store import object_store, surroundings
from tests.system.plain import dataset, study
from tests.system.sabotage import Sabotage


def test_no_cluster_at_the_address(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ht.RefusedError, match=f"no Ray cluster at {address}.*ray start --head"):
        study(tmp_path).run(backend=ht.Ray(address=address))
    with pytest.raises(ht.RefusedError, match="'there'; expected HOST:PORT"):
        study(tmp_path).run(backend=ht.Ray(address="there"))
    assert nothing_was_trained(tmp_path)


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        pytest.param(
            {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": None}, "this process has none", marks=pytest.mark.slow
        ),
        pytest.param(
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": None}, "this process has none", marks=pytest.mark.slow
        ),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, "this process has another one"),
        pytest.param(
            {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "0" * 64},
            "RAY_AUTH_MODE is not token in this process",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cluster_that_requires_a_token(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, ours: dict[str, str | None], why: str
) -> None:
    """Ray would try for half a minute, complain every second, and then say that there is no cluster."""
    before = {name: os.environ.get(name) for name in ours}
    forgotten = dict.fromkeys(ours, "0")  # a token that a file holds is read again only after a change
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("HOME", str(tmp_path))  # there may be a token in the folder of who runs this
            set_authentication(forgotten)
            set_authentication(ours)
            with pytest.raises(ht.RefusedError, match=f"requires a token, and {why}; set RAY_AUTH_MODE=token"):
                study(tmp_path).run(backend=nodes.where())
            set_authentication(forgotten)
    finally:
        set_authentication(before)
    assert nothing_was_trained(tmp_path)


@pytest.mark.slow
def test_the_address_that_ray_would_find_is_asked_too(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    try:
        set_authentication({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64})
        with pytest.raises(ht.RefusedError, match="this process has another one"):
            study(tmp_path).run(backend=ht.Ray(address="auto"))
    finally:
        set_authentication(before)
    assert nothing_was_trained(tmp_path)


def test_a_cluster_without_authentication_causes_a_warning(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """Also to a driver that shows a token: a cluster without authentication takes no notice of it."""
    warn_if_open(nodes.address)
    assert not caplog.records
    with answers_anyone() as address:
        warn_if_open(address)
    assert (
        f"anyone who can reach the Ray cluster at {address} can use it; start it with RAY_AUTH_MODE=token"
        in caplog.text
    )


@contextmanager
def answers_anyone() -> Iterator[str]:
    """Answer like the head of a cluster without authentication, for we start none that is open."""
    import grpc
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    class Head(gcs_service_pb2_grpc.NodeInfoGcsServiceServicer):
        def GetClusterId(self, request: Any, context: Any) -> Any:
            return gcs_service_pb2.GetClusterIdReply()  # type: ignore[attr-defined]

    server = grpc.server(ThreadPoolExecutor(1))
    gcs_service_pb2_grpc.add_NodeInfoGcsServiceServicer_to_server(Head(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"workers": 3}, "workers: 3 asked for, each with 1 CPU, but the cluster has room for 2"),
    (
        {"resources_per_worker": {"GPU": 1}},
        "1 asked for, each with 1 GPU, but the cluster has room for 0.*has 1 GPU",
    ),
    (
        {"resources_per_worker": {"CPU": 2}},
        "each with 2 CPU, but the cluster has room for 0.*; no node has 2 CPU; add",
    ),
    (
        {"resources_per_worker": {"CPU": 1, "x": 1}},
        "no node has 1 x; add such nodes, or reduce resources_per_worker",
    ),
    ({"replicas": 3}, "replicas: 3 on 2 nodes with workers"),
    ({"resources_per_worker": {"memory": 1e18}}, r"1.0 EB memory, but .* room for 0: .*\(1 CPU, .*B memory\)"),
    (
        {"runtime_env": {"env_vars": {"A": 1}}},
        "runtime_env: .*Dict.str, str.*; expected a value that ray.init accepts",
    ),
]


@pytest.mark.slow
def test_resources_that_the_cluster_can_never_provide(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(2)
    for settings, message in IMPOSSIBLE:
        with pytest.raises(ht.RefusedError, match=message):
            study(tmp_path).run(backend=nodes.where(**settings))
    assert nothing_was_trained(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers: 0; expected at least 1"),
        ({"workers": True}, "workers: True; expected a whole number"),
        ({"workers": 1.5}, "workers: 1.5; expected a whole number"),
        ({"workers": "2"}, "workers: '2'; expected a whole number"),
        ({"replicas": 0}, "replicas: 0; expected at least 1"),
        ({"replicas": True}, "replicas: True; expected a whole number"),
        ({"workers": 1, "replicas": 2}, "replicas: 2, but workers: 1; .*: ask for as many workers"),
        ({"workers": 2, "replicas": 3, "autoscale": True}, "replicas: 3, but workers: 2"),
        ({"resources_per_worker": {"CPU": 0}}, "CPU is 0; expected a number above 0"),
        ({"resources_per_worker": {"CPU": True}}, "CPU is True; expected a number above 0"),
        ({"resources_per_worker": {"CPU": 0.00001}}, "CPU is 1e-05; expected at least 0.0001"),
        ({"resources_per_worker": {3: 1}}, "3 is not the name of a resource"),
        ({"resources_per_worker": {"object_store_memory": 1e6}}, "object_store_memory belongs to nodes"),
        ({"resources_per_worker": 2}, "resources_per_worker: 2; expected names with amounts, for example"),
        ({"resources_per_worker": None}, "resources_per_worker: None; expected names with amounts"),
        ({"resources_per_worker": [("CPU", 1)]}, "expected names with amounts"),
        ({"address": 5}, "address: 5; expected HOST:PORT"),
        ({"address": ""}, "address: ''; expected HOST:PORT"),
        ({"runtime_env": "x"}, "runtime_env: 'x'; expected a dictionary"),
        ({"copy": "yes"}, "copy: 'yes'; expected True or False"),
        ({"autoscale": "no", "workers": 1}, "autoscale: 'no'; expected True or False"),
        ({"dashboard": 3}, "dashboard: 3; expected True or False"),
        ({"autoscale": True}, "autoscale=True: give workers="),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ht.WorkloadError, match=message):
        ht.Ray(**settings)


def test_impossible_backends_and_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ht.WorkloadError, match="backend: 'rya'; expected 'local', 'ray', ht.Ray"):
        study(tmp_path).run(backend="rya")
    with pytest.raises(ht.WorkloadError, match="replicas: 2, but workers: 1"):
        study(tmp_path).run(workers=1, backend=ht.Ray(replicas=2))
    with pytest.raises(ht.WorkloadError, match="workers: 1.5; expected a whole number"):
        study(tmp_path).run(workers=1.5)  # type: ignore[arg-type]
    with pytest.raises(ht.WorkloadError, match="workers: 2, but ht.Ray"):
        study(tmp_path).run(workers=2, backend=ht.Ray(workers=1))


def test_an_address_is_compared_by_what_it_means(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import ray

    from hoptree.backends.ray_cluster import check_same_cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    connected = f"{ray.util.get_node_ip_address()}:6379"
    for same in (None, "auto", connected, "localhost:6379", "127.0.0.1:6379"):
        check_same_cluster(same, connected)
    for another in ("localhost:6380", "192.0.2.77:6379", "local"):
        with pytest.raises(ht.RefusedError, match=f"address: {another}, but this process is connected to"):
            check_same_cluster(another, connected)
    assert not caplog.records
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.77:6379")
    check_same_cluster(None, connected)
    assert f"RAY_ADDRESS is 192.0.2.77:6379, but this process is connected to {connected}" in caplog.text


def test_a_cluster_of_another_version(tmp_path: Path, nodes: Nodes) -> None:
    """The version that the cluster says it has is another one; Ray itself refuses that."""
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
    from ray._raylet import GcsClient

    client = GcsClient(address=nodes.address)
    before = client.internal_kv_get(b"CLUSTER_METADATA", KV_NAMESPACE_CLUSTER)
    another = json.dumps({**json.loads(before), "ray_version": "2.0.0"}).encode()
    client.internal_kv_put(b"CLUSTER_METADATA", another, True, KV_NAMESPACE_CLUSTER)
    try:
        with pytest.raises(ht.RefusedError, match="runs different versions than this program"):
            study(tmp_path).run(backend=nodes.where())
    finally:
        client.internal_kv_put(b"CLUSTER_METADATA", before, True, KV_NAMESPACE_CLUSTER)
    assert nothing_was_trained(tmp_path)


@pytest.fixture
def without(nodes: Nodes) -> Iterator[Callable[[Path], None]]:
    """Start a node that does not see a folder: for it another, empty one lies there."""
    started: list[subprocess.Popen[bytes]] = []

    def start(hidden: Path, cpus: int = 1) -> None:
        ray = Path(sys.executable).parent / "ray"
        node = f"{ray} start --address={nodes.address} --num-cpus={cpus} --block"
        script = f"mount -t tmpfs none {shlex.quote(str(hidden))} && exec {node}"
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        nodes.wait_for(2 + len(nodes.here))

    yield start
    for process in started:
        process.terminate()
        process.wait()
    nodes.wait_for(1 + len(nodes.here))


@pytest.mark.slow
def test_a_store_that_workers_cannot_reach(tmp_path: Path, nodes: Nodes, without: Callable[[Path], None]) -> None:
    (tmp_path / "store").mkdir()
    without(tmp_path / "store")
    with pytest.raises(ht.RefusedError, match=r"node .*: store: .*keep the store in a folder that all nodes share"):
        study(tmp_path).run(backend=nodes.where())
    assert nothing_was_trained(tmp_path)


@pytest.mark.slow
def test_a_node_that_joins_later_and_cannot_work_is_not_used(
    tmp_path: Path, nodes: Nodes, without: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """It has room for more workers than may crash in a row before a study is given up."""
    nodes.add(1)
    (tmp_path / "store").mkdir()
    search = Sabotage(ht.Grid(epochs=8), {1: lambda: without(tmp_path / "store", 6)})
    results = study(tmp_path, search=search, nap=1.0).run(backend=nodes.where())
    assert [trial.state for trial in results.trials] == ["complete"]
    assert caplog.text.count("is not used: node") == 1


@pytest.mark.slow
def test_states_at_a_url_need_no_common_folder(
    tmp_path: Path, nodes: Nodes, without: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = study(tmp_path / "here", space={"lr": ht.choice(0.1, 0.2)}).run(workers=1)
    (tmp_path / "store").mkdir()
    with object_store() as address:
        for name, value in surroundings(address).items():
            monkeypatch.setenv(name, value)
        without(tmp_path / "store")
        settings: dict[str, Any] = {"space": {"lr": ht.choice(0.1, 0.2)}, "states": "s3://hoptree/states"}
        there = study(tmp_path, **settings).run(backend=nodes.where())
        assert [trial.fingerprint for trial in there.trials] == [trial.fingerprint for trial in here.trials]
        longer = study(tmp_path, name="longer", epochs=3, **settings).run(backend=nodes.where())
        assert longer.savings.epochs_trained == 2  # they go on from the states that the workers have written
        with Store(tmp_path / "store", create=False) as store:
            assert store.states.location == "s3://hoptree/states"
    assert not (tmp_path / "store" / "states").exists()


@pytest.mark.slow
def test_data_that_only_the_driver_has(tmp_path: Path, nodes: Nodes, without: Callable[[Path], None]) -> None:
    data = dataset(tmp_path)
    without(tmp_path / "data")
    with pytest.raises(ht.RefusedError, match=r"node .*: data: .*build the dataset in a folder that all nodes"):
        study(tmp_path, data=data).run(backend=nodes.where())
    assert nothing_was_trained(tmp_path)


@pytest.mark.slow
def test_a_module_that_a_node_does_not_have(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(1)
    with pytest.raises(ht.RefusedError, match="node .*: No module named 'nowhere'; install it there"):
        study(tmp_path, trainer=Needy()).run(backend=nodes.where())
    assert nothing_was_trained(tmp_path)


class Needy(ht.Trainer):
    """A trainer that cannot be loaded where a module is missing."""

    fingerprint = "needy"

    def __reduce__(self) -> Any:
        return _load, ()

    def build(self, values: Any, seed: int) -> Any: ...
    def train(self, model: Any, data: Any, unit: Any) -> None: ...
    def evaluate(self, model: Any, data: Any, values: Any) -> Any: ...
    def dump(self, model: Any) -> Any: ...
    def load(self, model: Any, state: Any) -> None: ...


def _load() -> Any:
    import nowhere  # type: ignore[import-not-found]

    return nowhere


def nothing_was_trained(folder: Path) -> bool:
    with Store(folder / "store", create=False) as store:
        return not store.journal.last("plain")
