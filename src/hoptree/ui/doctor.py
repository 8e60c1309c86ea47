"""Checks of the machine, the installation and the store: what was found, a verdict, and how to fix it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from hoptree.core.errors import HoptreeError
from hoptree.report.tables import size

Verdict: TypeAlias = Literal["ok", "warn", "fail", "absent"]

_SHM = Path("/dev/shm")  # noqa: S108 where it is mounted
_LITTLE_SHM = 1 << 30
_LITTLE_DISK = 5 * 10**9
_LITTLE_MEMORY = 2 * 10**9
_FEW_FILES = 1024

# Optional packages, the extra that installs each, and what it is for.
_OPTIONAL = (
    ("ray", "ray", "clusters"),
    ("optuna", "optuna", "samplers such as TPE"),
    ("scipy", "sampling", "sobol and latin-hypercube samples"),
    ("ortools", "optimize", "exact schedules"),
    ("highspy", "optimize", "exact schedules"),
    ("matplotlib", "plot", "charts"),
    ("psycopg", "postgresql", "journals in PostgreSQL"),
    ("fsspec", "remote", "states at a URL"),
    ("tensorboard", "tensorboard", "exports for TensorBoard"),
    ("mlflow", "mlflow", "exports for MLflow"),
    ("wandb", "wandb", "showing studies in Weights & Biases"),
    ("pandas", "pandas", "results.to_frame()"),
    ("sklearn", "demo", "hoptree demo"),
)


class Check(msgspec.Struct, frozen=True):
    """The result of one check; ``absent`` means an optional package that is not installed."""

    about: str
    verdict: Verdict
    found: str
    fix: str = ""


def examine(location: str, journal: str | None, deep: bool = False) -> Iterator[Check]:
    """Yield the checks one by one; with ``deep`` every state of the store is read."""
    yield from _installation()
    yield from _plugins()
    yield from _machine()
    yield _platform()
    yield _shared_memory()
    yield _disk(Path(location))
    yield from _store(location, journal, deep)


# --- what is installed ------------------------------------------------------------------------------------


def _installation() -> Iterator[Check]:
    from hoptree import __version__

    yield Check("hoptree", "ok", f"{__version__}, {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield _torch()
    for package, extra, what in _OPTIONAL:
        install = f"for {what}: pip install 'hoptree[{extra}]'"
        found = _version(package)
        yield Check(package, "ok", found) if found else Check(package, "absent", "not installed", install)


def _torch() -> Check:
    found = _version("torch")
    if not found:
        return Check("torch", "warn", "not installed", "to train: pip install 'hoptree[torch]'")
    try:
        import torch
    except Exception as error:  # a broken installation can raise anything
        return Check("torch", "fail", f"{found} cannot be imported: {error}", "install it again")
    devices = [f"{torch.cuda.device_count()} CUDA devices"] if torch.cuda.is_available() else []
    devices += ["MPS"] if torch.backends.mps.is_available() else []
    return Check("torch", "ok", f"{found}; devices: {', '.join(['CPU', *devices])}")


def _platform() -> Check:
    """Return the platform that is part of state keys: states are reused on the same platform only."""
    from hoptree.identity.platform import machine_platform

    found = machine_platform()
    if _version("torch"):
        try:
            from hoptree.trainers.torch_build import torch_platform
        except Exception as error:  # see the check of torch
            return Check("platform", "warn", f"unknown, torch cannot be imported: {error}", "install torch again")
        found |= torch_platform("cpu")
    names = ", ".join(f"{name} {value}" for name, value in sorted(found.items()))
    return Check("platform", "ok", f"{names}; states from other platforms are not reused")


def _version(package: str) -> str:
    if find_spec(package) is None:
        return ""
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


# --- what other packages register ---------------------------------------------------------------------------


def _plugins() -> Iterator[Check]:
    from hoptree.backends.choice import BUILT_IN
    from hoptree.backends.plugins import KINDS, plugins

    for kind in KINDS:
        found = plugins(kind)
        names = [plugin.name for plugin in found]
        for plugin in found:
            about = f"{kind.removesuffix('s')} {plugin.name}"
            where = f"{plugin.value} of {plugin.package} {plugin.version}".rstrip()
            try:
                plugin.load()
            except HoptreeError as error:
                yield Check(about, "fail", str(error), f"pip install --force-reinstall {plugin.package}")
                continue
            if kind == "backends" and plugin.name in BUILT_IN:
                fix = f"import it and pass its settings: the name {plugin.name!r} selects Hoptree's own backend"
                yield Check(about, "warn", f"{where}: Hoptree has a backend of this name", fix)
            elif names.count(plugin.name) > 1:
                yield Check(about, "warn", f"{where}: another package registers this name", "uninstall one of them")
            else:
                yield Check(about, "ok", where)


# --- the machine ------------------------------------------------------------------------------------------


def _machine() -> Iterator[Check]:
    yield Check("system", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}")
    cores, usable, granted = os.cpu_count() or 1, _usable_cores(), _granted_cores()
    found = f"{cores} cores" + (f", {usable} available to this process" if usable != cores else "")
    if granted is not None and granted < usable:
        fix = f"set workers={max(1, int(granted))}: the default is one worker per core"
        yield Check("cores", "warn", f"{found}, CPU quota of {granted:g} cores", fix)
    elif usable < cores:
        yield Check("cores", "warn", found, f"set workers={usable}: the default is one worker per core")
    else:
        yield Check("cores", "ok", found)
    threads = os.environ.get("OMP_NUM_THREADS")
    setting = f"OMP_NUM_THREADS={threads}" if threads else "OMP_NUM_THREADS is not set"
    yield Check("threads", "ok", f"{setting}; workers use the trainer's setting, 1 thread by default")
    yield _memory()
    yield _open_files()


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _granted_cores() -> float | None:
    """Return the container's CPU quota in cores, None without a quota."""
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _memory() -> Check:
    lines = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    try:
        total, free = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError):
        return Check("memory", "ok", "unknown on this system")
    limit = _read("/sys/fs/cgroup/memory.max")
    if limit.isdigit() and int(limit) < total:
        total, free = int(limit), max(0, int(limit) - int(_read("/sys/fs/cgroup/memory.current") or 0))
    found = f"{size(free)} free of {size(total)}"
    if free < _LITTLE_MEMORY:
        return Check("memory", "warn", found, "close other programs, or use fewer workers")
    return Check("memory", "ok", found)


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("open files", "ok", "unknown on this system")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < _FEW_FILES:
        return Check("open files", "warn", f"at most {limit}", f"with many workers: ulimit -n {4 * _FEW_FILES}")
    return Check("open files", "ok", f"at most {limit:,}" if limit >= 0 else "no limit")


