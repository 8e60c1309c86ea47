"""Prices from a CSV file: the right row, and what is wrong by name."""

from pathlib import Path

import pytest

from hoptree.core.errors import WorkloadError
from hoptree.elastic.prices import instance_from_csv

HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
)
ROWS = """
p3.8xlarge,V100,4.0,32.0,244.0,,12.24,3.9,us-east-1,us-east-1a
p3.8xlarge,V100,4.0,32.0,244.0,,12.24,4.1,us-east-1,us-east-1b
p3.8xlarge,V100,4.0,32.0,244.0,,13.22,,eu-west-1,eu-west-1a
p3.2xlarge,V100,1.0,8.0,61.0,,3.06,,us-east-1,us-east-1a
c5.large,,,2.0,4.0,,0.085,,us-east-1,us-east-1a
free,T4,1,2,4,,-1,,us-east-1,us-east-1a
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "vms.csv"
    path.write_text(HEADER + ROWS)
    return path


def test_devices_and_price_come_from_the_row(prices: Path) -> None:
    found = instance_from_csv(prices, "p3.8xlarge", region="us-east-1", minimum=30.0)
    assert (found.name, found.devices, found.price, found.minimum, found.spot) == (
        "p3.8xlarge",
        4,
        12.24,
        30.0,
        False,
    )
    assert instance_from_csv(str(prices), "p3.2xlarge").price == 3.06
    spot = instance_from_csv(prices, "p3.8xlarge", region="us-east-1b", spot=True)
    assert (spot.price, spot.spot) == (4.1, True)
    assert instance_from_csv(prices, "c5.large", devices=2).devices == 2


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("p3.8xlarge", {}, ["us-east-1 (12.24)", "eu-west-1 (13.22)"]),
        ("p3.8xlarge", {"region": "us-east-1", "spot": True}, ["us-east-1a (3.9)", "us-east-1b (4.1)"]),
        ("p3.8xlarge", {"region": "mars"}, ["mars", "us-east-1", "eu-west-1"]),
        ("p3.8xlarge", {"region": "eu-west-1", "spot": True}, ["SpotPrice", "p3.8xlarge"]),
        ("p3.16xlarge", {}, ["p3.16xlarge", "p3.2xlarge, p3.8xlarge"]),
        ("c5.large", {}, ["AcceleratorCount", "devices="]),
        ("free", {}, ["Price", "-1"]),
    ],
)
def test_errors_name_what_is_wrong(prices: Path, name: str, options: dict[str, object], words: list[str]) -> None:
    with pytest.raises(WorkloadError) as error:
        instance_from_csv(prices, name, **options)  # type: ignore[arg-type]
    for word in words:
        assert word in str(error.value)


def test_a_missing_column_or_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vms.csv"
    path.write_text("InstanceType,Region\np3.8xlarge,us-east-1\n")
    with pytest.raises(WorkloadError, match="Price"):
        instance_from_csv(path, "p3.8xlarge")
    path.write_text("")
    with pytest.raises(WorkloadError, match="InstanceType"):
        instance_from_csv(path, "p3.8xlarge")
    with pytest.raises(WorkloadError, match=r"missing\.csv"):
        instance_from_csv(tmp_path / "missing.csv", "p3.8xlarge")
