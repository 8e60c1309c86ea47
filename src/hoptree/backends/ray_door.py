"""The door of a Ray cluster: whether somebody opens, to whom, and whether it is open to anyone."""

from __future__ import annotations

import logging
import socket

from hoptree.backends import ray_internals
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
    if not address.startswith("ray://") and ray_internals.answers(address, _PATIENCE, with_token=True) is False:
        raise no_entry(address)


def look_at_door(address: str) -> None:
    """Warn of a cluster, in which we are, that anyone can use.

    That we show a token does not tell: a cluster without authentication takes no notice of it.
    """
    answered = ray_internals.answers(address, _PATIENCE, with_token=False)
    if answered or (answered is None and not ray_internals.asks_for_tokens()):
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
    why = "there is none here"
    if ray_internals.has_token():
        shown = ray_internals.asks_for_tokens()
        why = "the one that is given here is another" if shown else "RAY_AUTH_MODE is not token here"
    return RefusedError(
        f"address: the cluster at {address} asks for a token, and {why}; set RAY_AUTH_MODE=token and give the "
        "cluster's token in RAY_AUTH_TOKEN, or the path of a file with it in RAY_AUTH_TOKEN_PATH"
    )
