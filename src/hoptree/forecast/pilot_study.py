"""The study that a pilot runs: some configs of another study, on a part of its data, in a store of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

from hoptree.core.schedules import Config
from hoptree.core.settings import Settings
from hoptree.driver.study_group import StudyDefinition
from hoptree.record.spec import StudySpec
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Goal, Procedure, Search
from hoptree.search.space import Space
from hoptree.search.widening import SearchVersion

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Store


@final
class PilotSearch:
    """The procedure that asks for all configs at once."""

    def __init__(self, configs: Sequence[Config], epochs: int) -> None:
        self._configs, self._epochs = configs, epochs

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search, which is the same for all spaces."""
        return Fixed(self._configs, self._epochs, every=1)


@final
class PilotStudy:
    """What a driver needs of a study (``StudyDefinition``): every config is trained for ``epochs``.

    Its name and its fingerprints mean nothing, because nobody else uses its store.
    """

    share = False  # the same config may be trained twice, so that all workers are busy
    keep = 0
    save_every = 0

    def __init__(
        self, like: StudyDefinition, data: Dataset, configs: Sequence[Config], epochs: int, store: Path
    ) -> None:
        self.name = like.name
        self.trainer = like.trainer
        self.data = data
        self.space = like.space
        self._search = PilotSearch(configs, epochs)
        self.search: Procedure | Sequence[Procedure] = self._search
        self.goal = like.goal
        self.seed = like.seed
        self.store = store
        self.settings = Settings(data.partitions, retries=0)

    @property
    def spec(self) -> StudySpec:
        """A definition that differs from that of all other studies in this store."""
        return StudySpec(
            trainer="pilot",
            data=self.data.fingerprint,
            space={"names": [], "where": []},
            search="pilot",
            goal=self.goal,
            seed=self.seed,
            share=self.share,
            settings=self.settings,
            root="pilot",
            program="",
        )

    def open_store(self, create: bool = True) -> Store:
        """Open the store of the pilot."""
        from hoptree.store import Store

        return Store(self.store, create)

    def searches(self, versions: Sequence[SearchVersion] = ()) -> list[Search]:
        """Return the search that asks for all configs at once."""
        return [self._search.search(self.space, self.goal, self.seed)]

    def widens(self, versions: Sequence[SearchVersion]) -> bool:
        """Return False: it runs only once."""
        return False
