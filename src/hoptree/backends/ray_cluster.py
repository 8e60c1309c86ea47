"""A Ray cluster: joined or started, its nodes and what each has room for, and its closed doors."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple, final

from hoptree.backends import ray_internals
from hoptree.backends.ray_door import knock, look_at_door, no_entry, nobody
from hoptree.core.errors import RefusedError
from hoptree.report.tables import size

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray

_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 the name of a variable
_ADDRESS = "RAY_ADDRESS"
_LONGEST = 27  # letters of a folder in which sockets of Ray's may lie: their names have 107 at most
_TOUCHED = ("PYTHONBREAKPOINT", "RAY_USAGE_STATS_ENABLED")  # variables that Ray sets
# Else Ray gathers for a second what nobody refers to any more: a second of hops would lie in its object store.
_FREE_AT_ONCE = {"free_objects_batch_size": 1}

log = logging.getLogger("hoptree")


class RayNode(NamedTuple):
    """A machine of the cluster that is alive."""

    id: str
    address: str
    resources: dict[str, float]

    def room(self, worker: Mapping[str, float]) -> int:
        """Return for how many workers it has what one takes, others' use aside."""
        return min(int((self.resources.get(name, 0.0) + 1e-9) / amount) for name, amount in worker.items())

    def describe(self, worker: Mapping[str, float]) -> str:
        """Say what it has, of what a worker takes and of processors."""
        shown = {"CPU", "GPU", *worker} & self.resources.keys()
        has = ", ".join(amount_of(name, self.resources[name]) for name in sorted(shown))
        return f"{self.address} ({has or 'no CPU'})"


def amount_of(name: str, amount: float) -> str:
    """Say how much of a resource there is; memory is counted in bytes."""
    return f"{size(amount)} memory" if name == "memory" else f"{amount:g} {name}"


@final
class RayCluster:
    """A connection to a cluster; one that we started is stopped when we leave, and nobody else can use it."""

    def __init__(self, settings: Ray, threads: int) -> None:
        import ray

        self._started = False
        self._joined = False
        self._folder = ""  # of a cluster that we started: logs and sockets of its processes
        self._found = {name: os.environ.get(name) for name in (_MODE, _TOKEN)}
        self._surroundings = _Surroundings()
        self.quiet = not ray.is_initialized()  # else whoever connected has said what is printed
        try:
            if not self.quiet:
                agree(settings.address, str(ray.get_runtime_context().gcs_address))
                look_at_door(str(ray.get_runtime_context().gcs_address))
            elif (address := settings.address or os.environ.get(_ADDRESS) or "local") == "local":
                self._start(settings, threads)
            else:
                self._join(address, settings)
        except BaseException:
            self.close()
            raise

    @property
    def can_grow(self) -> bool:
        """Whether an autoscaler may add nodes; one that is started here has none."""
        return not self._started

    def nodes(self) -> list[RayNode]:
        """Return the nodes that are alive, in the order of their names."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        found = [RayNode(node["NodeID"], node["NodeManagerAddress"], node["Resources"]) for node in alive]
        return sorted(found, key=lambda node: node.id)

    def close(self) -> None:
        """Leave a cluster that we joined, stop one that we started, and leave alone what was there before us."""
        import ray

        try:
            if self._joined or self._started:
                self._joined = self._started = False
                ray.shutdown()
                if self._folder:
                    rmtree(self._folder, ignore_errors=True)
        finally:
            if self.quiet:
                self._surroundings.restore()
            set_authentication(self._found)

    def _start(self, settings: Ray, threads: int) -> None:
        """Start a cluster on this machine that asks everyone for a token: Ray may listen on the network."""
        close_door(own_token=not settings.dashboard)
        cores = max(os.cpu_count() or 1, (settings.workers or 1) * threads)
        self._started = True
        usual = os.environ.get("RAY_TMPDIR") or gettempdir()
        self._folder = mkdtemp(prefix="ht-ray-", dir=usual if len(usual) <= _LONGEST else "/tmp")  # noqa: S108 a new one
        try:
            _init(
                settings,
                address="local",
                num_cpus=cores,
                include_dashboard=settings.dashboard,
                **{ray_internals.TEMP_DIR: self._folder, ray_internals.SYSTEM_CONFIG: _FREE_AT_ONCE},
            )
        except Exception as error:
            if not isinstance(error, RefusedError):
                self._folder = ""  # it stays: Ray's message names the logs in there
            raise
        Path(self._folder).chmod(0o700)  # Ray lets everyone in

    def _join(self, address: str, settings: Ray) -> None:
        if address == "auto":
            address = os.environ.get(_ADDRESS) or ray_internals.running_cluster() or address
        if address != "auto":
            knock(address)
        import ray

        self._joined = True
        try:
            _init(settings, address=address)
        except ray.exceptions.AuthenticationError as error:
            raise no_entry(address) from error
        except ConnectionError as error:
            raise nobody(address, _first_line(error)) from error
        except RuntimeError as error:
            if "version" not in str(error).lower():
                raise
            raise RefusedError(
                f"address: the cluster at {address} runs other versions than this program: {error}\n"
                "install the same Ray and Python on all machines"
            ) from error
        look_at_door(str(ray.get_runtime_context().gcs_address))


class _Surroundings:
    """What Ray changes in a process that connects, and leaves so: variables, a signal's handler, a log's level."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._level = logging.getLogger("ray").level
        self._handler = signal.getsignal(signal.SIGTERM)

    def restore(self) -> None:
        """Put it back as it was."""
        logging.getLogger("ray").setLevel(self._level)
        for name in _TOUCHED:
            if name in self._variables:
                os.environ[name] = self._variables[name]
            else:
                os.environ.pop(name, None)
        if threading.current_thread() is threading.main_thread() and self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)


