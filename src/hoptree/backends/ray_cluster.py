"""A Ray cluster: joined or started, its nodes and what each has room for, and its closed doors."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, final

from hoptree.core.errors import MissingExtraError, RefusedError

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray

_MODE = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 the name of a variable
_ADDRESS = "RAY_ADDRESS"
_HEARTBEAT = 3.0  # seconds in which a cluster's door has to open
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

    def __str__(self) -> str:
        has = ", ".join(f"{amount:g} {name}" for name, amount in self.resources.items() if name in ("CPU", "GPU"))
        return f"{self.address} ({has or 'no CPU'})"


@final
class RayCluster:
    """A connection to a cluster; one that we started is stopped when we leave, and nobody else can use it."""

    def __init__(self, settings: Ray, threads: int) -> None:
        self._started = False
        self._joined = False
        self._found = {name: os.environ.get(name) for name in (_MODE, _TOKEN)}
        ray = _import()
        if ray.is_initialized():
            if settings.address is not None and ray.get_runtime_context().gcs_address != settings.address:
                raise RefusedError(
                    f"address: {settings.address}, but this process is connected to "
                    f"{ray.get_runtime_context().gcs_address}; call ray.shutdown() first, or leave address out"
                )
            self.quiet = False  # whoever connected has said what is printed
        else:
            self.quiet = True
            address = settings.address or os.environ.get(_ADDRESS)
            if address is None or address == "local":
                self._start(settings, threads)
            else:
                self._join(address, settings)
        self.address = str(ray.get_runtime_context().gcs_address)

    def nodes(self) -> list[RayNode]:
        """Return the nodes that are alive, in the order of their names."""
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        found = [RayNode(node["NodeID"], node["NodeManagerAddress"], node["Resources"]) for node in alive]
        return sorted(found, key=lambda node: node.id)

    def close(self) -> None:
        """Leave a cluster that we joined, stop one that we started, and leave alone what was there before us."""
        import ray

        if self._joined or self._started:
            ray.shutdown()
            self._joined = self._started = False
        set_authentication(self._found)

    def _start(self, settings: Ray, threads: int) -> None:
        """Start a cluster on this machine that asks everyone for a token: Ray may listen on the network."""
        close_door(own_token=not settings.dashboard)
        cores = max(os.cpu_count() or 1, (settings.workers or 1) * threads)
        self._started = True
        _init(
            settings,
            address="local",
            num_cpus=cores,
            include_dashboard=settings.dashboard,
            _system_config=_FREE_AT_ONCE,
        )

    def _join(self, address: str, settings: Ray) -> None:
        if address != "auto":
            _knock(address)
        import ray

        self._joined = True
        try:
            _init(settings, address=address)
        except ray.exceptions.AuthenticationError as error:
            raise RefusedError(
                f"address: the cluster at {address} does not let us in ({_first_line(error)}); set "
                "RAY_AUTH_MODE=token and give its token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
            ) from error
        except ConnectionError as error:
            raise _nobody(address, _first_line(error)) from error
        except RuntimeError as error:
            if "version" not in str(error).lower():
                raise
            raise RefusedError(
                f"address: the cluster at {address} runs other versions than this program: {error}\n"
                "install the same Ray and Python on all machines"
            ) from error
        if not _has_authentication():
            log.warning(
                "the Ray cluster at %s lets anyone in who reaches it; start it with RAY_AUTH_MODE=token", address
            )


def _import() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError(
            "backend='ray': needs ray, which is not installed; pip install 'hoptree[ray]'"
        ) from None
    return ray


def _init(settings: Ray, **arguments: Any) -> None:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        log_to_driver=False,  # workers send what they print: in order, and without Ray's prefixes
        logging_level=logging.ERROR,
        runtime_env=settings.runtime_env or None,
        **arguments,
    )


def _has_authentication() -> bool:
    from ray import _raylet

    module: Any = _raylet  # compiled: it has no types
    return bool(module.get_authentication_mode() == module.AuthenticationMode.TOKEN)


def close_door(own_token: bool = True) -> None:
    """Let clusters that this process starts ask for a token.

    Who has none gets one that only these processes know. Otherwise Ray would write one to the home folder, which
    others may read, and does so in ``ray.init`` only. A person who is to open the dashboard needs that one.
    """
    from ray import _raylet

    module: Any = _raylet
    known = module.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    own = {_TOKEN: secrets.token_hex(32)} if own_token and not known else {}
    set_authentication({_MODE: "token", **own})


def set_authentication(variables: Mapping[str, str | None]) -> None:
    """Set, or take away, by what processes of a cluster know each other; Ray reads these once and remembers."""
    from ray import _raylet

    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    module: Any = _raylet  # compiled: it has no types
    module.Config.initialize("")
    module.AuthenticationTokenLoader.instance().reset_cache()


def _knock(address: str) -> None:
    """Refuse an address behind which nobody listens, at once: Ray would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise RefusedError(
            f"address: {address!r}; expected HOST:PORT of a running cluster, for example 10.0.0.1:6379"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_HEARTBEAT):
            pass
    except OSError as error:
        raise _nobody(address, str(error)) from None


def _nobody(address: str, why: str) -> RefusedError:
    return RefusedError(
        f"address: no Ray cluster at {address} ({why}); start one there with `ray start --head`, or leave the "
        "address out: then one is started on this machine"
    )


def _first_line(error: BaseException) -> str:
    lines: list[str] = []
    with suppress(Exception):
        lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
