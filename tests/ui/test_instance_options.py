"""Options that say what nodes cost: of an instance, its price from the command line or from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.ui.cli import cli
from hoptree.ui.instance_options import for_money, take_instance

PROGRAM = """
import hoptree as ht
from tests.system.plain import study as plain
from pathlib import Path
study = plain(Path("."), space={"lr": ht.choice(0.1, 0.2), "nap": 0.0}, search=ht.Grid(epochs=2))
"""


def parsed(*arguments: str) -> tuple[ht.Instance | None, dict[str, Any]]:
    found: dict[str, Any] = {}

    @click.command()
    @for_money
    def command(**options: Any) -> None:
        found["instance"], found["rest"] = take_instance(options), options

    result = CliRunner().invoke(command, arguments)
    if result.exception is not None:
        raise result.exception
    return found["instance"], found["rest"]


def test_the_terms_of_an_instance_are_taken_out_of_the_options() -> None:
    instance, rest = parsed(
        "--deadline", "2h", "--instance", "p3", "--price", "12.24", "--devices", "4", "--minimum", "1 min",
        "--provision", "90s", "--start", "30", "--spot", "--max-count", "8",
    )  # fmt: skip
    assert instance == ht.Instance(
        "p3", devices=4, price=12.24, minimum=60.0, provision=90.0, start=30.0, spot=True, max_count=8
    )
    assert rest == {"deadline": "2h", "budget": None}


def test_without_an_instance_there_are_no_terms() -> None:
    assert parsed("--budget", "3") == (None, {"deadline": None, "budget": 3.0})


def test_prices_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "vms.csv"
    file.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region\n"
        "p3.8xlarge,V100,4,32,244,12.24,3.6,us-east-1\n"
        "p3.8xlarge,V100,4,32,244,13.22,3.9,eu-west-1\n"
    )
    instance, _ = parsed("--instance", "p3.8xlarge", "--prices", str(file), "--region", "eu-west-1")
    assert instance is not None
    assert (instance.devices, instance.price) == (4, 13.22)
    with pytest.raises(WorkloadError, match="us-east-1"):
        parsed("--instance", "p3.8xlarge", "--prices", str(file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price", "3"], "--price: of no instance"),
        (["--instance", "p3", "--price", "3"], "--devices is missing"),
        (["--instance", "p3", "--devices", "3"], "--price is missing"),
        (["--instance", "p3", "--price", "3", "--devices", "1", "--region", "x"], "--region without --prices"),
        (["--instance", "p3", "--price", "3", "--prices", "x.csv"], "not both"),
        (["--instance", "p3", "--price", "-3", "--devices", "1"], "price: -3"),
        (["--instance", "p3", "--price", "3", "--devices", "1", "--start", "soon"], "--start: 'soon'"),
    ],
)
def test_terms_that_are_incomplete_or_wrong_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parsed(*arguments)


def hoptree(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    (folder / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(folder)
    return CliRunner().invoke(cli, arguments)


def test_a_run_by_the_command_line_says_what_it_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = ("--instance", "p3", "--price", "12.24", "--devices", "2", "--deadline", "1 h")
    done = hoptree(tmp_path, monkeypatch, "run", "program.py", "--workers", "1", "--quiet", *terms)
    assert done.exit_code == 0, done.output
    assert "Cost: $" in done.output
    shown = CliRunner().invoke(cli, ["show", "plain", "--store", "store", "--json"])
    assert json.loads(shown.output)["cost"]["instances"].keys() == {"p3"}
    assert "p3" in CliRunner().invoke(cli, ["show", "plain", "--store", "store"]).output


def test_a_run_that_its_time_limit_ended_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = hoptree(
        tmp_path,
        monkeypatch,
        "run",
        "program.py",
        "--workers",
        "1",
        "--quiet",
        "--time-limit",
        "0.000001 s",
        "--json",
    )
    found = json.loads(done.stdout)
    assert found["limit_reached"]
    assert done.exit_code == 1  # nothing has reported, so there is no best trial