def _init(settings: Ray, **arguments: Any) -> None:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    with ray_internals.without_notices():
        try:
            ray.init(
                log_to_driver=False,  # workers send what they print: in order, and without Ray's prefixes
                logging_level=logging.ERROR,
                runtime_env=settings.runtime_env or None,
                **arguments,
            )
        except (TypeError, ValueError) as error:
            if not settings.runtime_env:
                raise
            raise RefusedError(f"runtime_env: {error}; expected what ray.init takes") from error


def close_door(own_token: bool = True) -> None:
    """Let clusters that this process starts ask for a token.

    Who has none gets one that only these processes know. Otherwise Ray would write one to the home folder, which
    others may read, and does so in ``ray.init`` only. A person who is to open the dashboard needs that one.
    """
    own = {_TOKEN: secrets.token_hex(32)} if own_token and not ray_internals.has_token() else {}
    set_authentication({_MODE: "token", **own})


def set_authentication(variables: Mapping[str, str | None]) -> None:
    """Set, or take away, by what processes of a cluster know each other; Ray reads these once and remembers."""
    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    ray_internals.read_authentication_again()


def agree(address: str | None, connected: str) -> None:
    """Refuse an address that means another cluster than the one that this process is connected to."""
    if address is not None and address != "auto" and not _same(address, connected):
        raise RefusedError(
            f"address: {address}, but this process is connected to {connected}; call ray.shutdown() first, or "
            "leave address out"
        )
    elsewhere = os.environ.get(_ADDRESS)
    if address is None and elsewhere and elsewhere != "auto" and not _same(elsewhere, connected):
        log.warning("RAY_ADDRESS is %s, but this process is connected to %s: it is used", elsewhere, connected)


def _same(one: str, other: str) -> bool:
    """Return whether two addresses are the same door: a machine has several names."""
    import ray

    def door(address: str) -> tuple[set[str], str]:
        host, _, port = address.rpartition(":")
        found: set[str] = {host}
        with suppress(OSError):
            found |= {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
        here = {"127.0.0.1", "::1", ray.util.get_node_ip_address()}
        return (found | here if found & here else found), port

    (ours, our_port), (theirs, their_port) = door(one), door(other)
    return our_port == their_port and bool(ours & theirs)


def _first_line(error: BaseException) -> str:
    lines: list[str] = []
    with suppress(Exception):
        lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
