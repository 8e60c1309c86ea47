"""A session: seed torch and make it deterministic for a unit, and restore the caller's settings afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.utils.deterministic as torch_deterministic

_FILL = "fill_uninitialized_memory"  # torch computes this module attribute


@contextmanager
def session(
    seed: int, *, threads: int, dtype: torch.dtype, device: torch.device, fill: bool = False
) -> Iterator[None]:
    """Seed every generator and configure torch for reproducible bits; restore everything at the end.

    ``fill`` fills uninitialized memory with NaN: useful to find a missing initialization when a model is built, too
    slow for every batch.
    """
    before = _Settings()
    generators = _generators(device)
    try:
        seed_generators(seed, device)
        before.change(threads, dtype, fill)
        with torch.enable_grad():
            yield
    finally:
        before.restore()
        _restore(generators)


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restore the generators afterwards, so that running this code does not change any bits."""
    generators = _generators(torch.device("cpu"))
    try:
        seed_generators(0, torch.device("cpu"))
        yield
    finally:
        _restore(generators)


class _Settings:
    def __init__(self) -> None:
        # This is the switch of use_deterministic_algorithms, which would also import the compiler.
        self._deterministic = torch.get_deterministic_debug_mode()
        self._fill = bool(getattr(torch_deterministic, _FILL))
        self._threads = torch.get_num_threads()
        self._dtype = torch.get_default_dtype()
        self._matmul = torch.get_float32_matmul_precision()
        self._benchmark = torch.backends.cudnn.benchmark

    def change(self, threads: int, dtype: torch.dtype, fill: bool) -> None:
        self._set(2, fill, threads, dtype, "highest", False)

    def restore(self) -> None:
        self._set(self._deterministic, self._fill, self._threads, self._dtype, self._matmul, self._benchmark)

    @staticmethod
    def _set(
        deterministic: int, fill: bool, threads: int, dtype: torch.dtype, matmul: str, benchmark: bool
    ) -> None:
        torch.set_deterministic_debug_mode(deterministic)
        setattr(torch_deterministic, _FILL, fill)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        if torch.get_float32_matmul_precision() != matmul:
            torch.set_float32_matmul_precision(matmul)
        if torch.backends.cudnn.benchmark != benchmark:
            torch.backends.cudnn.benchmark = benchmark


_Generators = tuple[object, object, torch.Tensor, torch.Tensor | None]


def _generators(device: torch.device) -> _Generators:
    accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), accelerator


def seed_generators(seed: int, device: torch.device) -> None:
    """Set the global generators of random, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed % 2**63)  # torch.manual_seed would also queue CUDA calls
    if device.type == "cuda":
        torch.cuda.manual_seed(seed % 2**63)


def _restore(generators: _Generators) -> None:
    python, numpy, torch_state, accelerator = generators
    random.setstate(python)  # type: ignore[arg-type]
    np.random.set_state(numpy)  # type: ignore[arg-type]
    torch.set_rng_state(torch_state)
    if accelerator is not None:
        torch.cuda.set_rng_state(accelerator)
