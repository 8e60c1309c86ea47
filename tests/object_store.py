"""A real S3 server on this machine: a process with a door on loopback, and a bucket."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "hoptree"


@contextmanager
def object_store() -> Iterator[str]:
    """Start a server and return its address; the bucket ``hoptree`` is there."""
    command = [sys.executable, "-u", "-m", "moto.server", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            raise AssertionError("the server did not start")
        _make_bucket(found.group(1))
        _forget_others()
        yield found.group(1)
    finally:
        _forget_others()
        process.kill()
        process.wait()
        process.stdout.close()


def surroundings(address: str) -> dict[str, str]:
    """Return the variables by which any process finds the server, as users set them."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def _forget_others() -> None:
    """Let this process look at its surroundings again: fsspec remembers the first server."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def _make_bucket(address: str) -> None:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{address}/{BUCKET}", method="PUT")):
        pass
