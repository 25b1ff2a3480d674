"""The operations of `native.cpp`, compiled for this CPU and called through ctypes. Explained in notebook 01.

model = load_model("smollm2", native=True)  # needs Linux and g++; the first time it compiles, a second or two

Plain torch stays the model to read, and what these are tested against. They compute the same to rounding, faster.
"""

import ctypes
import functools
from pathlib import Path

import torch
import torch.nn.functional as F

from minibatch.cuda.build import build
from minibatch.cuda.errors import KernelUnavailable
from minibatch.model.linear import Linear
from minibatch.model.llama import Operations

SOURCE = Path(__file__).with_name("native.cpp")
POINTER, INT = ctypes.c_void_p, ctypes.c_int
NORM = [POINTER] * 3 + [INT] * 2 + [ctypes.c_float, INT]
ROTATION = [POINTER, ctypes.c_int64] + [POINTER] * 3 + [INT] * 4
ARGUMENTS = {
    "panel": [],
    "product": [POINTER] * 4 + [INT] * 4,
    "rms_norm_float32": NORM,
    "rms_norm_bfloat16": NORM,
    "rotate_float32": ROTATION,
    "rotate_bfloat16": ROTATION,
}


def native_operations(dtype: torch.dtype, lanes: int | None = None) -> Operations:
    """The operations for a model of float32 or bfloat16 weights on a CPU.

    Products are ours in float32 alone: in bfloat16 oneDNN has the processor's matrix units. `lanes` compiles for
    registers of 4, 8 or 16 floats whatever this CPU has. Raises KernelUnavailable and BuildError.
    """
    library = load_library(lanes)
    name = str(dtype).removeprefix("torch.")
    return Operations(
        functools.partial(NativeLinear, library) if dtype == torch.float32 else Linear,
        functools.partial(_rms_norm, getattr(library, f"rms_norm_{name}"), dtype),
        functools.partial(_rotate, getattr(library, f"rotate_{name}"), dtype),
    )


@functools.cache
def load_library(lanes: int | None = None) -> ctypes.CDLL:
    """The compiled library, made if the user's cache does not have it."""
    defines = {} if lanes is None else {"LANES": str(lanes), "ROWS": "8" if lanes == 16 else "4"}
    path = build("native", defines, SOURCE)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelUnavailable(f"{path} does not load ({error}): delete it, and it is built anew") from error
    for name, types in ARGUMENTS.items():
        getattr(library, name).argtypes = types
    return library


class NativeLinear(Linear):
    """As `Linear`, for float32. The weight lies in panels [panels, in, outputs of a panel], each read front to back."""

    def __init__(self, library: ctypes.CDLL, weight: torch.Tensor):
        self.shape, self.packed, self.product = tuple(weight.shape), True, library.product
        outs, into = weight.shape
        width = library.panel()
        self.weight = F.pad(weight, (0, 0, 0, -outs % width)).view(-1, width, into).transpose(1, 2).contiguous()

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        rows, (outs, into) = len(x), self.shape
        x = _checked("x", x, (rows, into), torch.float32).contiguous()
        if residual is not None:
            residual = _checked("residual", residual, (rows, outs), torch.float32).contiguous()
        y = x.new_empty(rows, outs)
        added = None if residual is None else residual.data_ptr()
        pointers = (x.data_ptr(), self.weight.data_ptr(), added, y.data_ptr())
        self.product(*pointers, rows, into, outs, torch.get_num_threads())
        return y


def _rms_norm(function, dtype: torch.dtype, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows, hidden = len(x), len(weight)
    x = _checked("x", x, (rows, hidden), dtype).contiguous()
    weight = _checked("weight", weight, (hidden,), dtype).contiguous()
    y = torch.empty_like(x)
    function(x.data_ptr(), weight.data_ptr(), y.data_ptr(), rows, hidden, eps, torch.get_num_threads())
    return y


def _rotate(function, dtype: torch.dtype, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rows, heads, dim = _checked("x", x, x.shape, dtype).shape
    cos, sin = (_checked("cos, sin", table, (rows, 1, dim), torch.float32).contiguous() for table in (cos, sin))
    if x.stride()[1:] != (dim, 1):  # rows may lie apart, as those of q and k do with v between them
        x = x.contiguous()
    y = x.new_empty(x.shape)
    pointers = (x.data_ptr(), x.stride(0), cos.data_ptr(), sin.data_ptr(), y.data_ptr())
    function(*pointers, rows, heads, dim, torch.get_num_threads())
    return y


def _checked(name: str, x: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The tensor itself. A C function would believe any shape and type."""
    if x.shape != shape or x.dtype != dtype:
        raise ValueError(f"{name} is {list(x.shape)} {x.dtype}: must be {list(shape)} {dtype}")
    return x
