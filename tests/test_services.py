"""A service that is not there is named: a test that needs it is skipped, and in CI it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services import Service, install, require

MISSING = Service("Nothing", "no-such-package", "this test", lambda: None)


@pytest.mark.parametrize("setting", [None, "", "0", "false"])
def test_a_missing_service_is_skipped_by_name(setting: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if setting is None:
        monkeypatch.delenv("CI", raising=False)
    else:
        monkeypatch.setenv("CI", setting)
    with pytest.raises(pytest.skip.Exception, match="Nothing is not installed.*no-such-package"):
        require(MISSING)


@pytest.mark.parametrize("setting", ["1", "true"])
def test_in_ci_nothing_is_skipped(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", setting)
    with pytest.raises(pytest.fail.Exception, match="Nothing is not installed.*no-such-package"):
        require(MISSING)


def test_installed_packages_are_found_and_not_installed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Service("Something", "something", "this test", lambda: tmp_path)
    assert require(there) == tmp_path
    assert install([there]) == 0
    assert capsys.readouterr().out == f"Something (for this test): {tmp_path}\n"


def test_without_a_package_manager_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install([MISSING]) == 1
    assert "no-such-package" in capsys.readouterr().out
