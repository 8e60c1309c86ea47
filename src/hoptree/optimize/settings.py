"""The settings of the Cerebro paper's comparison of schedulers (section 5.4, costs of table 7)."""

from random import Random
from types import MappingProxyType
from typing import Final

from hoptree.core.errors import WorkloadError

CNN_MFLOPS: Final = MappingProxyType(
    {
        "AlexNet": 727.0,
        "CaffeNet": 724.0,
        "SqueezeNet1-0": 837.0,
        "SqueezeNet1-1": 360.0,
        "VGG-f": 727.0,
        "VGG-m": 2_000.0,
        "VGG-s": 3_000.0,
        "VGG-m-2048": 2_000.0,
        "VGG-m-1024": 2_000.0,
        "VGG-m-128": 2_000.0,
        "VGG-vd-16-atrous": 16_000.0,
        "VGG-vd-16": 16_000.0,
        "VGG-vd-19": 20_000.0,
        "GoogleNet": 2_000.0,
        "ResNet18": 2_000.0,
        "ResNet34": 4_000.0,
        "ResNet50": 4_000.0,
        "ResNet101": 8_000.0,
        "ResNet152": 11_000.0,
        "ResNext-50-32x4d": 4_000.0,
        "ResNext-101-32x4d": 8_000.0,
        "ResNext-101-64x4d": 16_000.0,
        "Inception-V3": 6_000.0,
        "SE-ResNet-50": 4_000.0,
        "SE-ResNet-101": 8_000.0,
        "SE-ResNet-152": 11_000.0,
        "SE-ResNeXt-50-32x4d": 4_000.0,
        "SE-ResNeXt-101-32x4d": 8_000.0,
        "SENet": 21_000.0,
        "SE-BN-Inception": 2_000.0,
        "DenseNet121": 3_000.0,
        "DenseNet161": 8_000.0,
        "DenseNet169": 3_000.0,
        "DenseNet201": 4_000.0,
        "MobileNet": 579.0,
    }
)
"""Compute cost of one example by network, in millions of floating-point operations."""

GPU_TFLOPS: Final = MappingProxyType({"Titan Xp": 12.1, "K80": 5.6, "GTX 1080": 11.3, "P100": 18.7})
"""Compute capacity by worker, in 10^12 floating-point operations per second."""


def paper_setting(configs: int, workers: int, heterogeneous: bool, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    """Draw the unit times of one setting: the cost of the config divided by the capacity of the worker.

    Heterogeneous costs and capacities are drawn with replacement, costs first; a homogeneous setting needs no draw,
    and each of its units takes 1.

    >>> paper_setting(2, 3, heterogeneous=False)
    ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    """
    for name, count in (("configs", configs), ("workers", workers)):
        if count < 1:
            raise WorkloadError(f"{name}: {count}; expected at least 1")
    if not heterogeneous:
        return ((1.0,) * workers,) * configs
    random = Random(seed)
    costs = random.choices(tuple(CNN_MFLOPS.values()), k=configs)
    capacities = random.choices(tuple(GPU_TFLOPS.values()), k=workers)
    return tuple(tuple(cost / capacity for capacity in capacities) for cost in costs)
