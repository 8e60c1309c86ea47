"""``hoptree data``, run as a user runs it: a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hoptree.data import Dataset

# a shell may start its background jobs deaf to Ctrl-C
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hoptree.ui.cli import main
main()
"""
SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))" + MAIN


def hoptree(folder: Path, *arguments: str, program: str = MAIN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, "data", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=900)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty rows, as an .npz file, as two Parquet files and as a CSV file, and ten for validation."""
    x = np.random.default_rng(0).random((60, 2, 3), dtype=np.float32)
    y = np.arange(60)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    lists = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 3), 2)
    table = pa.table({"x": lists, "y": y})
    (tmp_path / "in").mkdir()
    pq.write_table(table.slice(0, 25), tmp_path / "in/0.parquet")
    pq.write_table(table.slice(25), tmp_path / "in/1.parquet")
    pq.write_table(table.slice(0, 10), tmp_path / "valid.parquet")
    lines = [f'{number},{number / 2},"row,\n{number}"' for number in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["y,half,text", *lines, ""]))
    return tmp_path


def built(folder: Path, *arguments: str) -> dict[str, object]:
    done = hoptree(folder, "build", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_build_says_what_it_built_and_how_to_open_it(folder: Path) -> None:
    done = hoptree(folder, "build", "rows.npz", "--to", "d", "--partitions", "3")
    assert done.returncode == 0, done.stderr
    dataset = Dataset.open(folder / "d")
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["x", "float32", "[2,", "3]"] in words
    assert ["y", "int64", "\N{EN DASH}"] in words
    assert ["training", "rows", "48"] in words
    assert ["partitions", "3", "(of", "16", "rows)"] in words
    assert ["validation", "rows", "12"] in words
    assert ["fingerprint", dataset.fingerprint] in words
    assert f"ht.Dataset.open('{folder / 'd'}')" in done.stdout
    again = hoptree(folder, "build", "rows.npz", "--to", "d", "--partitions", "3")
    assert again.stdout == done.stdout.replace("Built:", "This dataset exists already:")


def test_arrays_a_folder_and_a_glob_give_the_same_dataset(folder: Path) -> None:
    rest = ("--partitions", "4", "--seed", "3", "--valid", "0.1")
    figures = [
        built(folder, "rows.npz", "--to", "a", *rest),
        built(folder, "in", "--to", "b", *rest),
        built(folder, "in/*.parquet", "--to", "c", *rest),
        built(folder, "in/0.parquet", "in/1.parquet", "--to", "d", *rest),
    ]
    assert len({figure["fingerprint"] for figure in figures}) == 1
    assert [figures[0][name] for name in ("built", "rows", "valid_rows", "seed")] == [True, 54, 6, 3]
    assert built(folder, "in", "--to", "b", *rest) == {**figures[1], "built": False}
    expected = Dataset.from_folder(folder / "in", partitions=4, seed=3, valid=0.1, to=folder / "e")
    assert figures[0]["fingerprint"] == expected.fingerprint


def test_separate_validation_data(folder: Path) -> None:
    figures = built(folder, "in", "--valid-from", "valid.parquet", "--to", "d", "--partitions", "2")
    assert (figures["rows"], figures["valid_rows"]) == (60, 10)
    valid = Dataset.open(folder / "d").valid()
    assert valid is not None
    assert valid["y"].tolist() == list(range(10))


def test_csv(folder: Path) -> None:
    built(folder, "rows.csv", "--to", "d", "--partitions", "1", "--valid", "0")
    rows = Dataset.open(folder / "d").partition(0)
    assert [str(values.dtype) for values in rows.values()] == ["int64", "float64", "object"]
    assert [rows["text"][index] for index in np.argsort(rows["y"])] == [f"row,\n{row}" for row in range(60)]
    assert (rows["half"] * 2 == rows["y"]).all()


def test_inspect_prints_the_manifest(folder: Path) -> None:
    built(folder, "rows.npz", "--to", "d", "--partitions", "30")
    done = hoptree(folder, "inspect", "d")
    dataset = Dataset.open(folder / "d")
    first, last = dataset.manifest.train[0], dataset.manifest.train[-1]
    assert done.returncode == 0, done.stderr
    assert dataset.fingerprint in done.stdout
    assert "30 (of 1 or 2 rows)" in done.stdout
    assert first.checksum in done.stdout
    assert last.checksum not in done.stdout
    assert "and 11 more; --json lists them" in done.stdout
    assert "Verified" not in done.stdout
    manifest = json.loads((folder / "d/manifest.json").read_text())
    figures = json.loads(hoptree(folder, "inspect", "d", "--json").stdout)
    assert figures == {**figures, **manifest}
    assert (figures["folder"], figures["rows"], figures["verified"]) == (str(folder / "d"), 48, False)


def test_verify_reads_every_byte(folder: Path) -> None:
    built(folder, "rows.npz", "--to", "d", "--partitions", "2")
    done = hoptree(folder, "inspect", "d", "--verify")
    assert done.returncode == 0, done.stderr
    assert "in 3 files match their checksums." in done.stdout
    path = folder / "d/train-00001.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert hoptree(folder, "inspect", "d").returncode == 0  # sizes only
    done = hoptree(folder, "inspect", "d", "--verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"DataChangedError: {path}: was changed: its bytes do not match")
    path.write_bytes(content[:-1])
    done = hoptree(folder, "inspect", "d")
    assert done.returncode == 1
    assert "train-00001.arrow: was changed" in done.stderr
    done = hoptree(folder, "build", "rows.npz", "--to", "d", "--partitions", "2")
    assert done.returncode == 2
    assert f"to: a damaged dataset is there; remove {folder / 'd'}, or give another path" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.parquet",), "nothing.parquet: no such file; expected a file, a folder, or a glob"),
        (("in", "in/1.parquet"), "in/1.parquet: given twice"),
        (("in", "--valid-from", "in/1.parquet"), "in/1.parquet is among the files to train on; expected other"),
        (("in", "--valid-from", "none"), "none: no such file"),
        (("in", "rows.npz"), "rows.npz: one of 3 files; an .npz file holds all columns by itself"),
        (("in", "rows.csv"), "rows.csv: no column x, but in/0.parquet has it"),
        (("notes.txt",), "notes.txt: ends in .txt; expected .parquet"),
        (("empty.csv",), "empty.csv: cannot be read as CSV"),
        (("mixed.csv",), "mixed.csv: cannot be read as CSV"),
        (("bad.npz",), "bad.npz: cannot be read"),
        (("objects.npz",), "objects.npz: cannot be read"),
        (("empty",), "files: no files found at empty"),
        (("in", "--partitions", "0"), "partitions: 0; expected a whole number, at least 1"),
        (("in", "--partitions", "many"), "'many' is not a valid integer"),
        (("in", "--valid", "1.5"), "valid: 1.5; expected a fraction"),
        (("in", "--valid", "0.1", "--valid-from", "valid.parquet"), "both given; give at most one"),
        (("in", "--seed", "-1"), "seed: -1; expected a whole number, at least 0"),
        (("in", "--to", "in"), "in exists and is not a dataset; give a path that is free"),
        (("in", "--to", "notes.txt/d"), "cannot write the dataset to notes.txt/d"),
        ((), "Missing argument 'SOURCE...'"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "notes.txt").touch()
    (folder / "empty.csv").touch()
    (folder / "mixed.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "bad.npz").write_bytes(b"PK\3\4 and so on")
    np.savez(folder / "objects.npz", x=np.array([{}, None]))
    (folder / "empty").mkdir()
    before = sorted(folder.rglob("*"))
    done = hoptree(folder, "build", "--to", "d", "--partitions", "2", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_is_not_a_dataset(folder: Path) -> None:
    done = hoptree(folder, "inspect", "in", "--verify")
    assert done.returncode == 2
    assert done.stderr.startswith(f"DataError: {folder / 'in'}: a folder without manifest.json")


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    np.savez(folder / "large.npz", x=np.zeros(100_000))
    before = sorted(folder.rglob("*"))
    done = hoptree(folder, "build", "large.npz", "--to", "d", "--partitions", "2", program=SMALL_FILES)
    assert done.returncode == 2
    assert done.stderr.startswith("DataError: --to: cannot write the dataset to d ([Errno 27] File too large")
    assert done.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, number: signal.Signals, code: int) -> None:
    np.savez(tmp_path / "large.npz", x=np.zeros((1 << 18, 64)))
    command = [sys.executable, "-c", MAIN, "data", "build", "large.npz", "--to", "d", "--partitions", "64"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob(".building-*/dataset/*.arrow")):
            assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=900)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["large.npz"]


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_help_shows_an_example(tmp_path: Path, command: str) -> None:
    done = hoptree(tmp_path, command, "--help")
    assert done.returncode == 0
    assert f"\n    hoptree data {command} " in done.stdout
