"""What a store holds, what can be removed, and how many bytes that frees."""

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
    """Count and total size of one kind of files, and how many of them can be removed."""

    kind: Kind
    what: str
    count: int
    size: int
    can_go: int
    frees: int


class StudyHolding(msgspec.Struct, frozen=True):
    """The states that a study holds; ``alone`` counts the bytes that no other study needs."""

    name: str
    status: str
    states: int
    size: int
    alone: int


@final
class Cleanup:
    """Lists what a store holds, and removes on request what no study needs.

    ``forget`` names studies to be removed: what can be removed is computed as if they were removed already.
    """

    def __init__(self, store: Store, keep: int, forget: Collection[str] = ()) -> None:
        self._store = store
        self._keep = keep
        self._forget = forget
        others = [known for known in store.catalog.all() if known.name not in forget]
        named = {name for known in others for name in (known.name, *known.spec.get("members", ()))}
        removed = [known for known in store.catalog.all() if known.name in forget]
        theirs = {name for known in removed for name in (known.name, *known.spec.get("members", ()))}
        self._logged = sorted(theirs - named)  # studies whose logs no remaining study refers to
        self._sizes = store.states.sizes()
        self._records = store.ledger.all()
        self._running = [known.name for known in store.catalog.all() if store.holder(known.name) is not None]

    def studies(self) -> list[StudyHolding]:
        """Return the states that each study holds."""
        found = []
        for known in self._store.catalog.all():
            held = [record for record in self._records if known.name in record.held_by]
            size = sum(self._sizes.get(record.key, 0) for record in held)
            alone = sum(self._sizes.get(record.key, 0) for record in held if len(record.held_by) == 1)
            status = "running" if known.name in self._running else known.status
            found.append(StudyHolding(known.name, status, len(held), size, alone))
        return found

    def holdings(self) -> list[StoreHolding]:
        """Return count and size of each kind of files, and how much of it can be removed."""
        evicted = [record.key for record in self._store.ledger.to_evict(self._keep, self._forget)]
        states = _total(self._sizes.get(record.key, 0) for record in self._records)
        free = _total(self._sizes[key] for key in evicted if key in self._sizes)
        strays = _total(self._strays().values())
        partial = _total(self._store.states.partial().values())
        datasets, unused = _total(map(folder_size, self._datasets())), _total(map(folder_size, self._unused()))
        logs = _total(file.stat().st_size for file in self._logs())
        left = _total(map(folder_size, self._of_forgotten()))
        idle = not self._running
        nothing = (0, 0)
        return [
            StoreHolding("states", "states that studies need, or kept for reuse", *states, *free),
            StoreHolding("strays", "states that belong to no study", *strays, *(strays if idle else nothing)),
            StoreHolding("partial", "files left by crashed writers", *partial, *(partial if idle else nothing)),
            StoreHolding("forgotten", "logs and shared memory of studies to remove", *left, *left),
            StoreHolding("datasets", "datasets; those no study uses can be removed", *datasets, *unused),
            StoreHolding("logs", "error logs", *logs, *logs),
        ]

    def clean(self, kinds: Iterable[Kind]) -> int:
        """Remove what can be removed of the given kinds, and return how many bytes that freed."""
        freed = 0
        for kind in kinds:
            match kind:
                case "states":
                    evicted = self._store.ledger.evict(self._keep)
                    freed += sum(self._sizes.get(record.key, 0) for record in evicted)
                case "strays" if not self._running:
                    freed += sum(self._store.states.delete(key) for key in self._strays())
                case "partial" if not self._running:
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
        known = {record.key for record in self._records}
        return {key: size for key, size in self._sizes.items() if key not in known}

    def _datasets(self) -> list[Path]:
        return sorted(path.parent for path in self._store.folder.glob("data/*/manifest.json"))

    def _unused(self) -> list[Path]:
        from hoptree.data import DataError, Dataset

        studies = [known for known in self._store.catalog.all() if known.name not in self._forget]
        used = {known.spec.get("data") for known in studies}
        unused = []
        for path in self._datasets():
            with suppress(DataError):  # keep a dataset that cannot be read: we cannot tell who uses it
                if Dataset.open(path).fingerprint not in used:
                    unused.append(path)
        return unused

    def _logs(self) -> list[Path]:
        theirs = set(self._logs_of_forgotten())
        return sorted(file for file in (self._store.folder / "logs").glob("*.txt") if file not in theirs)

    def _of_forgotten(self) -> list[Path]:
        """Return the files of studies to be removed that are in neither the database nor the states."""
        from hoptree.backends.local import slot_folders_of_study

        slots = [folder for name in self._forget for folder in slot_folders_of_study(self._store.folder, name)]
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
    """Return the size in bytes of a file, or of all files below a folder."""
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
