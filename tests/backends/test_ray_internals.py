"""Private parts of Ray and Optuna are used in one place each, and are there in the releases that we admit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import ray

from hoptree.backends import ray_internals
from hoptree.backends.ray_cluster import set_authentication

SOURCES = Path(__file__).parents[2] / "src" / "hoptree"


def private_imports(source: str) -> list[str]:
    """Return the private modules and names of Ray and Optuna that a file imports or names in full."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        for name in names:
            library, *parts = name.split(".")
            if library in ("ray", "optuna") and all(part.isidentifier() for part in parts):
                hidden = any(part.startswith("_") and not part.startswith("__") for part in parts)
                if hidden or parts[:2] == ["core", "generated"]:
                    found.append(name)
    return found


def test_private_parts_are_recognized() -> None:
    for source in ("from ray import _raylet", "import ray._private.x", "ray._raylet", "f('ray.core.generated.z')"):
        assert len(private_imports(source)) == 1
    assert private_imports("from optuna.storages._rdb import models") == ["optuna.storages._rdb.models"]
    assert private_imports("from ray.exceptions import RayError\nimport optuna\nray.nodes(), ray.__version__") == []


def test_private_parts_are_used_in_one_file() -> None:
    using = {file.name for file in SOURCES.rglob("*.py") if private_imports(file.read_text())}
    assert using == {"ray_internals.py"}


def test_the_token_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # there may be a token in the folder of who runs this
    before: dict[str, str | None] = {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None}
    try:
        for token in ("1" * 64, "2" * 64):
            set_authentication({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
            assert ray_internals.asks_for_tokens()
            assert ray_internals.has_token()
            assert any(token in value for _, value in ray_internals.token_header())
        set_authentication({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": None})
        assert not ray_internals.asks_for_tokens()
        assert not ray_internals.has_token()
    finally:
        set_authentication(before)


def test_what_auto_means_is_found_as_ray_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.77:6379")
    assert ray_internals.running_cluster() == "192.0.2.77:6379"


def test_notices_are_put_back() -> None:
    module = ray._private.worker
    printing = module.listen_error_messages
    with ray_internals.without_notices():
        assert module.listen_error_messages is not printing
    assert module.listen_error_messages is printing


def test_options_that_ray_calls_unstable_are_known_to_it() -> None:
    """Ray refuses an option that it does not know, by name; nothing is started here."""
    with pytest.raises(RuntimeError, match="Unknown keyword argument.*_no_such_option"):
        ray.init(
            address="local", **{ray_internals.TEMP_DIR: "/x", ray_internals.SYSTEM_CONFIG: {}, "_no_such_option": 1}
        )
