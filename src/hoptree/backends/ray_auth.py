"""Access to a Ray cluster: whether it can be reached, whether it accepts our token, and whether it is open."""

from __future__ import annotations

import logging
import socket

from hoptree.backends import ray_internals
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
    if not address.startswith("ray://") and ray_internals.answers(address, _TIMEOUT, with_token=True) is False:
        raise token_rejected(address)


def warn_if_open(address: str) -> None:
    """Warn if the cluster that we are connected to needs no token.

    That it accepted our token proves nothing: a cluster without authentication ignores tokens.
    """
    answered = ray_internals.answers(address, _TIMEOUT, with_token=False)
    if answered or (answered is None and not ray_internals.asks_for_tokens()):
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
    why = "this process has none"
    if ray_internals.has_token():
        uses_tokens = ray_internals.asks_for_tokens()
        why = "this process has another one" if uses_tokens else "RAY_AUTH_MODE is not token in this process"
    return RefusedError(
        f"address: the cluster at {address} requires a token, and {why}; set RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN to the cluster's token, or RAY_AUTH_TOKEN_PATH to the path of a file with it"
    )
