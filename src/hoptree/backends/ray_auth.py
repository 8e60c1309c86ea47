"""Access to a Ray cluster: whether it can be reached, whether it accepts our token, and whether it is open."""

from __future__ import annotations

import logging
import socket
from importlib import import_module
from typing import Any

from hoptree.core.errors import RefusedError

_TIMEOUT = 3.0  # seconds in which a cluster has to answer

log = logging.getLogger("hoptree")


def check_reachable(address: str) -> None:
    """Raise an error at once if no cluster listens at an address, or it rejects our token: Ray retries for long."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise RefusedError(
            f"address: {address!r}; expected HOST:PORT of a running cluster, for example 10.0.0.1:6379"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT):
            pass
    except OSError as error:
        raise not_found(address, str(error)) from None
    if not address.startswith("ray://") and _rejects(address, with_token=True):
        raise token_rejected(address)


def look_at_door(address: str) -> None:
    """Warn if the cluster that we are connected to needs no token.

    That it accepted our token proves nothing: a cluster without authentication ignores tokens.
    """
    rejected = _rejects(address, with_token=False)
    if not (_uses_tokens() if rejected is None else rejected):
        log.warning(
            "anyone who can reach the Ray cluster at %s can use it; start it with RAY_AUTH_MODE=token", address
        )


def not_found(address: str, why: str) -> RefusedError:
    """Return the error that there is no cluster at an address."""
    return RefusedError(
        f"address: no Ray cluster at {address} ({why}); start one there with `ray start --head`, or omit "
        "the address to start one on this machine"
    )


def token_rejected(address: str) -> RefusedError:
    """Return the error that the cluster needs another token, or any."""
    from ray import _raylet

    module: Any = _raylet  # compiled: it has no types
    has = module.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    why = "this process has none"
    if has:
        why = "this process has another one" if _uses_tokens() else "RAY_AUTH_MODE is not token in this process"
    return RefusedError(
        f"address: the cluster at {address} requires a token, and {why}; set RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN to the cluster's token, or RAY_AUTH_TOKEN_PATH to the path of a file with it"
    )


def _uses_tokens() -> bool:
    """Return whether this process is configured to send tokens and to require them."""
    from ray import _raylet

    module: Any = _raylet
    return bool(module.get_authentication_mode() == module.AuthenticationMode.TOKEN)


def _rejects(address: str, *, with_token: bool) -> bool | None:
    """Return whether a cluster rejects us, with or without our token; None if that cannot be determined."""
    try:
        grpc: Any = import_module("grpc")  # Ray's smallest installation does not include it
        messages: Any = import_module("ray.core.generated.gcs_service_pb2")
        services: Any = import_module("ray.core.generated.gcs_service_pb2_grpc")
    except ModuleNotFoundError:
        return None
    from ray import _raylet

    module: Any = _raylet
    tokens = module.AuthenticationTokenLoader.instance()
    sent = with_token and _uses_tokens() and tokens.has_token(ignore_auth_mode=True)
    metadata = list(tokens.get_token_for_http_header().items()) if sent else []
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        node_info = services.NodeInfoGcsServiceStub(channel)
        try:
            node_info.GetClusterId(messages.GetClusterIdRequest(), timeout=_TIMEOUT, metadata=metadata)
        except grpc.RpcError as error:
            return True if error.code() == grpc.StatusCode.UNAUTHENTICATED else None
    return False
