"""The surroundings of a run: platform, files and probes, compared with those that a study was trained in before."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.backends.pool_backend import PoolBackend
from hoptree.core.errors import StudyChangedError
from hoptree.core.events import Event, TrialAsked, TrialRebased
from hoptree.core.keys import identity
from hoptree.driver.options import RunOptions
from hoptree.driver.variants import Variants, probe_key, told
from hoptree.identity.platform import differences, mixture
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.backends.protocol import Backend
    from hoptree.driver.study_group import StudyGroup
    from hoptree.store import Store

NEW = "new"  # stands for a variant that does not exist yet: nothing is stored under it

log = logging.getLogger("hoptree")


@final
class VariantChoice:
    """Decides when workers have started under which variant a study goes on, and what has to begin again."""

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
        if not self._has_variant:  # it was begun before there were variants, and goes on as it was
            self.variants.leave()
        self._variant = ""

    def refuse_changes(self, platform: dict[str, str] | None = None) -> None:
        """Refuse to go on with other files (or another platform) than those of the last run, unless accepted."""
        if self._options.accept_changes or not self._record.by_number or not self._has_variant:
            return
        if changes := self.variants.changes(platform):
            raise changed(self._group.name, changes)

    def comparable_first(self, configs: list[Any]) -> list[Any]:
        """Return configs to rehearse, those first whose probes can be compared with what earlier runs gave."""
        known = {key for origin in self._store.origins.find(self._spec.root) for key in origin.probes}
        return sorted(configs, key=lambda config: probe_key(config.values) not in known) if known else configs

    def settle(self, backend: Backend) -> list[Event]:
        """Decide under which variant the study goes on; return what becomes of trials that were under another."""
        platform = self._platform(backend)
        if self._has_variant:
            self.refuse_changes(platform)
            before = self._store.origins.find(self._spec.root)
            self._variant = self.variants.decide(platform)
            self._tell(platform, before)
            self._note(platform)
        base = self._spec.root, self._variant
        return [TrialRebased(trial.number, *base) for trial in self._record.trials if trial.base_to_come != base]

    def placed(self, event: Event) -> Event:
        """Return a request for a new trial with the variant that it is trained under."""
        if isinstance(event, TrialAsked) and event.variant != self._variant:
            return msgspec.structs.replace(event, variant=self._variant)
        return event

    def _platform(self, backend: Backend) -> dict[str, str]:
        """Return the platform on which the study is trained; workers of others are left out, or told of."""
        found = backend.platforms if isinstance(backend, PoolBackend) else []
        if not isinstance(backend, PoolBackend) or not found:
            return self._group.first.trainer.platform()
        names = [identity("platform", platform) for _, platform in found]
        kinds = {name: platform for name, (_, platform) in zip(names, found, strict=True)}
        if len(kinds) > 1 and self._options.same_platform:
            most = Counter(names).most_common(1)[0][0]
            log.warning("%s; only the most frequent kind trains", _unlike(list(kinds.values()), names, most))
            backend.admit([kinds[most]])
            return kinds[most]
        if len(kinds) > 1:
            log.warning(
                "%s: trials that are trained on both are not reproducible bit by bit, and their states are kept "
                "apart from those of one kind; with same_platform=True only one kind trains",
                _unlike(list(kinds.values()), names, names[0]),
            )
            self.variants.forget_probes()
        backend.admit(list(kinds.values()))
        return mixture(list(kinds.values()))

    def _tell(self, platform: dict[str, str], before: Sequence[Any]) -> None:
        """Say what differs, if there is something stored that is not reused."""
        if any(origin.variant == self._variant for origin in before) or not before:
            return
        text = told(self.variants.refused)
        if not text and self._spec.reuse == "always":
            last = max(before, key=lambda origin: origin.created)
            text = f"{'; '.join(differences(last.platform, platform))}: nothing that was trained there is reused"
        if text:
            log.warning("%s: %s", self._group.name, text)

    def _note(self, platform: dict[str, str]) -> None:
        """Keep in the catalog what the study goes on with."""
        if self._variant == self._spec.variant and platform == self._spec.platform:
            return
        variants = [each for each in self._spec.variants if each != self._variant]
        self._spec = msgspec.structs.replace(self._spec, variants=[*variants, self._variant], platform=platform)
        self._store.catalog.set_spec(self._group.name, msgspec.to_builtins(self._spec))


def expected_variant(store: Store, name: str, spec: StudySpec, platform: dict[str, str]) -> str:
    """Return the variant under which a study would go on if this process trained it; ``NEW`` for a new one."""
    known = store.catalog.find(name)
    before = None if known is None or not store.journal.last(name) else StudySpec.read(known.spec)
    if before is not None and before.root == spec.root:
        return before.variant
    used = "" if before is None else before.variant
    return Variants(store.origins, spec.root, name, reuse=spec.reuse, used=used).find(platform) or NEW


def changed(name: str, changes: Sequence[str]) -> StudyChangedError:
    """Return the error that says what has changed around a study."""
    return StudyChangedError(
        f"study {name!r}: {'; '.join(changes)}; put back what it was, give the study another name, or say "
        "run(accept_changes=True), or --accept-changes: trials that are complete stay as they are, and the others "
        "are trained anew"
    )


def _unlike(kinds: Sequence[dict[str, str]], names: Sequence[str], most: str) -> str:
    first, *others = kinds
    differ = "; ".join(line for other in others for line in differences(first, other))
    return f"{names.count(most)} of {len(names)} workers are of one kind, and others are not ({differ})"
