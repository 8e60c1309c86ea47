"""What a store holds, what of it can go, and how much that frees."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import msgspec

if TYPE_CHECKING:
    from hoptree.store import Store

Kind: TypeAlias = Literal["states", "strays", "partial", "forgotten", "datasets", "logs"]


class StoreHolding(msgspec.Struct, frozen=True):
    """Things of one kind: how many there are and how large, and how many of them can go."""

    kind: Kind
    what: str
    count: int
    size: int
    can_go: int
    frees: int


class StudyHolding(msgspec.Struct, frozen=True):
    """The states that a study holds: ``alone`` are the bytes that nobody else needs."""

    name: str
    status: str
    states: int
    size: int
    alone: int


@final
class Cleanup:
    """Looks through a store, and removes what nobody needs when it is told to.

    ``forget`` are studies that are to be forgotten: what can go is told as if they were.
    """

    def __init__(self, store: Store, keep: int, forget: Collection[str] = ()) -> None:
        self._store = store
        self._keep = keep
        self._forget = forget
        others = [known for known in store.catalog.all() if known.name not in forget]
        named = {name for known in others for name in (known.name, *known.spec.get("members", ()))}
        going = [known for known in store.catalog.all() if known.name in forget]
        theirs = {name for known in going for name in (known.name, *known.spec.get("members", ()))}
        self._logged = sorted(theirs - named)  # studies whose logs nobody else looks at
        self._sizes = store.states.sizes()
        self._books = store.ledger.all()
        self._busy = [known.name for known in store.catalog.all() if store.holder(known.name) is not None]

    def studies(self) -> list[StudyHolding]:
        """Return what each study holds."""
        found = []
        for known in self._store.catalog.all():
            held = [record for record in self._books if known.name in record.held_by]
            size = sum(self._sizes.get(record.key, 0) for record in held)
            alone = sum(self._sizes.get(record.key, 0) for record in held if len(record.held_by) == 1)
            status = "running" if known.name in self._busy else known.status
            found.append(StudyHolding(known.name, status, len(held), size, alone))
        return found

    def holdings(self) -> list[StoreHolding]:
        """Return what there is of each kind, and what of it can go."""
        going = [record.key for record in self._store.ledger.to_evict(self._keep, self._forget)]
        states = _total(self._sizes.get(record.key, 0) for record in self._books)
        free = _total(self._sizes[key] for key in going if key in self._sizes)
        strays = _total(self._strays().values())
        partial = _total(self._store.states.partial().values())
        datasets, unused = _total(map(folder_size, self._datasets())), _total(map(folder_size, self._unused()))
        logs = _total(file.stat().st_size for file in self._logs())
        left = _total(map(folder_size, self._of_forgotten()))
        idle = not self._busy
        nothing = (0, 0)
        return [
            StoreHolding("states", "states of studies, or kept for the next one", *states, *free),
            StoreHolding("strays", "states that no study knows of", *strays, *(strays if idle else nothing)),
            StoreHolding("partial", "files that crashed writers left", *partial, *(partial if idle else nothing)),
            StoreHolding("forgotten", "logs and shared memory of studies to forget", *left, *left),
            StoreHolding("datasets", "datasets; no study was run with those that can go", *datasets, *unused),
            StoreHolding("logs", "logs of what went wrong", *logs, *logs),
        ]

    def clean(self, kinds: Iterable[Kind]) -> int:
        """Remove what can go of some kinds, and return how many bytes that has freed."""
        freed = 0
        for kind in kinds:
            match kind:
                case "states":
                    gone = self._store.ledger.evict(self._keep)
                    freed += sum(self._sizes.get(record.key, 0) for record in gone)
                case "strays" if not self._busy:
                    freed += sum(self._store.states.delete(key) for key in self._strays())
                case "partial" if not self._busy:
                    freed += self._store.states.clean()
                case "forgotten":
                    freed += sum(map(_remove, self._of_forgotten()))
                case "datasets":
                    freed += sum(map(_remove, self._unused()))
                case "logs":
                    freed += sum(map(_remove, self._logs()))
                case _:
                    pass
        return freed

    def _strays(self) -> dict[str, int]:
        known = {record.key for record in self._books}
        return {key: size for key, size in self._sizes.items() if key not in known}

    def _datasets(self) -> list[Path]:
        return sorted(path.parent for path in self._store.folder.glob("data/*/manifest.json"))

    def _unused(self) -> list[Path]:
        from hoptree.data import DataError, Dataset

        studies = [known for known in self._store.catalog.all() if known.name not in self._forget]
        used = {known.spec.get("data") for known in studies}
        unused = []
        for path in self._datasets():
            with suppress(DataError):  # one that cannot be read stays: who knows whose it is
                if Dataset.open(path).fingerprint not in used:
                    unused.append(path)
        return unused

    def _logs(self) -> list[Path]:
        theirs = set(self._logs_of_forgotten())
        return sorted(file for file in (self._store.folder / "logs").glob("*.txt") if file not in theirs)

    def _of_forgotten(self) -> list[Path]:
        """Return what studies that are to be forgotten have outside of database and states."""
        from hoptree.backends.local import slots_of

        slots = [folder for name in self._forget for folder in slots_of(self._store.folder, name)]
        return [*(folder for folder in slots if folder.is_dir()), *self._logs_of_forgotten()]

    def _logs_of_forgotten(self) -> list[Path]:
        from hoptree.store.logs import Logs

        found = []
        logs = Logs(self._store.folder / "logs")
        for name in self._logged:
            pattern = re.escape(logs.of_trial(name, 0).name).replace(r"\-0\.txt", r"\-\d+\.txt")
            found += [file for file in logs.folder.glob("*.txt") if re.fullmatch(pattern, file.name)]
        return sorted(found)


def folder_size(folder: Path) -> int:
    """Return how many bytes a file, or the files below a folder, take."""
    if folder.is_file():
        return folder.stat().st_size
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _total(sizes: Iterable[int]) -> tuple[int, int]:
    each = list(sizes)
    return len(each), sum(each)


def _remove(path: Path) -> int:
    size = folder_size(path) if path.is_dir() else path.stat().st_size
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return size
