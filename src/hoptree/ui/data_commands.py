"""``hoptree data``: build a dataset from files, and inspect a dataset."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from hoptree.ui.common import print_json
from hoptree.ui.exit_codes import FAILED

if TYPE_CHECKING:
    from hoptree.data import Dataset

FILES_SHOWN: Final = 20


@click.group()
def data() -> None:
    """Build datasets from files, and inspect them.

    Example: hoptree data build 'rows/*.parquet' --to dataset --partitions 8
    """


@data.command(name="build")
@click.argument("source", nargs=-1, required=True)
@click.option("--to", required=True, metavar="FOLDER", help="The dataset's folder; must not exist yet.")
@click.option("--partitions", required=True, type=int, help="Number of partitions.")
@click.option("--valid", type=float, help="Fraction of the rows for validation, 0 for none.  [default: 0.2]")
@click.option("--valid-from", metavar="SOURCE", help="Separate validation data, instead of --valid.")
@click.option("--seed", default=0, show_default=True, help="Seed of the shuffle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build_command(
    source: tuple[str, ...],
    to: str,
    partitions: int,
    valid: float | None,
    valid_from: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Shuffle the rows of files once, and write them into a folder as partitions.

    SOURCE is a Parquet, Arrow or CSV file, a folder of Parquet and Arrow files, or a glob; several are read one
    after the other, in bounded memory. Or it is one .npz file, whose arrays are the columns. A failed build leaves
    no files, and an identical dataset that exists is not built again.

    \b
    Examples:
      hoptree data build 'rows/*.parquet' --to dataset --partitions 8
      hoptree data build digits.npz --to dataset --partitions 4 --valid 0.1
      hoptree data build train.csv --valid-from test.csv --to data --partitions 4
    """  # noqa: D301 click needs the real character
    from hoptree.data import DataError, Dataset

    if valid is not None and valid_from is not None:
        raise click.UsageError("--valid and --valid-from are both given; give at most one of them")
    held_out = (0.2 if valid is None else valid) if valid_from is None else valid_from
    there = Path(to, "manifest.json").exists()
    with _unwinding_on_sigterm():
        try:
            dataset = Dataset.from_files(source, partitions=partitions, valid=held_out, seed=seed, to=to)
        except OSError as error:  # a full disk, or a folder without write permission
            raise DataError(
                f"--to: cannot write the dataset to {to} ({error}); free some space, or give another path"
            ) from error
    if as_json:
        _print_json(dataset, built=not there)
        return
    click.echo("This dataset exists already:" if there else "Built:")
    click.echo(_tables(dataset))
    click.echo(f"Open it in Python: import hoptree as ht; data = ht.Dataset.open({str(dataset.path)!r})")


@data.command(name="inspect")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Read every byte and compare it with the checksums.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def inspect_command(folder: Path, verify: bool, as_json: bool) -> None:
    """Show what a dataset holds; the exit code is 1 if its files have changed since it was built.

    File sizes are always compared with the manifest, contents with --verify.

    \b
    Examples:
      hoptree data inspect dataset
      hoptree data inspect dataset --verify
    """  # noqa: D301 click needs the real character
    from hoptree.data import DataChangedError, Dataset
    from hoptree.report.tables import size

    try:
        dataset = Dataset.open(folder)
        if verify:
            dataset.verify()
    except DataChangedError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(FAILED)
    if as_json:
        _print_json(dataset, verified=verify)
        return
    click.echo(_tables(dataset))
    click.echo(_files(dataset))
    if verify:
        count = len(dataset.manifest.files)
        click.echo(f"Verified: all {size(_bytes(dataset))} in {count} files match their checksums.")


@contextmanager
def _unwinding_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that partial files are removed."""
    old = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def _tables(dataset: Dataset) -> str:
    from hoptree.report.tables import printable, size, text_table

    columns = [
        [printable(column.name), column.dtype, str(list(column.shape)) if column.shape else None]
        for column in dataset.columns
    ]
    rows = [file.rows for file in dataset.manifest.train]
    each = str(max(rows)) if min(rows) == max(rows) else f"{min(rows)} or {max(rows)}"
    facts = [
        ["training rows", f"{dataset.rows:,}"],
        ["partitions", f"{dataset.partitions:,} (of {each} rows)"],
        ["validation rows", f"{dataset.valid_rows:,}"],
        ["size", size(_bytes(dataset))],
        ["shuffle seed", str(dataset.manifest.seed)],
        ["fingerprint", dataset.fingerprint],
        ["folder", printable(str(dataset.path))],
    ]
    schema = text_table(["column", "type", "row shape"], columns)
    return f"{schema}\n\n{text_table(['', 'dataset'], facts)}\n"


def _files(dataset: Dataset) -> str:
    from hoptree.report.tables import size, text_table

    files = dataset.manifest.files
    shown = [[file.name, file.rows, size(file.bytes), file.checksum] for file in files[:FILES_SHOWN]]
    more = len(files) - len(shown)
    return text_table(["file", "rows", "size", "checksum"], shown) + (
        f"\n and {more:,} more; --json lists them\n" if more else "\n"
    )


def _bytes(dataset: Dataset) -> int:
    return sum(file.bytes for file in dataset.manifest.files)


def _print_json(dataset: Dataset, **more: Any) -> None:
    """Print the manifest as JSON, with totals and the folder."""
    found = {
        "folder": str(dataset.path),
        "rows": dataset.rows,
        "valid_rows": dataset.valid_rows,
        "bytes": _bytes(dataset),
        **more,
        **msgspec.to_builtins(dataset.manifest),
    }
    print_json(found)
