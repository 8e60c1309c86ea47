"""Variants: which stored states this environment may reuse, and under which keys a run saves its own states.

The root of a lineage identifies code, data and seed. Everything else that changes bits (the platform, files that
user code reads, the outcome of a probe) makes a *variant* of it, which is part of the keys of states. An origin in
the store records the environment of a variant; it fits a run if nothing that both have observed differs.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, final

from hoptree.core.errors import StudyChangedError
from hoptree.core.keys import identity
from hoptree.identity.observation import Observations, present
from hoptree.identity.platform import differences
from hoptree.store.origins import OriginConflictError, VariantOrigin

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.store.origins import Origins, Platform

Reuse: TypeAlias = Literal["always", "never"]


class SessionObservations(NamedTuple):
    """What a session has observed so far: the inputs that its workers read, and hashes of probes."""

    observations: dict[str, str]
    probes: dict[str, str]


class ChosenOrigin(NamedTuple):
    """The origin that fits, None if a new one is needed; ``refused`` are the others, with their differences."""

    origin: VariantOrigin | None
    refused: list[tuple[VariantOrigin, list[str]]]


def choose(
    origins: Sequence[VariantOrigin],
    seen: SessionObservations,
    now: Callable[[VariantOrigin], Mapping[str, str]],
    used: str = "",
) -> ChosenOrigin:
    """Return the first origin that fits; the one that the study last ``used`` is tried first.

    ``now`` returns the present contents of the inputs that an origin records.
    """
    refused: list[tuple[VariantOrigin, list[str]]] = []
    for origin in sorted(origins, key=lambda origin: origin.variant != used):
        if not (lines := contradictions(origin, seen, now(origin))):
            return ChosenOrigin(origin, refused)
        refused.append((origin, lines))
    return ChosenOrigin(None, refused)


def contradictions(origin: VariantOrigin, seen: SessionObservations, now: Mapping[str, str]) -> list[str]:
    """Return what differs from the environment of an origin, one line each."""
    current = {**now, **seen.observations}  # what a worker observed overrides what the driver sees
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(origin.created))
    lines = [
        _changed(subject, digest, current[subject], since)
        for subject, digest in origin.observations.items()
        if current.get(subject, digest) != digest
    ]
    if lines:
        return lines
    return [
        f"the same code trained other bits than on {since}: the probe of {values} differs, though no file, code or "
        "setting that Hoptree observes has changed"
        for values, probe in origin.probes.items()
        if seen.probes.get(values, probe) != probe
    ][:1]


def probe_key(values: Mapping[str, Scalar]) -> str:
    """Return the key of a probe: the values of its config as text that can be read and compared.

    >>> probe_key({"lr": 0.1, "act": "relu"})
    '{"act": "relu", "lr": 0.1}'
    """
    return json.dumps(dict(values), sort_keys=True)


@final
class Variants:
    """Chooses the variant of a run, and adds to its origin what is observed while it runs.

    ``used`` is the variant of the study's last run. Where workers are on other machines (``remote``), a file that
    is missing on the driver's machine says nothing: workers report what they read. With ``reuse="never"`` a study
    has a variant of its own.
    """

    def __init__(
        self,
        origins: Origins,
        root: str,
        study: str,
        *,
        reuse: Reuse = "always",
        used: str = "",
        remote: bool = False,
    ) -> None:
        self._origins = origins
        self._root = root
        self._study = study
        self._reuse: Reuse = reuse
        self._used = used
        self._remote = remote
        self._observations: dict[str, str] = {}
        self._probes: dict[str, dict[str, str]] = {}  # by the identity of the platform that they ran on
        self._contents: dict[str, str] = {}  # contents of inputs on the driver's machine, read once per run
        self._origin: VariantOrigin | None = None
        self._is_enabled = True
        self.refused: list[tuple[VariantOrigin, list[str]]] = []

    # --- observations of a backend ----------------------------------------------------------------------------

    def observed(self, observations: Observations) -> None:
        """Record what user code has read in a worker; raise an error if it contradicts what was read before."""
        if not self._is_enabled:
            return
        known = self._observations if self._origin is None else self._origin.observations
        new = {subject: digest for subject, digest in observations.items() if known.get(subject) != digest}
        if not new:
            return
        if self._origin is None:
            for subject in new:
                if subject in known:
                    raise _changed_meanwhile(subject)
            known.update(new)
            return
        try:
            self._origin = self._origins.extend(self._origin, new, {})
        except OriginConflictError as error:
            raise _changed_meanwhile(error.subject) from None

    def probed(self, values: Mapping[str, Scalar], probe: str, platform: Mapping[str, str]) -> None:
        """Record the result of the probe of a config on a platform; another platform may train other bits."""
        if probe and self._origin is None:
            self._probes.setdefault(identity("platform", dict(platform)), {})[probe_key(values)] = probe

    # --- the decision -----------------------------------------------------------------------------------------

    def disable(self) -> None:
        """Continue without a variant: the study was started before variants existed."""
        self._is_enabled = False

    def changes(self, platform: Platform | None) -> list[str]:
        """Return what has changed since the study's last run; ``platform`` is None while it is unknown."""
        origin = self._origins.get(self._used) if self._used else None
        if origin is None or origin.root != self._root:
            return []
        if platform is not None and origin.platform != platform:
            return differences(origin.platform, platform)
        return contradictions(origin, self._comparable(origin.platform), self._now(origin))

    def decide(self, platform: Platform) -> str:
        """Return the variant of this run; enter a new origin if none fits."""
        seen = self._comparable(platform)
        while True:
            candidates = (
                self._origins.find(self._root, platform) if self._reuse == "always" else self._own(platform)
            )
            origin, self.refused = choose(candidates, seen, self._now, self._used)
            if origin is None:
                origin = self._new(platform, candidates, seen)
                if not self._origins.add(origin):
                    continue  # another driver was faster: its origin may fit
            try:
                self._origin = self._origins.extend(origin, *seen)
            except OriginConflictError:
                continue  # another driver has observed something else since
            return origin.variant

    def find(self, platform: Platform) -> str:
        """Return the variant that a run would have, as far as it is known; "" for a new one."""
        if self._reuse == "never":
            return self._used
        origin, self.refused = choose(
            self._origins.find(self._root, platform), self._comparable(platform), self._now, self._used
        )
        return "" if origin is None else origin.variant

    def _comparable(self, platform: Platform) -> SessionObservations:
        """Return what may be compared on a platform: no probes of others, and none for a mixture of platforms.

        With ``reuse="never"``, code need not give the same bits twice.
        """
        probes = self._probes.get(identity("platform", platform), {}) if self._reuse == "always" else {}
        return SessionObservations(self._observations, probes)

    def _own(self, platform: Platform) -> list[VariantOrigin]:
        used = self._origins.get(self._used) if self._used else None
        return [used] if used is not None and (used.root, used.platform) == (self._root, platform) else []

    def _new(self, platform: Platform, known: Sequence[VariantOrigin], seen: SessionObservations) -> VariantOrigin:
        number = max((origin.number for origin in known), default=-1) + 1
        own = self._study if self._reuse == "never" else ""
        salt = secrets.token_hex(16) if own else ""
        name = identity("variant", self._root, platform, number, seen.observations, seen.probes, own, salt)[:16]
        return VariantOrigin(
            name, self._root, platform, number, own, 0.0, dict(seen.observations), dict(seen.probes)
        )

    def _now(self, origin: VariantOrigin) -> dict[str, str]:
        unknown = [subject for subject in origin.observations if subject not in self._contents]
        self._contents.update(present(unknown))
        found = {subject: self._contents[subject] for subject in origin.observations}
        return {subject: digest for subject, digest in found.items() if digest or not self._remote}


def explain_refused(refused: Sequence[tuple[VariantOrigin, list[str]]]) -> str:
    """Return the message for a user about origins that do not fit: how the latest of them differs."""
    if not refused:
        return ""
    _, lines = max(refused, key=lambda pair: pair[0].created)
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"{lines[0]}{more}: states that were trained then are not reused"


def _changed(subject: str, before: str, now: str, since: str) -> str:
    kind, _, name = subject.partition(":")
    what = "is missing" if not now else "did not exist" if not before else "has changed"
    return f"{kind} {name} {what} since {since}" if before else f"{kind} {name} {what} on {since}"


def _changed_meanwhile(subject: str) -> StudyChangedError:
    kind, _, name = subject.partition(":")
    return StudyChangedError(
        f"{kind} {name}: its content differs from what a worker read before, here or on another machine, so states "
        "trained with either cannot be told apart. Do not change it while a study runs, keep it the same on all "
        "machines, and run again"
    )
