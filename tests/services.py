"""What tests use of the operating system: how it is found, and the Debian package that brings it.

``make services`` runs this file: it says what is missing and what it will install, and installs it. Tests install
nothing. They skip, by name, what needs a service that is not there; in CI (the variable ``CI`` is set) they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

_APT: Final = ("apt-get", "--quiet", "--option", "DPkg::Lock::Timeout=300")


@final
@dataclass(frozen=True)
class Service:
    """A program or a dataset; ``find`` returns its folder."""

    name: str
    package: str
    used_by: str
    find: Callable[[], Path | None]


def _find_postgresql() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _find_fashion_mnist() -> Path | None:
    folder = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
    return folder if folder.is_dir() else None


POSTGRESQL: Final = Service("PostgreSQL", "postgresql", "tests of journals in a database", _find_postgresql)
FASHION_MNIST: Final = Service(
    "Fashion-MNIST", "dataset-fashion-mnist", "examples/fashion.py and benchmarks", _find_fashion_mnist
)
SERVICES: Final = (POSTGRESQL, FASHION_MNIST)


def require(service: Service) -> Path:
    """Return where a service is; without it, skip the test that asks, and in CI fail it."""
    import pytest  # `make services` runs before anything is installed

    found = service.find()
    if found is None:
        why = f"{service.name} is not installed; run `make services`, or install Debian's package {service.package}"
        if os.environ.get("CI", "").lower() in ("", "0", "false"):
            pytest.skip(why)
        pytest.fail(f"{why}: in CI (the variable CI is set) nothing is skipped")
    return found


def install(services: Sequence[Service] = SERVICES) -> int:
    """Say what is there and what is missing, install that, and return the exit code."""
    missing = []
    for service in services:
        found = service.find()
        print(f"{service.name} (for {service.used_by}): {found or 'missing'}", flush=True)
        if found is None:
            missing.append(service.package)
    if not missing:
        return 0
    install = [*_APT, "install", "--yes", "--no-install-recommends", *missing]
    if shutil.which("apt-get") is None:
        print(f"There is no apt-get here: install what these packages of Debian hold: {', '.join(missing)}")
        return 1
    if os.geteuid() != 0:
        print(f"Only root can install them; run as root: apt-get update && {' '.join(install)}")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ([*_APT, "update"], install):
        print(f"Running: {' '.join(command)}", flush=True)
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            print(f"It ended with exit code {code}; the tests that need {', '.join(missing)} will be skipped")
            return code
    return 0


if __name__ == "__main__":
    sys.exit(install())
