"""A Ray cluster: connecting or starting it with authentication, its nodes and the workers each has room for."""

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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, final

from hoptree.backends import ray_internals
from hoptree.backends.ray_auth import check_reachable, not_found, token_rejected, warn_if_open
from hoptree.core.errors import RefusedError
from hoptree.report.tables import size

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray

_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 the name of a variable
_ADDRESS = "RAY_ADDRESS"
_HEAD = "node:__internal_head__"  # a resource that the head's node has
_LONGEST = 27  # characters of a folder for Ray's sockets: the path of a socket has 107 at most
_SET_BY_RAY = ("PYTHONBREAKPOINT", "RAY_USAGE_STATS_ENABLED")
# Else Ray frees unreferenced objects once a second: a second of hops would fill its object store.
_FREE_AT_ONCE = {"free_objects_batch_size": 1}

log = logging.getLogger("hoptree")


class RayNode(NamedTuple):
    """A node of the cluster that is alive."""

    id: str
    address: str
    resources: dict[str, float]
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def is_head(self) -> bool:
        """Whether the cluster's head runs on it: such a node is never given back."""
        return _HEAD in self.resources

    def room(self, worker: Mapping[str, float]) -> int:
        """Return how many workers fit on it, if nobody else uses it."""
        return min(int((self.resources.get(name, 0.0) + 1e-9) / amount) for name, amount in worker.items())

    def describe(self, worker: Mapping[str, float]) -> str:
        """Describe its CPUs, its GPUs and the other resources that a worker takes."""
        shown = {"CPU", "GPU", *worker} & self.resources.keys()
        listed = ", ".join(amount_of(name, self.resources[name]) for name in sorted(shown))
        return f"{self.address} ({listed or 'no CPU'})"


def amount_of(name: str, amount: float) -> str:
    """Format an amount of a resource; memory is given in bytes."""
    return f"{size(amount)} memory" if name == "memory" else f"{amount:g} {name}"


@final
class RayCluster:
    """A connection to a cluster; one that was started here is private, and is stopped on ``close``."""

    def __init__(self, settings: Ray, threads: int) -> None:
        import ray

        self._started = False
        self._joined = False
        self._folder = ""  # of a cluster that was started here: logs and sockets of its processes
        self._authentication = {name: os.environ.get(name) for name in (_MODE, _TOKEN)}
        self._environment = _Environment()
        self.quiet = not ray.is_initialized()  # else the program that connected decides what is printed
        try:
            if not self.quiet:
                check_same_cluster(settings.address, str(ray.get_runtime_context().gcs_address))
                warn_if_open(str(ray.get_runtime_context().gcs_address))
            elif (address := settings.address or os.environ.get(_ADDRESS) or "local") == "local":
                self._start(settings, threads)
            else:
                self._join(address, settings)
        except BaseException:
            self.close()
            raise

    @property
    def can_grow(self) -> bool:
        """Whether an autoscaler may add nodes; a cluster that was started here has none."""
        return not self._started

    def nodes(self) -> list[RayNode]:
        """Return the nodes that are alive, ordered by id."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        found = [
            RayNode(node["NodeID"], node["NodeManagerAddress"], node["Resources"], node.get("Labels") or {})
            for node in alive
        ]
        return sorted(found, key=lambda node: node.id)

    def close(self) -> None:
        """Disconnect from a cluster that was joined, stop one that was started, and keep an earlier connection."""
        import ray

        try:
            if self._joined or self._started:
                self._joined = self._started = False
                ray.shutdown()
                if self._folder:
                    rmtree(self._folder, ignore_errors=True)
        finally:
            if self.quiet:
                self._environment.restore()
            set_authentication(self._authentication)

    def _start(self, settings: Ray, threads: int) -> None:
        """Start a cluster on this machine that requires a token: Ray may listen on the network."""
        require_token(own_token=not settings.dashboard)
        cores = max(os.cpu_count() or 1, (settings.workers or 1) * threads)
        self._started = True
        default = os.environ.get("RAY_TMPDIR") or gettempdir()
        self._folder = mkdtemp(prefix="ht-ray-", dir=default if len(default) <= _LONGEST else "/tmp")  # noqa: S108 unique
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
                self._folder = ""  # keep it: Ray's message names the logs in it
            raise
        Path(self._folder).chmod(0o700)  # Ray makes it readable for everyone

    def _join(self, address: str, settings: Ray) -> None:
        if address == "auto":
            address = os.environ.get(_ADDRESS) or ray_internals.running_cluster() or address
        if address != "auto":
            check_reachable(address)
        import ray

        self._joined = True
        try:
            _init(settings, address=address)
        except ray.exceptions.AuthenticationError as error:
            raise token_rejected(address) from error
        except ConnectionError as error:
            raise not_found(address, _first_line(error)) from error
        except RuntimeError as error:
            if "version" not in str(error).lower():
                raise
            raise RefusedError(
                f"address: the cluster at {address} runs different versions than this program: {error}\n"
                "install the same Ray and Python on all machines"
            ) from error
        warn_if_open(str(ray.get_runtime_context().gcs_address))


class _Environment:
    """What Ray changes in a process and does not restore: variables, a signal handler, a log level."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._level = logging.getLogger("ray").level
        self._handler = signal.getsignal(signal.SIGTERM)

    def restore(self) -> None:
        """Restore it."""
        logging.getLogger("ray").setLevel(self._level)
        for name in _SET_BY_RAY:
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
                log_to_driver=False,  # workers send their output themselves: in order, and without Ray's prefixes
                logging_level=logging.ERROR,
                runtime_env=settings.runtime_env or None,
                **arguments,
            )
        except (TypeError, ValueError) as error:
            if not settings.runtime_env:
                raise
            raise RefusedError(f"runtime_env: {error}; expected a value that ray.init accepts") from error


def require_token(own_token: bool = True) -> None:
    """Make clusters that this process starts require a token.

    Without a token of the user, create one that only these processes know. Otherwise Ray would write one to the
    home folder, which others may read, and only in ``ray.init``. To open the dashboard, a user needs that one.
    """
    own = {_TOKEN: secrets.token_hex(32)} if own_token and not ray_internals.has_token() else {}
    set_authentication({_MODE: "token", **own})


def set_authentication(variables: Mapping[str, str | None]) -> None:
    """Set or unset the variables of Ray's authentication; Ray caches them, so it has to read them again."""
    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    ray_internals.read_authentication_again()


def check_same_cluster(address: str | None, connected: str) -> None:
    """Raise an error if an address is not that of the cluster that this process is connected to."""
    if address is not None and address != "auto" and not _same(address, connected):
        raise RefusedError(
            f"address: {address}, but this process is connected to {connected}; call ray.shutdown() first, or "
            "omit address"
        )
    other = os.environ.get(_ADDRESS)
    if address is None and other and other != "auto" and not _same(other, connected):
        log.warning("RAY_ADDRESS is %s, but this process is connected to %s, which is used", other, connected)


def _same(one: str, other: str) -> bool:
    """Return whether two addresses mean the same server: a machine has several names."""
    import ray

    def resolve(address: str) -> tuple[set[str], str]:
        host, _, port = address.rpartition(":")
        found: set[str] = {host}
        with suppress(OSError):
            found |= {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
        here = {"127.0.0.1", "::1", ray.util.get_node_ip_address()}
        return (found | here if found & here else found), port

    (ours, our_port), (theirs, their_port) = resolve(one), resolve(other)
    return our_port == their_port and bool(ours & theirs)


def _first_line(error: BaseException) -> str:
    lines: list[str] = []
    with suppress(Exception):
        lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
