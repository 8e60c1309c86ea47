"""What pyproject.toml declares is what the code needs and what the pages say."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from tests.packaging.test_wheel import offered_extras

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"bench", "dev", "docs"}
BROUGHT_ALONG = {"IPython", "grpc", "_typeshed"}  # by a notebook; by some installations of Ray; for types alone


def test_every_package_that_is_imported_is_declared() -> None:
    declared = {plain(requirement) for requirement in PROJECT["dependencies"]}
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra not in FOR_DEVELOPERS:
            declared |= {plain(requirement) for requirement in requirements}
    distributions = packages_distributions()
    undeclared = {
        module: file
        for module, file in imports()
        if not {plain(name) for name in distributions.get(module, [module])} & declared
    }
    assert undeclared.keys() == BROUGHT_ALONG & undeclared.keys(), undeclared


def test_the_page_on_installing_lists_every_extra() -> None:
    assert sorted(offered_extras()) == sorted(PROJECT["optional-dependencies"].keys() - FOR_DEVELOPERS)


def test_errors_name_extras_that_exist() -> None:
    named: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for names in re.findall(r"hoptree\[([\w,]+)\]", file.read_text()):
            named |= set(names.split(","))
    assert named <= PROJECT["optional-dependencies"].keys()


def test_private_parts_of_ray_and_optuna_are_used_within_a_closed_range() -> None:
    """A release with other private parts is not installed before somebody has run the tests with it."""
    for extra, package in (("ray", "ray"), ("optuna", "optuna")):
        [requirement] = [each for each in PROJECT["optional-dependencies"][extra] if plain(each) == package]
        assert "<" in requirement


def test_links_of_the_readme() -> None:
    specification = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    text = "![a](b/c.svg) [d](e.md#f) [g](#h) [i](https://j.example/k)"
    outside = "[i](https://j.example/k)"
    assert module.absolute_links(text, "", "") == f" d g {outside}"
    assert module.absolute_links(text, "https://p.example/", "https://f.example") == (
        f"![a](https://f.example/b/c.svg) [d](https://p.example/e.md#f) [g](https://p.example#h) {outside}"
    )


def test_relative_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!\w+://|#)([^)#]+)", (ROOT / "README.md").read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def imports() -> Iterator[tuple[str, str]]:
    """Return the packages that the code imports, ours and Python's own aside."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                module = name.partition(".")[0]
                if module != "hoptree" and module not in sys.stdlib_module_names:
                    yield module, file.name


def plain(requirement: str) -> str:
    """Return the name of the package that a requirement names."""
    return re.split(r"[\[<>=!~; ]", requirement.lower().replace("_", "-"))[0]
