"""The door of a Ray cluster: whether somebody opens, to whom, and whether it is open to anyone."""

from __future__ import annotations

import logging
import socket
from importlib import import_module
from typing import Any

from hoptree.core.errors import RefusedError

_PATIENCE = 3.0  # seconds in which a door has to open

log = logging.getLogger("hoptree")


def knock(address: str) -> None:
    """Refuse an address behind which nobody listens, or nobody lets us in, at once: Ray would try for a while."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise RefusedError(
            f"address: {address!r}; expected HOST:PORT of a running cluster, for example 10.0.0.1:6379"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE):
            pass
    except OSError as error:
        raise nobody(address, str(error)) from None
    if not address.startswith("ray://") and _turns_away(address, with_token=True):
        raise no_entry(address)


def look_at_door(address: str) -> None:
    """Warn of a cluster, in which we are, that anyone can use.

    That we show a token does not tell: a cluster without authentication takes no notice of it.
    """
    away = _turns_away(address, with_token=False)
    if not (_asks_for_tokens() if away is None else away):
        log.warning(
            "the Ray cluster at %s lets anyone in who reaches it; start it with RAY_AUTH_MODE=token", address
        )


def nobody(address: str, why: str) -> RefusedError:
    """Say that there is no cluster."""
    return RefusedError(
        f"address: no Ray cluster at {address} ({why}); start one there with `ray start --head`, or leave the "
        "address out: then one is started on this machine"
    )


def no_entry(address: str) -> RefusedError:
    """Say that the cluster wants to see a token."""
    from ray import _raylet

    module: Any = _raylet  # compiled: it has no types
    has = module.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    why = "there is none here"
    if has:
        why = "the one that is given here is another" if _asks_for_tokens() else "RAY_AUTH_MODE is not token here"
    return RefusedError(
        f"address: the cluster at {address} asks for a token, and {why}; set RAY_AUTH_MODE=token and give the "
        "cluster's token in RAY_AUTH_TOKEN, or the path of a file with it in RAY_AUTH_TOKEN_PATH"
    )


def _asks_for_tokens() -> bool:
    """Return whether this process is set to show tokens, and to ask for them."""
    from ray import _raylet

    module: Any = _raylet
    return bool(module.get_authentication_mode() == module.AuthenticationMode.TOKEN)


def _turns_away(address: str, *, with_token: bool) -> bool | None:
    """Return whether a cluster does not talk to us, with or without our token; None if that cannot be known."""
    try:
        grpc: Any = import_module("grpc")  # Ray's smallest installation comes without it
        messages: Any = import_module("ray.core.generated.gcs_service_pb2")
        services: Any = import_module("ray.core.generated.gcs_service_pb2_grpc")
    except ModuleNotFoundError:
        return None
    from ray import _raylet

    module: Any = _raylet
    tokens = module.AuthenticationTokenLoader.instance()
    shown = with_token and _asks_for_tokens() and tokens.has_token(ignore_auth_mode=True)
    metadata = list(tokens.get_token_for_http_header().items()) if shown else []
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        node_info = services.NodeInfoGcsServiceStub(channel)
        try:
            node_info.GetClusterId(messages.GetClusterIdRequest(), timeout=_PATIENCE, metadata=metadata)
        except grpc.RpcError as error:
            return True if error.code() == grpc.StatusCode.UNAUTHENTICATED else None
    return False
