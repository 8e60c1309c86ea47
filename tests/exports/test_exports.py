"""Plots, exports and bundles of a real study, each read back by the library that it is meant for."""

from __future__ import annotations

import json
import math
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.csv
import pyarrow.parquet
import pytest

import hoptree as ht
from hoptree.exports import export
from hoptree.report import ReportError
from hoptree.trainers import TrainerError
from hoptree.ui import export_commands, plot_commands
from hoptree.ui.programs import program
from tests.exports.finished_study import done, hoptree, invoke
from tests.report.study_timelines import history
from tests.system.plain import study as plain_study

# --- plots ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_plot_writes_what_is_requested(folder: Path, tmp_path: Path) -> None:
    assert done(folder, "plot", "tiny", "curves", "--save", str(tmp_path / "c.png"), "--metric", "loss")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    told = hoptree(folder, "plot", "tiny", "all", "--save", str(tmp_path / "plots"), "--dark")
    kinds = [Path(line).stem for line in told.splitlines()]
    assert kinds == [kind for kind in plot_commands.KINDS if kind != "rungs"]
    assert "<svg" in (tmp_path / "plots" / "tree.svg").read_text()


def test_the_command_knows_all_kinds() -> None:
    assert tuple(ht.plot.KINDS) == plot_commands.KINDS
    from hoptree.exports import KINDS

    assert (*KINDS, "optuna") == export_commands.KINDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "curves", "--save", "c.svg"], "nobody: no such study in .* it holds tiny"),
        (["tiny", "curves", "--save", "c.jpg"], r"suffix is '\.jpg'; expected \.svg"),
        (
            ["tiny", "tree", "--save", "t.svg", "--metric", "loss"],
            "--metric: does not apply to tree, only to curves",
        ),
        (["tiny", "rungs", "--save", "r.svg"], "were granted .* at once; expected a search that grants more"),
    ],
)
def test_plot_refuses(folder: Path, arguments: list[str], message: str) -> None:
    result = invoke(folder, "plot", *arguments)
    assert re.search(message, str(result.exception))


def test_a_study_and_its_results_can_be_plotted(tmp_path: Path) -> None:
    study = plain_study(tmp_path, "fine", "raise", epochs=3)
    results = study.run(workers=2)
    for subject in (study, results, study.results()):
        figure = ht.plot.curves(subject)
        assert "loss of 1 trial over its epochs" in str(figure.get_suptitle())
    told = study.study_timeline()
    assert [trial_timeline.state for trial_timeline in told.trials] == ["complete", "failed"]
    assert told.progress[-1].trained == 3 == results.savings.epochs_trained
    assert {span.kind for span in told.timeline.spans} >= {"unit", "failed"}
    assert told.environments[0]["threads"] == "1"


def test_results_in_a_group_contain_only_their_own_trials(tmp_path: Path) -> None:
    first = plain_study(tmp_path, "fine", name="one")
    second = plain_study(tmp_path, "fine", "other", name="two", data=first.data)
    ht.run([first, second], workers=1)
    assert [len(study.study_timeline().trials) for study in (first, second)] == [1, 2]
    assert second.study_timeline().name == "two"


# --- exports ----------------------------------------------------------------------------------------------


def test_tables(folder: Path, tmp_path: Path) -> None:
    done(folder, "export", "tiny", "--to", str(tmp_path / "t.csv"))
    table = pyarrow.csv.read_csv(tmp_path / "t.csv")
    assert table["state"].to_pylist() == ["complete"] * 2 + ["failed"] * 2 + ["complete"] * 2
    assert table["config.width"].to_pylist() == [8, 8, 5, 5, 16, 16]
    assert "five is too odd" in table["error"].to_pylist()[2]
    done(folder, "export", "tiny", "--to", str(tmp_path / "t.parquet"), "--reports")
    reports = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert reports["epoch"].to_pylist() == [1, 2] * 4
    assert reports.schema.metadata[b"goal"] == b"maximize accuracy"
    shown = json.loads(done(folder, "show", "tiny", "--trial", "4", "--json"))
    of_four = [row for row in reports.to_pylist() if row["trial"] == 4]
    assert {str(row["epoch"]): row["metric.loss"] for row in of_four} == {
        epoch: metrics["loss"] for epoch, metrics in shown["curve"].items()
    }


