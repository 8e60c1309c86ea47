"""Every part of Ray that we use and that Ray does not call public; why is in decision 0026.

The extra ``ray`` admits releases in which these are known to work, and no others: ``tests/backends`` holds them to
what is said here. Nothing else of Hoptree imports such a part, which a test checks too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, cast

import ray

# Options of ``ray.init`` that Ray documents as unstable.
TEMP_DIR: Final = "_temp_dir"
SYSTEM_CONFIG: Final = "_system_config"
_NOTICES: Final = "listen_error_messages"


def has_token() -> bool:
    """Return whether a token is given, by a variable or in a file, whatever the mode is."""
    return bool(_tokens().has_token(ignore_auth_mode=True))


def token_header() -> list[tuple[str, str]]:
    """Return the token as what a request carries."""
    return list(_tokens().get_token_for_http_header().items())


def asks_for_tokens() -> bool:
    """Return whether this process shows tokens, and asks for them."""
    raylet = _raylet()
    return bool(raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN)


def read_authentication_again() -> None:
    """Have Ray read ``RAY_AUTH_MODE`` and the token again: it does so once, when it is imported."""
    _raylet().Config.initialize("")
    _tokens().reset_cache()


def answers(address: str, seconds: float, *, with_token: bool) -> bool | None:
    """Return whether the head of a cluster answers us, with or without our token; None if nobody can say."""
    grpc: Any = import_module("grpc")
    messages: Any = import_module("ray.core.generated.gcs_service_pb2")
    services: Any = import_module("ray.core.generated.gcs_service_pb2_grpc")
    shown = with_token and asks_for_tokens() and has_token()
    metadata = token_header() if shown else []
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        node_info = services.NodeInfoGcsServiceStub(channel)
        try:
            node_info.GetClusterId(messages.GetClusterIdRequest(), timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            return False if error.code() == grpc.StatusCode.UNAUTHENTICATED else None
    return True


def running_cluster() -> str | None:
    """Return the HOST:PORT that ``address="auto"`` means to Ray; None if it finds no cluster."""
    services: Any = import_module("ray._private.services")
    try:
        found: str | None = services.canonicalize_bootstrap_address("auto")
    except ConnectionError:
        return None
    return found


@contextmanager
def without_notices() -> Iterator[None]:
    """Keep Ray from printing that a worker or a node died: we hear of it by other ways, and say what follows.

    Ray has no setting for that: as it connects, it starts a thread that prints notices.
    """
    module: Any = import_module("ray._private.worker")
    printing = getattr(module, _NOTICES, None)  # a Ray without it may print: no reason to fail
    setattr(module, _NOTICES, lambda *_: None)
    try:
        yield
    finally:
        setattr(module, _NOTICES, printing)


def autoscaler_report() -> dict[str, Any] | None:
    """Return what the autoscaler of the connected cluster wrote last, None if none has written anything.

    Only the first version of Ray's autoscaler writes it, and what watches clusters without one does so too.
    """
    found = _gcs().internal_kv_get(b"__autoscaling_status", None)
    return None if found is None else cast("dict[str, Any]", json.loads(found))


def drain_node(node: str, *, only_idle: bool) -> bool:
    """Let a node of the connected cluster end when nothing runs on it; return whether it will.

    From now on nothing starts there. With ``only_idle``, a node on which anything runs refuses.
    """
    messages: Any = import_module("ray.core.generated.autoscaler_pb2")
    reason = "IDLE_TERMINATION" if only_idle else "PREEMPTION"
    accepted, _ = _gcs().drain_node(
        node, messages.DrainNodeReason.Value(f"DRAIN_NODE_REASON_{reason}"), "given back by Hoptree", 0
    )
    return bool(accepted)


def _gcs() -> Any:
    return _raylet().GcsClient(address=ray.get_runtime_context().gcs_address)


def _raylet() -> Any:
    """Return the compiled part of Ray, which has no types."""
    return ray._raylet


def _tokens() -> Any:
    return _raylet().AuthenticationTokenLoader.instance()
