"""Variants: which stored states the present surroundings may reuse, and under which names a run saves its own.

The root of a lineage says what code, data and seed are. All else that changes bits (the platform, files that user
code reads, what a probe shows) makes a *variant* of it, which is part of the names of states. An origin in the
store says what held for a variant; it fits if nothing that both have seen differs.
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
    """What a session has seen so far: observations of its workers, and hashes of probes."""

    observations: dict[str, str]
    probes: dict[str, str]


class ChosenOrigin(NamedTuple):
    """The origin that fits, None if a new one is needed; ``refused`` are the others, each with what differs."""

    origin: VariantOrigin | None
    refused: list[tuple[VariantOrigin, list[str]]]


def choose(
    origins: Sequence[VariantOrigin],
    seen: SessionObservations,
    now: Callable[[VariantOrigin], Mapping[str, str]],
    used: str = "",
) -> ChosenOrigin:
    """Return the first origin that fits; the one that a study has ``used`` comes before others.

    ``now`` says what the subjects of an origin contain at present.
    """
    refused: list[tuple[VariantOrigin, list[str]]] = []
    for origin in sorted(origins, key=lambda origin: origin.variant != used):
        if not (lines := contradictions(origin, seen, now(origin))):
            return ChosenOrigin(origin, refused)
        refused.append((origin, lines))
    return ChosenOrigin(None, refused)


def contradictions(origin: VariantOrigin, seen: SessionObservations, now: Mapping[str, str]) -> list[str]:
    """Return what differs from what held for an origin, one line each."""
    current = {**now, **seen.observations}  # what a worker has seen counts more than what the driver sees
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
        "setting that Hoptree sees has changed"
        for values, probe in origin.probes.items()
        if seen.probes.get(values, probe) != probe
    ][:1]


def probe_key(values: Mapping[str, Scalar]) -> str:
    """Return the name of a probe: the values of its config, in a form that can be read and compared.

    >>> probe_key({"lr": 0.1, "act": "relu"})
    '{"act": "relu", "lr": 0.1}'
    """
    return json.dumps(dict(values), sort_keys=True)


@final
class Variants:
    """Chooses the variant of a run, and adds to its origin what is seen while it runs.

    ``used`` is the variant that the study went on with last. Where workers are on other machines (``remote``), a
    file that is not here says nothing: workers say what they see. With ``reuse="never"`` a study has a variant of
    its own.
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
        self._seen = SessionObservations({}, {})
        self._present: dict[str, str] = {}  # what the driver saw of subjects, once per run
        self._origin: VariantOrigin | None = None
        self._follows = True
        self.refused: list[tuple[VariantOrigin, list[str]]] = []

    # --- what a backend tells ---------------------------------------------------------------------------------

    def observed(self, observations: Observations) -> None:
        """Take in what user code has read in a worker; what contradicts what was read before ends the run."""
        if not self._follows:
            return
        known = self._seen.observations if self._origin is None else self._origin.observations
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

    def probed(self, values: Mapping[str, Scalar], probe: str) -> None:
        """Take in what the probe of a config gave."""
        if probe and self._origin is None:
            self._seen.probes[probe_key(values)] = probe

    def forget_probes(self) -> None:
        """Compare no probes: workers are of several kinds, and any of them may have probed."""
        self._seen.probes.clear()

    # --- the decision -----------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Go on without a variant, as a study that was begun before there were any."""
        self._follows = False

    def changes(self, platform: Platform | None) -> list[str]:
        """Return what has changed since the study went on last; ``platform`` is None where it is not known yet."""
        origin = self._origins.get(self._used) if self._used else None
        if origin is None or origin.root != self._root:
            return []
        if platform is not None and origin.platform != platform:
            return differences(origin.platform, platform)
        return contradictions(origin, self._comparable, self._now(origin))

    def decide(self, platform: Platform) -> str:
        """Return the variant under which the run goes on, entering a new one if none fits."""
        while True:
            candidates = (
                self._origins.find(self._root, platform) if self._reuse == "always" else self._own(platform)
            )
            origin, self.refused = choose(candidates, self._comparable, self._now, self._used)
            if origin is None:
                origin = self._new(platform, candidates)
                if not self._origins.add(origin):
                    continue  # another driver was faster: perhaps what it has entered fits
            try:
                self._origin = self._origins.extend(origin, *self._comparable)
            except OriginConflictError:
                continue  # another driver has seen something else since
            return origin.variant

    def find(self, platform: Platform) -> str:
        """Return the variant under which a run would go on, as far as it is known; "" for a new one."""
        if self._reuse == "never":
            return self._used
        origin, self.refused = choose(
            self._origins.find(self._root, platform), self._comparable, self._now, self._used
        )
        return "" if origin is None else origin.variant

    @property
    def _comparable(self) -> SessionObservations:
        """What may be compared: with ``reuse="never"`` code need not give the same bits twice."""
        return self._seen if self._reuse == "always" else SessionObservations(self._seen.observations, {})

    def _own(self, platform: Platform) -> list[VariantOrigin]:
        used = self._origins.get(self._used) if self._used else None
        return [used] if used is not None and (used.root, used.platform) == (self._root, platform) else []

    def _new(self, platform: Platform, known: Sequence[VariantOrigin]) -> VariantOrigin:
        number = max((origin.number for origin in known), default=-1) + 1
        own = self._study if self._reuse == "never" else ""
        salt = secrets.token_hex(16) if own else ""
        seen = self._seen if not own else SessionObservations(self._seen.observations, {})
        name = identity("variant", self._root, platform, number, seen.observations, seen.probes, own, salt)[:16]
        return VariantOrigin(
            name, self._root, platform, number, own, 0.0, dict(seen.observations), dict(seen.probes)
        )

    def _now(self, origin: VariantOrigin) -> dict[str, str]:
        unknown = [subject for subject in origin.observations if subject not in self._present]
        self._present.update(present(unknown))
        found = {subject: self._present[subject] for subject in origin.observations}
        return {subject: digest for subject, digest in found.items() if digest or not self._remote}


def told(refused: Sequence[tuple[VariantOrigin, list[str]]]) -> str:
    """Return what to tell a user about variants that do not fit: what differs from the last of them."""
    if not refused:
        return ""
    _, lines = max(refused, key=lambda pair: pair[0].created)
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"{lines[0]}{more}: nothing that was trained then is reused"


def _changed(subject: str, before: str, now: str, since: str) -> str:
    kind, _, name = subject.partition(":")
    what = "is gone" if not now else "was not there" if not before else "has changed"
    return f"{kind} {name} {what} since {since}" if before else f"{kind} {name} {what} on {since}"


def _changed_meanwhile(subject: str) -> StudyChangedError:
    kind, _, name = subject.partition(":")
    return StudyChangedError(
        f"{kind} {name}: its content differs from what was read before under the same names of states, here or on "
        "another machine; what was trained with both cannot be told apart. Leave it as it is while a study runs, "
        "and the same on all machines; then run again"
    )
