"""The study: the composition root that turns typed settings into objects and lets them run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.lineage import digest
from hoptree.core.settings import Order, Settings
from hoptree.results import Results
from hoptree.search.protocol import Goal, Procedure
from hoptree.search.space import Space
from hoptree.session import Session

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Store
    from hoptree.trainers.base import Trainer


class StudyChangedError(HoptreeError):
    """The store holds a study of this name with other code, data or settings."""


@final
class Study:
    """One model-selection job: trainer, dataset, space, search, goal."""

    def __init__(
        self,
        name: str,
        *,
        trainer: Trainer,
        data: Dataset,
        space: Space,
        search: Procedure,
        maximize: str | None = None,
        minimize: str | None = None,
        seed: int = 0,
        store: str | Path = ".hoptree",
        order: Order = "strict",
        share: bool = True,
    ) -> None:
        if (maximize is None) == (minimize is None):
            raise WorkloadError(
                f"maximize={maximize!r}, minimize={minimize!r}; expected exactly one: a direction is never guessed"
            )
        if not name or "/" in name:
            raise WorkloadError(f"name: {name!r}; expected a non-empty name without '/'")
        self.name = name
        self._trainer = trainer
        self._data = data
        self._space = space
        self._search = search
        self._goal = Goal(maximize or minimize or "", maximize is not None)
        self._seed = seed
        self._store = Path(store)
        self._share = share
        self._settings = Settings(data.partitions, order)
        search.search(space, self._goal, seed)  # refuses what cannot be searched, before anything runs

    def run(self, workers: int | None = None, *, accept_changes: bool = False) -> Results:
        """Train what is missing, and return what was found; a finished study trains nothing.

        ``workers`` defaults to cores over the trainer's threads. Code, data or settings that differ from what
        the store holds under this name are refused, unless ``accept_changes``.
        """
        from hoptree.store import Store

        count = max(1, (os.cpu_count() or 1) // self._trainer.threads) if workers is None else workers
        if count < 1:
            raise WorkloadError(f"workers: {workers}; expected at least 1")
        store = Store(self._store)
        with store, store.lease(self.name) as lease:
            self._check_unchanged(store, accept_changes)
            session = Session(
                store,
                lease,
                trainer=self._trainer,
                data=self._data,
                search=self._search.search(self._space, self._goal, self._seed),
                settings=self._settings,
                root=self.root,
                seed=self._seed,
                share=self._share,
            )
            savings = session.run(count)
            return Results(session.trials(), self._goal, savings)

    def _check_unchanged(self, store: Store, accept: bool) -> None:
        spec = self._spec()
        known = store.catalog.find(self.name)
        if known is None:
            store.catalog.register(self.name, spec)
            return
        changed = [field for field in spec if known.spec.get(field) != spec[field]]
        if changed and not accept:
            raise StudyChangedError(
                f"study {self.name!r}: {', '.join(changed)} changed since it was begun; give it another name, or "
                "say run(accept_changes=True) to go on with what is stored"
            )

    def _spec(self) -> dict[str, Any]:
        return {
            "trainer": self._trainer.fingerprint,
            "data": self._data.fingerprint,
            "space": {name: str(value) for name, value in self._space.items()},
            "search": repr(self._search),
            "goal": f"{'maximize' if self._goal.maximize else 'minimize'} {self._goal.metric}",
            "seed": self._seed,
            "order": self._settings.order,
            "share": self._share,
        }

    @property
    def root(self) -> str:
        """All that lineages start from: code, data and seed."""
        return digest(self._trainer.fingerprint, self._data.fingerprint, self._seed)