def _shared_memory() -> Check:
    if not _SHM.is_dir():
        return Check(
            "shared memory",
            "warn",
            "not available",
            "workers exchange states in the temporary folder, which is slower",
        )
    usage = shutil.disk_usage(_SHM)
    found = f"{size(usage.free)} free of {size(usage.total)}"
    if usage.free < _LITTLE_SHM:
        return Check(
            "shared memory",
            "warn",
            f"{found}: states that do not fit are exchanged on disk",
            "in a container: docker run --shm-size=8g; else: mount -o remount,size=8G /dev/shm",
        )
    return Check("shared memory", "ok", found)


def _disk(location: Path) -> Check:
    folder = location.absolute()
    while not folder.is_dir():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    found = f"{size(usage.free)} free of {size(usage.total)} at {folder}"
    if not os.access(folder, os.W_OK):
        return Check("disk", "fail", f"{folder}: no write permission", "give another folder with --store")
    if usage.free < _LITTLE_DISK:
        return Check("disk", "warn", found, "free some space: hoptree clean shows what can be removed")
    return Check("disk", "ok", found)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


# --- the store --------------------------------------------------------------------------------------------


def _store(location: str, journal: str | None, deep: bool) -> Iterator[Check]:
    from hoptree.store import Store, StoreMissingError
    from hoptree.ui.studies_view import all_studies

    try:
        with Store(location, create=False, journal_url=journal) as store:
            studies = list(all_studies(store))
            records, sizes = store.ledger.all(), store.states.sizes()
            counted = f"{_number(len(studies), 'study', 'studies')}, {_number(len(sizes), 'state', 'states')}"
            found = f"{store.folder}: {counted} in {size(sum(sizes.values()))}"
            yield Check("store", "ok", found)
            for head, view in studies:
                if isinstance(view, HoptreeError):
                    yield Check(
                        f"study {head.name}",
                        "fail",
                        f"cannot be read: {view}",
                        "use the Hoptree version that ran it",
                    )
            strays = len(sizes) - len(records)
            if strays > 0:
                yield Check("states", "warn", f"{strays} that belong to no study", "hoptree clean --yes")
            if deep:
                yield _all_states(store)
    except StoreMissingError:
        yield Check("store", "ok", f"none at {Path(location).absolute()} yet")
    except HoptreeError as error:
        yield Check("store", "fail", str(error), "give another folder with --store")


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _all_states(store: object) -> Check:
    from hoptree.store import StateDamagedError, StateMissingError, Store

    assert isinstance(store, Store)
    damaged = []
    for key in store.states.keys():  # noqa: SIM118 not a mapping
        try:
            store.states.get(key)
        except StateDamagedError:
            damaged.append(key)
        except StateMissingError:
            pass  # removed since
    if damaged:
        fix = "run their studies again: damaged states are trained again, with the same bits"
        return Check("checksums", "fail", f"{len(damaged)} states are damaged, such as {damaged[0]}", fix)
    return Check("checksums", "ok", "all states match their checksums")
