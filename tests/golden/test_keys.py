"""Keys, seeds, shuffles, rotations and the bits of one trained study are those that stored data was made with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hoptree.core import keys
from tests.golden.keys import ENCODED, FILE, pinned, trained

GOLDEN: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
LOST = (
    "Stored states are found by their keys and all seeds follow from them: with this change every stored state "
    "would be lost, and no study could be trained again to the same bits. Leave tests/golden/keys.json as it is; "
    "add a new key version to hoptree/core/keys.py, and keep this one for what is stored."
)


def compare(section: str, expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert list(found) == list(expected), f"{section}: other things are pinned than the file has"
    for name, value in expected.items():
        assert found[name] == value, f"{section}: {name}: was {value}, is {found[name]}. {LOST}"


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    return dict(json.loads(json.dumps(pinned())))


@pytest.mark.parametrize("section", [name for name in GOLDEN if name != "trained"])
def test_keys_are_those_of_stored_data(made: dict[str, dict[str, Any]], section: str) -> None:
    compare(section, GOLDEN[section], made[section])


def test_everything_that_is_made_is_pinned(made: dict[str, dict[str, Any]]) -> None:
    assert [*made, "trained"] == list(GOLDEN)


def test_a_study_trains_to_the_same_bits() -> None:
    found = trained()
    expected = GOLDEN["trained"]
    others = {
        name: f"{was}, now {found['versions'][name]}"
        for name, was in expected["versions"].items()
        if found["versions"][name] != was
    }
    if others and found["data"] != expected["data"]:
        pytest.fail(
            f"The data's fingerprint has changed, and so have versions: {others}. The bytes of files depend on "
            "pyarrow and numpy. Install the versions of constraints.txt. To move on to others, see that the "
            "other sections of tests/golden/keys.json hold, and pin the trained study anew."
        )
    for name in ("data", "root", "weights", "fingerprints"):
        assert found[name] == expected[name], (
            f"trained: {name} was {expected[name]}, is {found[name]}; other versions: {others or 'none'}. {LOST}"
        )


def test_the_error_for_a_changed_key_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(keys._ENCODERS, float, lambda value: b"f" + repr(value).encode())
    changed = {name: keys.encode(value).hex() for name, value in ENCODED.items()}
    with pytest.raises(AssertionError, match="stored state would be lost.*add a new key version"):
        compare("encodings", GOLDEN["encodings"], changed)
