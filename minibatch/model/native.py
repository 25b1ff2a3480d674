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
POINTER, INT, LONG, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
ARGUMENTS = {
    "product": [POINTER] * 4 + [INT] * 4,
    "rms_norm": [POINTER] * 3 + [INT] * 2 + [FLOAT, INT],
    "rotate": [POINTER, LONG] + [POINTER] * 3 + [INT] * 4,
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
        functools.partial(_rms_norm, getattr(library, f"rms_norm_{name}")),
        functools.partial(_rotate, getattr(library, f"rotate_{name}")),
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
    for name in ("product", "rms_norm_float32", "rms_norm_bfloat16", "rotate_float32", "rotate_bfloat16"):
        getattr(library, name).argtypes = ARGUMENTS[name.split("_float")[0].split("_bfloat")[0]]
        getattr(library, name).restype = None
    return library


class NativeLinear(Linear):
    """As `Linear`, for float32. The weight lies in panels [panels, in, outputs of a panel], each read front to back."""

    def __init__(self, library: ctypes.CDLL, weight: torch.Tensor):
        self.shape, self.packed, self.product = tuple(weight.shape), True, library.product
        outs, into = weight.shape
        width = library.panel()
        self.weight = F.pad(weight, (0, 0, 0, -outs % width)).view(-1, width, into).transpose(1, 2).contiguous()

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        outs, into = self.shape
        x = _checked("x", x, len(x), into)
        if residual is not None:
            residual = _checked("residual", residual, len(x), outs)
        y = x.new_empty(len(x), outs)
        added = None if residual is None else residual.data_ptr()
        arguments = (x.data_ptr(), self.weight.data_ptr(), added, y.data_ptr(), len(x), into, outs)
        self.product(*arguments, torch.get_num_threads())
        return y


def _checked(name: str, x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The matrix row after row; a C function would believe any shape and type."""
    if x.shape != (rows, columns) or x.dtype != torch.float32:
        raise ValueError(f"{name} is {list(x.shape)} {x.dtype}: must be [{rows}, {columns}] float32")
    return x.contiguous()


def _rms_norm(function, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    function(x.data_ptr(), weight.data_ptr(), y.data_ptr(), *x.shape, eps, torch.get_num_threads())
    return y


def _rotate(function, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    y = x.new_empty(x.shape)
    stride, threads = x.stride(0), torch.get_num_threads()
    function(x.data_ptr(), stride, cos.data_ptr(), sin.data_ptr(), y.data_ptr(), *x.shape, threads)
    return y
