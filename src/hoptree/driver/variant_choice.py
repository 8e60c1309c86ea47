"""The choice of a variant: compares platform, files and probes with the environment of earlier runs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.backends.pool_backend import PoolBackend
from hoptree.core.errors import StudyChangedError
from hoptree.core.events import Event, TrialAsked, TrialRebased
from hoptree.core.keys import identity
from hoptree.driver.options import RunOptions
from hoptree.driver.variants import Variants, explain_refused, probe_key
from hoptree.identity.platform import differences, mixture
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.backends.protocol import Backend
    from hoptree.driver.study_group import StudyGroup
    from hoptree.store import Store

NEW = "new"  # a variant that does not exist yet: nothing is stored under it

log = logging.getLogger("hoptree")


@final
class VariantChoice:
    """Decides, once workers have started, which variant a run trains under, and which trials must start again."""

    def __init__(
        self, store: Store, group: StudyGroup, options: RunOptions, spec: StudySpec, record: Record
    ) -> None:
        self._store = store
        self._group = group
        self._options = options
        self._spec = spec
        self._record = record
        remote = options.backend != "local"
        self.variants = Variants(
            store.origins, spec.root, group.name, reuse=spec.reuse, used=spec.variant, remote=remote
        )
        begun_before = any(trial.base == (spec.root, "") for trial in record.trials)
        self._has_variant = bool(spec.variants) or not begun_before
        if not self._has_variant:  # it was started before variants existed
            self.variants.disable()
        self._variant = ""

    def refuse_changes(self, platform: dict[str, str] | None = None) -> None:
        """Raise an error if files (or the platform) differ from the last run, unless changes are accepted."""
        if self._options.accept_changes or not self._record.by_number or not self._has_variant:
            return
        if changes := self.variants.changes(platform):
            raise environment_changed(self._group.name, changes)

    def comparable_first(self, configs: list[Any]) -> list[Any]:
        """Return the configs to rehearse, those first whose probes can be compared with earlier runs."""
        known = {key for origin in self._store.origins.find(self._spec.root) for key in origin.probes}
        return sorted(configs, key=lambda config: probe_key(config.values) not in known) if known else configs

    def decide(self, backend: Backend) -> list[Event]:
        """Decide the variant of this run; return events for trials that were trained under another one."""
        platform = self._platform(backend)
        if self._has_variant:
            self.refuse_changes(platform)
            before = self._store.origins.find(self._spec.root)
            self._variant = self.variants.decide(platform)
            self._warn(platform, before)
            self._store_variant(platform)
        base = self._spec.root, self._variant
        return [TrialRebased(trial.number, *base) for trial in self._record.trials if trial.base_to_come != base]

    def with_variant(self, event: Event) -> Event:
        """Return a request for a new trial with the variant of this run."""
        if isinstance(event, TrialAsked) and event.variant != self._variant:
            return msgspec.structs.replace(event, variant=self._variant)
        return event

    def _platform(self, backend: Backend) -> dict[str, str]:
        """Return the platform that trains the study; warn if workers differ, or leave the rarer ones out."""
        found = backend.platforms if isinstance(backend, PoolBackend) else []
        if not isinstance(backend, PoolBackend) or not found:
            trainer = self._group.first.trainer
            unknown = {"device": "auto"} if trainer.device == "auto" else {}  # what its workers find is not known
            return {**trainer.platform(), **unknown}
        names = [identity("platform", platform) for _, platform in found]
        platforms = {name: platform for name, (_, platform) in zip(names, found, strict=True)}
        counts = Counter(names)
        if len(platforms) > 1 and self._options.same_platform:
            last = identity("platform", self._spec.platform)
            chosen = last if last in platforms else max(platforms, key=lambda name: (counts[name], name))
            log.warning(
                "%s; only workers of %s train",
                _describe_platforms(platforms, counts, chosen),
                "the platform of the last run" if chosen == last else "the most frequent platform",
            )
            backend.admit([platforms[chosen]])
            return platforms[chosen]
        if len(platforms) > 1:
            log.warning(
                "%s: trials that are trained on several platforms are not reproducible bit by bit, and their "
                "states are stored separately; with same_platform=True only workers of one platform train",
                _describe_platforms(platforms, counts, counts.most_common(1)[0][0]),
            )
        backend.admit(list(platforms.values()))
        return mixture(list(platforms.values()))

    def _warn(self, platform: dict[str, str], before: Sequence[Any]) -> None:
        """Warn about what differs, if there are stored states that are not reused."""
        if any(origin.variant == self._variant for origin in before) or not before:
            return
        text = explain_refused(self.variants.refused)
        if not text and self._spec.reuse == "always":
            last = max(before, key=lambda origin: origin.created)
            text = (
                f"{'; '.join(differences(last.platform, platform))}: states that were trained there are not reused"
            )
        if text:
            log.warning("%s: %s", self._group.name, text)

    def _store_variant(self, platform: dict[str, str]) -> None:
        """Store the variant and platform of this run in the catalog."""
        if self._variant == self._spec.variant and platform == self._spec.platform:
            return
        variants = [each for each in self._spec.variants if each != self._variant]
        self._spec = msgspec.structs.replace(self._spec, variants=[*variants, self._variant], platform=platform)
        self._store.catalog.set_spec(self._group.name, msgspec.to_builtins(self._spec))


def expected_variant(store: Store, name: str, spec: StudySpec, platform: Callable[[], dict[str, str]]) -> str:
    """Return the variant that a study would have if this process trained it; ``NEW`` for a new one.

    ``platform`` is called only if the study was not trained before: it may look for a GPU in this process.
    """
    known = store.catalog.find(name)
    before = None if known is None or not store.journal.last(name) else StudySpec.read(known.spec)
    if before is not None and before.root == spec.root:
        return before.variant
    used = "" if before is None else before.variant
    return Variants(store.origins, spec.root, name, reuse=spec.reuse, used=used).find(platform()) or NEW


def environment_changed(name: str, changes: Sequence[str]) -> StudyChangedError:
    """Return the error that says what has changed in the environment of a study."""
    return StudyChangedError(
        f"study {name!r}: {'; '.join(changes)}; restore what changed, give the study another name, or use "
        "run(accept_changes=True) or --accept-changes: complete trials stay as they are, and the others are "
        "trained from the start"
    )


def _describe_platforms(platforms: Mapping[str, dict[str, str]], counts: Counter[str], chosen: str) -> str:
    """Return how the other platforms differ from one, and how many workers have that one."""
    others = [platform for name, platform in platforms.items() if name != chosen]
    differ = "; ".join(line for other in others for line in differences(platforms[chosen], other))
    return f"{counts[chosen]} of {counts.total()} workers have one platform, the others differ ({differ})"
