"""Arrays and tensors by content: type, shape and bytes, including sparse, masked and quantized ones."""

from __future__ import annotations

import sys
from typing import Any

from hoptree.identity.graph import hashed

_NAMED = {"ufunc", "dtype", "device", "Size", "layout", "memory_format", "qscheme"}


def array_parts(value: Any) -> tuple[object, ...] | None:
    """Return the content of a numpy array, a numpy number or a tensor; None for anything else."""
    bases = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    if "torch" in bases and callable(getattr(value, "detach", None)) and hasattr(value, "untyped_storage"):
        return _tensor(value)
    if "numpy" in bases and hasattr(value, "__array_interface__"):
        return _array(value)
    return None


def named_parts(value: Any) -> tuple[object, ...] | None:
    """Return the name of a constant of numpy or torch; None for anything else."""
    kind = type(value)
    if not any(base.__module__ in ("numpy", "torch") and base.__name__ in _NAMED for base in kind.__mro__):
        return None
    name = getattr(value, "__name__", None)
    return kind.__name__, name if isinstance(name, str) else repr(value)


def _array(value: Any) -> tuple[object, ...]:
    numpy = sys.modules["numpy"]
    kind = (type(value).__module__, type(value).__qualname__)
    layout = (value.dtype.str, repr(value.dtype) if value.dtype.fields else "", tuple(value.shape))
    if isinstance(value, numpy.ma.MaskedArray):
        plain = numpy.asarray(value.data)
        return "masked", kind, _array(plain), numpy.ma.getmaskarray(value), value.fill_value, value.hardmask
    if value.dtype.hasobject:
        return "objects", kind, layout, value.tolist()
    return "numpy", kind, layout, hashed(value.tobytes())


def _tensor(value: Any) -> tuple[object, ...]:
    torch = sys.modules["torch"]
    kind = (type(value).__name__, str(value.dtype), tuple(value.shape), bool(value.requires_grad))
    tensor = value.detach()
    if type(tensor) is not torch.Tensor and isinstance(tensor, torch.Tensor):
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.device.type == "meta":
        return ("meta", *kind)
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return ("sparse", *kind, whole.indices(), whole.values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (str(tensor.layout), *kind, tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return (str(tensor.layout), *kind, tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    if tensor.is_quantized:
        return ("quantized", *kind, str(tensor.qscheme()), *_scales(tensor, torch), tensor.int_repr())
    flat = tensor.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return ("tensor", *kind, tuple(tensor.stride()), hashed(raw))


def _scales(tensor: Any, torch: Any) -> tuple[object, ...]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return float(tensor.q_scale()), int(tensor.q_zero_point())
    return tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), int(tensor.q_per_channel_axis())
