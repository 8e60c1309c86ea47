"""States by key at a URL: an object store, or any other file system that fsspec knows.

Which credentials and which server are meant comes from each machine's surroundings (for S3 its usual variables and
files, or fsspec's own configuration), so that no store and no journal ever holds a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import MissingExtraError
from hoptree.store import state_file
from hoptree.store.errors import StoreError, StoreUnreachableError
from hoptree.store.states import SUFFIX, file_name, missing

if TYPE_CHECKING:
    from hoptree.store.arrays import Array, Arrays

# Where folders need not be made, and where that would even make a bucket that nobody meant.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "r2")


@final
class RemoteStates:
    """One object per state. Object stores show one whole or not at all.

    Other file systems may show one that was cut off when its writer died. Its checksum gives it away when it is
    read, and it is then trained again like any damaged state.
    """

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self._files, self._root = _file_system(self.location)

    def put(self, key: str, arrays: Arrays, meta: dict[str, Any], *, durable: bool = True) -> int:
        """Store a state and return its size in bytes; it is as durable as its location makes it, in any case."""
        parts = state_file.lay_out(key, arrays, meta)
        self._write(file_name(key), b"".join(parts.pieces))
        return parts.size

    def get(self, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return a state's arrays, read-only, and its meta; what was brought over a network is verified always."""
        try:
            with self._reaching():
                content = self._files.cat_file(self._path(file_name(key)))
        except FileNotFoundError:
            raise missing(key, self.location) from None
        return state_file.read(content, self.address(key), key)

    def delete(self, key: str) -> int:
        """Remove a state and return the bytes that this frees: 0 if it was not there."""
        size = self.size(key)
        return size if self._remove(file_name(key)) else 0  # also one that was cut off and has no bytes

    def __contains__(self, key: str) -> bool:
        return self._exists(file_name(key))

    def size(self, key: str) -> int:
        """Return the size of a state's object in bytes: 0 if it is not there."""
        self._files.invalidate_cache()
        try:
            with self._reaching():
                return int(self._files.info(self._path(file_name(key)))["size"])
        except FileNotFoundError:
            return 0

    def keys(self) -> list[str]:
        """Return the keys of all states, in order."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return every key, in order, with its object's size in bytes."""
        self._files.invalidate_cache()  # others write too
        try:
            with self._reaching():
                found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        names = {str(path).rpartition("/")[2]: int(about["size"]) for path, about in found.items()}
        return {name.removesuffix(SUFFIX): names[name] for name in sorted(names) if name.endswith(SUFFIX)}

    def address(self, key: str) -> str:
        """Return the URL of a state's object, whether it is there or not."""
        return f"{self.location}/{file_name(key)}"

    def partial(self) -> dict[str, int]:
        """Return nothing: what is not whole cannot be seen."""
        return {}

    def clean(self) -> int:
        """Return 0: abandoned uploads are the object store's own to remove (a rule of the bucket)."""
        return 0

    def sign(self, name: str) -> None:
        """Leave a sign by which another process sees that it has the same location."""
        self._write(name, b"")

    def signed(self, name: str) -> bool:
        """Return whether somebody has left that sign."""
        return self._exists(name)

    def signs(self, beginning: str) -> list[str]:
        """Return the signs whose names begin like this."""
        self._files.invalidate_cache()  # others leave some too
        with self._reaching():
            found = self._files.glob(self._path(f"{beginning}*"))
        return sorted(str(path).rpartition("/")[2] for path in found)

    def unsign(self, name: str) -> None:
        """Take a sign away."""
        self._remove(name)

    # --- inside -----------------------------------------------------------------------------------------

    def _remove(self, name: str) -> bool:
        try:
            with self._reaching():
                self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _exists(self, name: str) -> bool:
        self._files.invalidate_cache()
        with self._reaching():
            return bool(self._files.exists(self._path(name)))

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            with self._reaching():
                if self.location.partition("://")[0] not in _BUCKETS:
                    self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(path, content)
        except FileNotFoundError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise  # our callers know what it means
        except Exception as error:  # every file system has errors of its own
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> StoreUnreachableError:
        return StoreUnreachableError(
            f"{self.location}: the store's states cannot be reached: {error or type(error).__name__}; check that "
            "the location exists, that this machine may write there (its credentials), and that its server runs"
        )


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(
            f"{url}: needs fsspec, which is not installed; pip install 'hoptree[remote]'"
        ) from None
    if url.startswith("memory:"):
        raise StoreError(f"states: {url} exists in one process only; expected a location that workers see too")
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}; it must be installed wherever workers run") from None
    except ValueError as error:
        raise StoreError(
            f"states: {url}: {error}; expected a folder, or a URL of a file system that fsspec knows, such as "
            "s3://BUCKET/PATH or gs://BUCKET/PATH"
        ) from None
    return files, str(root).rstrip("/")
