"""Drivers that share a PostgreSQL journal train what they have in common once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.shared_store import run_together, unique_epochs


def test_what_drivers_share_is_trained_once(tmp_path: Path, postgresql: str) -> None:
    grids = {"a": [1], "b": [1, 2]}
    results = run_together(tmp_path, grids, postgresql)
    assert all(set(result["states"]) == {"complete"} for result in results.values())
    trained = sum(result["trained"] for result in results.values())
    assert trained == pytest.approx(unique_epochs(tmp_path, postgresql, *grids))
    shared = results["a"]["fingerprints"]
    assert shared == {config: results["b"]["fingerprints"][config] for config in shared}
