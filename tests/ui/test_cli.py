"""The command line, run as a user runs it: a process."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest


def hoptree(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hoptree.ui.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=900)


def test_demo_trains_real_digits_and_shares(tmp_path: Path) -> None:
    done = hoptree("demo", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "24 epochs asked, 16 trained, 8 shared" in done.stdout
    again = hoptree("demo", cwd=tmp_path)
    assert "0 trained, 8 shared, 16 reused" in again.stdout
    assert again.stdout.splitlines()[:6] == done.stdout.splitlines()[:6]


def test_simulated_demo_shows_what_sharing_saves() -> None:
    done = hoptree("demo", "--simulate")
    assert done.returncode == 0, done.stderr
    assert "merge rate 1.33" in done.stdout
    assert "Without sharing it would take" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("demo",), ("simulate",)])
def test_help_shows_an_example(arguments: tuple[str, ...]) -> None:
    done = hoptree(*arguments, "--help")
    assert done.returncode == 0
    assert "hoptree" in done.stdout or "deep net" in done.stdout


def test_simulate_prints_figures_for_programs() -> None:
    done = hoptree("simulate", "--configs", "4", "--workers", "2", "--epochs", "3", "--json")
    figures = json.loads(done.stdout)
    assert figures["units_trained"] == figures["units_asked"] == 4 * 3 * 2
    assert figures["makespan_seconds"] >= figures["lower_bound_seconds"] == 12.0


def test_simulate_writes_chart_and_trace(tmp_path: Path) -> None:
    done = hoptree(
        "simulate", "--configs", "3", "--workers", "2", "--save", "a.svg", "--trace", "t.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_simulate_reads_a_workload_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        """
        [workload]
        epochs = 6
        partitions = 2
        configs = [
          {lr = 0.1, batch_size = 64},
          {lr = "multistep(0.1, at=[4], gamma=0.1)", batch_size = 64},
        ]
        [cluster]
        workers = [{name = "a", speed = 2.0}, {name = "b"}]
        """
    )
    figures = json.loads(hoptree("simulate", str(file), "--json").stdout)
    assert figures["units_asked"] == 24
    assert figures["units_trained"] == 16
    alone = json.loads(hoptree("simulate", str(file), "--json", "--no-share").stdout)
    assert alone["units_trained"] == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--configs", "0"), "configs: 0; expected at least one"),
        (("--workers", "0"), "workers: 0; expected at least one"),
        (("--partitions", "0"), "partitions: 0; expected at least 1"),
        (("--epochs", "0"), "epochs: 0; expected at least 1"),
        (("--seconds", "-1"), "seconds: -1.0; expected a finite number"),
        (("--seconds", "nan"), "seconds: nan; expected a finite number"),
        (("--replicas", "9"), "replicas: 9 on 8 workers"),
        (("--barrier",), "barrier: a barrier needs reports"),
        (("--save", "chart.jpg"), "chart.jpg"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    done = hoptree("simulate", "--no-gantt", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[workload]\nepoch = 3", "epoch: unknown field"),
        ("[cluster]\nworkers = 'many'", "workers"),
        ("[workload]\nconfigs = [{lr = 'multistep(0.1, at=[4, 2], gamma=0.1)'}]", "increasing milestones"),
        ("[workload]\nconfigs = [{lr = 'wave(0.1)'}]", "unknown schedule wave"),
        ("[workload]\nconfigs = [{lr = 'constant(x)'}]", "x is not a number"),
        ("[workload]\nconfigs = [{lr = nan}]", "configs[0]"),
        ("[world]", "table [world]"),
        ("workload = 3", "workload: 3; expected a table"),
        ("[workload]\nconfigs = [3]", "configs[0]: 3; expected names and values"),
        ("[workload]\nepochs = 'six'", "epochs: 'six'; expected a whole number"),
        ("[workload]\nseconds = 'long'", "seconds: 'long'; expected a number or a list"),
        ("[cluster]\nworkers = [{speed = 1.0}]", "workers[0]: Object missing required field `name`"),
        ("not toml", "cannot be read"),
    ],
)
def test_bad_files_are_refused_by_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    done = hoptree("simulate", str(file))
    assert done.returncode == 2
    assert message in done.stderr
    assert "bad.toml" in done.stderr
    assert "Traceback" not in done.stderr
