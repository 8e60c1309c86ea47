"""States at a URL: in an object store, or in any other file system that fsspec supports.

Credentials and server come from each machine's environment (for S3 its usual variables and files, or fsspec's own
configuration), so that no store and no journal ever holds a secret.
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

# Protocols without folders: creating a folder is not needed there, and could create a bucket by mistake.
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "r2")


@final
class RemoteStates:
    """One object per state. In an object store an object is complete or absent.

    Other file systems may hold a truncated file if its writer died. Its checksum reveals that when it is read, and
    the state is then trained again like any damaged state.
    """

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self._files, self._root = _file_system(self.location)

    def put(self, key: str, arrays: Arrays, meta: dict[str, Any], *, durable: bool = True) -> int:
        """Store a state and return its size in bytes; its location determines how durable it is."""
        parts = state_file.lay_out(key, arrays, meta)
        self._write(file_name(key), b"".join(parts.pieces))
        return parts.size

    def get(self, key: str, verify: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return a state's arrays, read-only, and its meta; always verified, because it crossed a network."""
        try:
            with self._translated():
                content = self._files.cat_file(self._path(file_name(key)))
        except FileNotFoundError:
            raise missing(key, self.location) from None
        return state_file.read(content, self.address(key), key)

    def delete(self, key: str) -> int:
        """Delete a state and return the number of bytes freed: 0 if it does not exist."""
        size = self.size(key)
        return size if self._remove(file_name(key)) else 0  # also removes a truncated object without bytes

    def __contains__(self, key: str) -> bool:
        return self._exists(file_name(key))

    def size(self, key: str) -> int:
        """Return the size of a state's object in bytes: 0 if it does not exist."""
        self._files.invalidate_cache()
        try:
            with self._translated():
                return int(self._files.info(self._path(file_name(key)))["size"])
        except FileNotFoundError:
            return 0

    def keys(self) -> list[str]:
        """Return the keys of all states, sorted."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the object size in bytes by key, sorted by key."""
        self._files.invalidate_cache()  # other processes write too
        try:
            with self._translated():
                found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        names = {str(path).rpartition("/")[2]: int(about["size"]) for path, about in found.items()}
        return {name.removesuffix(SUFFIX): names[name] for name in sorted(names) if name.endswith(SUFFIX)}

    def address(self, key: str) -> str:
        """Return the URL of a state's object, whether it exists or not."""
        return f"{self.location}/{file_name(key)}"

    def partial(self) -> dict[str, int]:
        """Return nothing: incomplete uploads are not visible."""
        return {}

    def clean(self) -> int:
        """Return 0: the object store itself removes abandoned uploads (by a lifecycle rule of the bucket)."""
        return 0

    def write_marker(self, name: str) -> None:
        """Write a marker, which every process that uses this location can see."""
        self._write(name, b"")

    def has_marker(self, name: str) -> bool:
        """Return whether a marker exists."""
        return self._exists(name)

    def markers(self, prefix: str) -> list[str]:
        """Return the names of the markers that start with a prefix, sorted."""
        self._files.invalidate_cache()  # other processes write too
        with self._translated():
            found = self._files.glob(self._path(f"{prefix}*"))
        return sorted(str(path).rpartition("/")[2] for path in found)

    def remove_marker(self, name: str) -> None:
        """Remove a marker, if it exists."""
        self._remove(name)

    # --- file operations --------------------------------------------------------------------------------

    def _remove(self, name: str) -> bool:
        try:
            with self._translated():
                self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _exists(self, name: str) -> bool:
        self._files.invalidate_cache()
        with self._translated():
            return bool(self._files.exists(self._path(name)))

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            with self._translated():
                if self.location.partition("://")[0] not in _BUCKETS:
                    self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(path, content)
        except FileNotFoundError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise  # callers handle it
        except Exception as error:  # every file system has its own errors
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> StoreUnreachableError:
        return StoreUnreachableError(
            f"{self.location}: cannot access the store's states: {error or type(error).__name__}; check that the "
            "location exists, that this machine's credentials allow writing there, and that its server runs"
        )


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(
            f"{url}: needs fsspec, which is not installed; pip install 'hoptree[remote]'"
        ) from None
    if url.startswith("memory:"):
        raise StoreError(
            f"states: {url} exists in one process only; expected a location that workers can access too"
        )
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}; it must be installed wherever workers run") from None
    except ValueError as error:
        raise StoreError(
            f"states: {url}: {error}; expected a folder, or a URL of a file system that fsspec supports, such as "
            "s3://BUCKET/PATH or gs://BUCKET/PATH"
        ) from None
    return files, str(root).rstrip("/")
