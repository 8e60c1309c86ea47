"""Backends, trainers and procedures that another package registers, with real installed distributions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hoptree as ht
from hoptree.backends.choice import check_backend, find_backend
from hoptree.ui.cli import cli
from tests.system.plain import study

MODULE = """
from dataclasses import dataclass
from hoptree.search import Random

@dataclass(frozen=True)
class Slurm:
    nodes: int = 4
    def open(self, job):
        return "a backend for " + job

class Choosy:
    def __init__(self, nodes):
        self.nodes = nodes
    def open(self, job): ...

class Empty: ...

ready = Slurm(nodes=9)

def five_random(epochs):
    return Random(trials=5, epochs=epochs)
"""
ENTRIES = """
[hoptree.backends]
{name} = {module}:Slurm
{name}-ready = {module}:ready
{name}-choosy = {module}:Choosy
{name}-empty = {module}:Empty
{name}-broken = {module}_without_a_name:Slurm
{name}-absent = {module}:Nothing

[hoptree.procedures]
five-random = {module}:five_random

[hoptree.trainers]
line = {module}:Line
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package in a folder on the path, as pip would."""

    def installed(module: str, entries: str = ENTRIES, name: str = "slurm", source: str = MODULE) -> None:
        folder = tmp_path / module
        about = folder / f"{module}-1.2.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text(entries.format(module=module, name=name))
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, module, raising=False)

    return installed


def test_registered_plugins_are_listed_without_importing_them(install: Install) -> None:
    assert ht.plugins("procedures") == []
    install("parts_listed")
    (found,) = ht.plugins("procedures")
    assert (found.name, found.value) == ("five-random", "parts_listed:five_random")
    assert (found.package, found.version) == ("parts-listed", "1.2")
    assert "parts_listed" not in sys.modules
    assert ht.load_plugin("procedures", "five-random")(epochs=3) == ht.Random(trials=5, epochs=3)
    with pytest.raises(ht.WorkloadError, match="kind: 'mirrors'; expected one of backends, trainers, procedures"):
        ht.plugins("mirrors")  # type: ignore[arg-type]


def test_a_backend_is_found_by_its_name(install: Install) -> None:
    install("parts_backend")
    for name, nodes in (("slurm", 4), ("slurm-ready", 9)):
        check_backend(name, workers=2)
        found: Any = find_backend(name)
        assert (type(found).__name__, found.nodes) == ("Slurm", nodes)
        assert found.open("a job") == "a backend for a job"
    assert find_backend(found) is found
    assert find_backend("local") == "local"
    assert isinstance(find_backend("ray"), ht.Ray)


def test_the_names_of_built_in_backends_are_reserved(install: Install) -> None:
    install("parts_local", name="local")
    assert find_backend("local") == "local"


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("slrum", "backend: 'slrum'; expected 'local', 'ray', .*'slurm', 'slurm-absent', .*installed packages"),
        ("slurm-broken", r"'slurm-broken' of the package parts-refused 1.2 .* \(ModuleNotFoundError: No module"),
        ("slurm-absent", r"'slurm-absent' of the package parts-refused .* \(AttributeError: .*Nothing"),
        ("slurm-choosy", r"'slurm-choosy' of the package parts-refused .* \(TypeError: .*'nodes'\); import"),
        ("slurm-empty", r"'slurm-empty' of the package parts-refused is .*Empty.* which has no open\(job\)"),
        (ht.Ray, r"backend: the class Ray; expected Ray\(…\)"),
        (7, "backend: 7; expected 'local', 'ray'"),
    ],
)
def test_a_value_that_is_not_a_backend_is_refused(
    install: Install, tmp_path: Path, backend: Any, message: str
) -> None:
    install("parts_refused")
    with pytest.raises(ht.WorkloadError, match=message):
        study(tmp_path / "study").run(workers=1, backend=backend)
    assert not (tmp_path / "study" / "store").exists()


def test_a_backend_that_was_made_without_its_job_is_refused() -> None:
    class Running:
        def submit(self, action: object) -> None: ...

    with pytest.raises(ht.WorkloadError, match=r"has submit\(\) but no open\(job\); expected its settings"):
        check_backend(Running(), None)  # type: ignore[arg-type]


def test_a_name_that_two_packages_register_is_refused(install: Install) -> None:
    install("parts_one")
    install("parts_two")
    with pytest.raises(ht.WorkloadError, match="'slurm' is registered by parts-one and parts-two; uninstall one"):
        find_backend("slurm")


def test_the_error_for_an_unregistered_name_lists_the_registered_ones(install: Install) -> None:
    with pytest.raises(ht.WorkloadError, match="procedures: 'x' is not registered; .*packages: none; .*group hop"):
        ht.load_plugin("procedures", "x")
    install("parts_known")
    with pytest.raises(ht.WorkloadError, match="procedures: 'x' is not registered; .*: 'five-random'; "):
        ht.load_plugin("procedures", "x")


def test_doctor_lists_what_is_registered(install: Install, tmp_path: Path) -> None:
    install("parts_doctor")
    done = CliRunner().invoke(cli, ["doctor", "--store", str(tmp_path / "store")])
    assert "procedure five-random  parts_doctor:five_random of parts-doctor 1.2" in done.output
    assert "trainer line" in done.output
    assert "pip install --force-reinstall parts-doctor" in done.output
    assert done.exit_code == 1  # some of them cannot be imported


def test_importing_hoptree_looks_at_no_package() -> None:
    code = (
        "import sys, hoptree; sys.exit(any(name in sys.modules for name in "
        "('pytest', 'hoptree.testing', 'hoptree.backends.plugins', 'importlib.metadata')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=900).returncode == 0