def test_related_columns_are_next_to_each_other(tmp_path: Path) -> None:
    told = history(ht.Grid(epochs=1), {"lr": ht.choice(0.1, 0.01)})
    lost = msgspec.structs.replace(told.trials[0], state="failed", reports=())  # the first has no metrics
    export(msgspec.structs.replace(told, trials=(lost, *told.trials[1:])), "csv", tmp_path / "t.csv")
    names = pyarrow.csv.read_csv(tmp_path / "t.csv").column_names
    expected = [
        "trial",
        "state",
        "epochs",
        "config.lr",
        "metric.accuracy",
        "metric.loss",
        "begun",
        "ended",
        "error",
    ]
    assert names == expected


def test_tensorboard_reads_curves_and_hyper_parameters(folder: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    done(folder, "export", "tiny", "--to", str(tmp_path / "runs"), "--as", "tensorboard")
    run = EventAccumulator(str(tmp_path / "runs" / "trial-4"))
    run.Reload()
    told = json.loads(done(folder, "show", "tiny", "--trial", "4", "--json"))
    tensors = {event.step: event.tensor_proto.float_val[0] for event in run.Tensors("loss")}
    assert tensors == pytest.approx({int(epoch): metrics["loss"] for epoch, metrics in told["curve"].items()})
    content = run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = metadata.parse_session_start_info_plugin_data(content).hparams
    assert (values["width"].number_value, values["lr"].number_value) == (16, 0.1)
    ended = run.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    assert metadata.parse_session_end_info_plugin_data(ended).status == 1  # success
    whole = EventAccumulator(str(tmp_path / "runs"))
    whole.Reload()
    experiment = whole.SummaryMetadata("_hparams_/experiment").plugin_data.content
    names = [info.name for info in metadata.parse_experiment_plugin_data(experiment).hparam_infos]
    assert sorted(names) == ["batch_size", "lr", "width"]
    again = invoke(folder, "export", "tiny", "--to", str(tmp_path / "runs"), "--as", "tensorboard")
    assert "expected a new or an empty folder" in str(again.exception)


def test_mlflow_reads_runs(folder: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        from mlflow import MlflowClient

        done(folder, "export", "tiny", "--to", str(tmp_path / "ml"), "--as", "mlflow")
        client: Any = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/ml/mlflow.db")
        experiment = client.get_experiment_by_name("tiny")
        runs = {run.data.tags["trial"]: run for run in client.search_runs([experiment.experiment_id])}
        assert {number: run.info.status for number, run in runs.items()} == {
            "0": "FINISHED", "1": "FINISHED", "2": "FAILED", "3": "FAILED", "4": "FINISHED", "5": "FINISHED",
        }  # fmt: skip
        assert runs["5"].data.params == {"batch_size": "16", "lr": "multistep(0.1, [1], 0.1)", "width": "16"}
        steps = [metric.step for metric in client.get_metric_history(runs["5"].info.run_id, "loss")]
        assert sorted(steps) == [1, 2]
        assert [number for number, run in runs.items() if "best" in run.data.tags] == ["0"]
        client._tracking_client.store.engine.dispose()


def test_mlflow_takes_any_name_and_every_value(tmp_path: Path) -> None:
    many = {f"p{i}": i for i in range(150)}
    told = history(ht.Grid(epochs=2), {"lr": ht.choice(0.1, 0.01), "f1 (50%)": "<b>", "../up": None, **many})
    trial_timeline = told.trials[0]
    reports = [
        msgspec.structs.replace(report, metrics={"accuracy": math.nan, "top@5": 0.5, "top#5": 0.7})
        for report in trial_timeline.reports
    ]
    first = msgspec.structs.replace(trial_timeline, reports=tuple(reports))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        from mlflow import MlflowClient

        export(msgspec.structs.replace(told, trials=(first, *told.trials[1:])), "mlflow", tmp_path / "ml")
        client: Any = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/ml/mlflow.db")
        experiment = client.get_experiment_by_name("made-up")
        runs = {run.data.tags["trial"]: run for run in client.search_runs([experiment.experiment_id])}
        assert len(runs["0"].data.params) == 153
        assert runs["0"].data.params.items() >= {"f1 _50__": "<b>", "up": "None", "p149": "149"}.items()
        metrics = runs["0"].data.metrics
        assert math.isnan(metrics["accuracy"])
        assert {metrics["top_5"], metrics["top_5 2"]} == {0.5, 0.7}
        client._tracking_client.store.engine.dispose()


class _Links(HTMLParser):
    """Collects what a page would load, and the rows of its tables."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.rows += tag == "tr"
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not value.startswith(("data:", "#")):
                self.loads.append(value)


@pytest.mark.parametrize("dark", [False, True])
def test_the_html_report_is_whole_and_loads_nothing(folder: Path, tmp_path: Path, dark: bool) -> None:
    done(folder, "export", "tiny", "--to", str(tmp_path / "r.html"), *(["--dark"] if dark else []))
    text = (tmp_path / "r.html").read_text()
    page = _Links()
    page.feed(text)
    assert not page.loads
    assert "@import" not in text
    assert not re.search(r"url\((?!#|['\"]?data:)", text)
    assert text.count("<svg") == 8
    assert page.rows > 6
    for heading in ("five is too odd", "How to reproduce it", "hoptree verify tiny", "Environment", "numpy", "25%"):
        assert heading in text


def test_weights_are_a_plain_state_dict(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    for name in ("best.pt", "best.safetensors"):
        done(folder, "export", "tiny", "--to", str(tmp_path / name))
    plain = torch.load(tmp_path / "best.pt", weights_only=True)
    safe = load_file(tmp_path / "best.safetensors")
    with program(str(folder / "tiny.py")) as study:
        study.keep_in(folder / ".hoptree")
        best = study.results().best
        expected = best.load().state_dict()
        study.export("pt", tmp_path / "again.pt")
        with pytest.raises(TrainerError, match=r"suffix is '\.onnx'; expected \.safetensors or \.pt"):
            best.save(tmp_path / "model.onnx")
    assert plain.keys() == safe.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(plain[name], tensor)
        assert torch.equal(safe[name], tensor)
    assert torch.load(tmp_path / "again.pt", weights_only=True).keys() == expected.keys()


def test_weights_of_another_trainer(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    results = plain_study(tmp_path).run(workers=1)
    assert load_file(results.export("safetensors", tmp_path / "w"))["w"].shape == (16,)
    with pytest.raises(TrainerError, match="not a torch module's: it has w"):
        results.best.save(tmp_path / "w.pt")


def test_exports_refuse(folder: Path, tmp_path: Path) -> None:
    assert "either --to or --bundle" in str(invoke(folder, "export", "tiny").exception)
    for path in ("runs", "what.db"):  # a database of MLflow's, or of Optuna's?
        assert f"the format of {path} is unknown" in str(invoke(folder, "export", "tiny", "--to", path).exception)
    table, weights, bundle = (str(tmp_path / name) for name in ("t.csv", "t.pt", "t.zip"))
    for options, message in {
        ("--to", table, "--dark"): "--dark: does not apply to csv, only to html",
        ("--to", table, "--trial", "0"): "--trial: does not apply to csv, only to weights",
        ("--to", table, "--program", "tiny.py"): "--program: does not apply to csv, only to optuna",
        ("--to", table, "--as", "html"): "t.csv means csv; leave --as out",
        ("--bundle", bundle, "--reports"): "--reports: does not apply to a bundle, only to csv and parquet",
        ("--to", str(tmp_path), "--as", "csv"): "is a folder; expected a file",
        ("--to", weights, "--trial", "2"): "trial 2: it has no stored state; it is failed after this error:\n",
    }.items():
        assert message in str(invoke(folder, "export", "tiny", *options).exception), options
    assert list(tmp_path.iterdir()) == []
    nowhere = invoke(folder, "export", "tiny", "--to", str(tmp_path / "no" / "t.csv"))
    assert isinstance(nowhere.exception, ReportError)
    study = plain_study(tmp_path)
    results = study.run(workers=1)
    with pytest.raises(ReportError, match="kind: 'magic'; expected one of csv, parquet, tensorboard, mlflow, html"):
        results.export("magic", tmp_path / "x")
    with pytest.raises(ReportError, match="does not exist; create it first"):
        study.export("html", tmp_path / "no" / "x.html")
