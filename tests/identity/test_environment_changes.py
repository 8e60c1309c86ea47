"""Changes of the environment: each changes the keys of states, or leaves them as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from hoptree.core.keys import root_key, state_key, study_root
from hoptree.driver.variants import Variants
from hoptree.identity.platform import differences, mixture
from hoptree.store import Store
from hoptree.trainers import Functions, Torch

PROGRAM = """
import json, sys
from torch import nn
from hoptree.trainers import Torch
trainer = Torch(lambda hp: nn.Linear(2, 1), loss=nn.functional.mse_loss)
print(json.dumps(trainer.platform()))
"""


def net(hp: object) -> nn.Module:
    return nn.Linear(2, 1)


def trainer(threads: int = 1, precision: str = "float32") -> Torch:
    return Torch(net, loss=nn.functional.mse_loss, threads=threads, precision=precision)


def platform_elsewhere(**environment: str) -> dict[str, str]:
    """Return the result of a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture
def variant(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    def decide(platform: dict[str, str]) -> str:
        with Store(tmp_path / "store") as store:
            return Variants(store.origins, "root", "study").decide(platform)

    return decide


CHANGES_BITS = [
    ("MKL_CBWR", "COMPATIBLE"),
    ("MKL_ENABLE_INSTRUCTIONS", "SSE4_2"),
    ("ONEDNN_MAX_CPU_ISA", "SSE41"),
    ("DNNL_MAX_CPU_ISA", "AVX2"),
    ("ONEDNN_DEFAULT_FPMATH_MODE", "BF16"),
    ("OPENBLAS_CORETYPE", "Haswell"),
    ("NPY_DISABLE_CPU_FEATURES", "AVX2"),
    ("NVIDIA_TF32_OVERRIDE", "0"),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
]
CHANGES_NOTHING = [
    ("HOSTNAME", "elsewhere"),
    ("PYTHONHASHSEED", "7"),
    ("OMP_NUM_THREADS", "7"),  # workers set it to the trainer's threads
    ("CUDA_VISIBLE_DEVICES", "1"),  # selects a device, not its kind
    ("TMPDIR", "/elsewhere"),
    ("LANG", "C"),
    ("HOPTREE_ANYTHING", "1"),
]


@pytest.mark.parametrize(("name", "value"), CHANGES_BITS, ids=lambda each: str(each))
def test_a_setting_of_a_math_library_is_another_variant(
    name: str, value: str, variant: Callable[[dict[str, str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    before, names = trainer().platform(), variant(trainer().platform())
    monkeypatch.setenv(name, value)
    after = trainer().platform()
    assert differences(before, after) == [f"{name} was not set, is {value}"]
    assert variant(after) != names
    monkeypatch.delenv(name)
    assert variant(trainer().platform()) == names


@pytest.mark.parametrize(("name", "value"), CHANGES_NOTHING, ids=lambda each: str(each))
def test_settings_that_do_not_affect_bits_do_not_affect_names(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trainer().platform()
    monkeypatch.setenv(name, value)
    assert trainer().platform() == before


@pytest.mark.slow
def test_the_kernels_of_torch_are_another_variant_and_the_same_in_every_process() -> None:
    here = platform_elsewhere()
    assert platform_elsewhere(PYTHONHASHSEED="3") == here
    plain = platform_elsewhere(ATEN_CPU_CAPABILITY="default")
    assert plain["torch kernels"] == "DEFAULT"
    if here["torch kernels"] != "DEFAULT":
        assert any("torch kernels" in line for line in differences(here, plain))


@pytest.mark.parametrize("name", ["torch build", "torch kernels", "device", "numpy", "architecture", "processor"])
def test_every_trainer_for_torch_says_what_its_bits_depend_on(name: str) -> None:
    functions = Functions(lambda path: path, lambda hp: (net(hp), None), lambda *_: None)
    assert trainer().platform()[name] == functions.platform()[name] != ""


def test_threads_and_precision_are_another_root() -> None:
    roots = {
        study_root(each.fingerprint, "data", 0)
        for each in (trainer(), trainer(threads=2), trainer(precision="float64"), trainer())
    }
    assert len(roots) == 3


def test_free_order_and_another_number_of_partitions_are_another_tree() -> None:
    found = {root_key("root", 4, "strict"), root_key("root", 4, "free"), root_key("root", 8, "strict")}
    assert len(found) == 3


def test_a_variant_names_states_and_gives_no_other_seeds() -> None:
    from hoptree.core.lineage import history
    from hoptree.core.plan import Plan

    plan = Plan(2)
    (one,) = plan.path(history({"lr": 0.1}), plan.root("root", "v1"), 2)
    (two,) = plan.path(history({"lr": 0.1}), plan.root("root", "v2"), 2)
    (old,) = plan.path(history({"lr": 0.1}), plan.root("root"), 2)
    assert one.key == two.key == old.key
    assert one.built_from == two.built_from == old.built_from
    assert one.rotation == two.rotation == old.rotation
    assert len({one.state_key(2), two.state_key(2), old.state_key(2)}) == 3
    assert old.state_key(2) == state_key(old.key, 2)


def test_a_mixture_of_platforms_is_a_separate_platform_in_any_order() -> None:
    one, two = {"kernels": "avx2"}, {"kernels": "default"}
    assert mixture([one, one]) == one
    assert mixture([one, two]) == mixture([two, one, one]) != one
