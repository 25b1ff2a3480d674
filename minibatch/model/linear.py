"""A matrix product whose weight is laid out once, when the model is loaded. Explained in notebook 01.

On a CPU, `F.linear` may reorder the whole weight for its kernel at every call, which at decode (a few rows
against a large matrix) can cost as much as the product. oneDNN can do it once and keep the result; torch's
own compiler uses that, under private names. They are probed for here, and without them (another torch, a
GPU) the plain product serves. `Linear.packed` says which it is; the numbers agree to rounding.
"""

import torch
import torch.nn.functional as F


class Linear:
    """y = x @ weight.T for x [tokens, in], weight [out, in]; `residual` [tokens, out] is added in the same pass."""

    def __init__(self, weight: torch.Tensor):
        self.shape = tuple(weight.shape)
        self.packed = can_pack(weight.dtype, weight.device)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, 8) if self.packed else weight

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        if not self.packed:
            y = F.linear(x, self.weight)
            return y if residual is None else y + residual
        if residual is None:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, None, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, None, "add")


_probed: dict[torch.dtype, bool] = {}


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """True if this torch has the packed product for this dtype on a CPU, and it gives the right answer."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return False
    if dtype not in _probed:
        _probed[dtype] = _probe(dtype)
    return _probed[dtype]


def _probe(dtype: torch.dtype) -> bool:
    # Fixed numbers, no generator: the user's random state is not ours to move.
    x = (torch.arange(3 * 16).reshape(3, 16) % 7 - 3).to(dtype)
    weight = (torch.arange(8 * 16).reshape(8, 16) % 5 - 2).to(dtype)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 8)
        y = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        z = torch.ops.mkldnn._linear_pointwise.binary(x, y, packed, None, "add")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.equal(y, F.linear(x, weight)) and torch.equal(z, 2 * y)
