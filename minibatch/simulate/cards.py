"""Cards, and a model on one or several of them: the numbers that a step's time is made of. Introduced in notebook 09.

Bytes a second, floating-point operations a second (dense, 16-bit), all as the makers name them; what a server reaches
of them is the cost model's business (`roofline.py`).
"""

import json
import math
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files

from minibatch.memory.arithmetic import CARDS as MEMORY
from minibatch.memory.arithmetic import GB, MODELS, ModelSpec, kv_pool_bytes, tokens_that_fit

TERA = 1e12


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator. `peer_link` is what it sends to its neighbours, `host_link` to host memory, each one way."""

    name: str
    memory_bytes: float
    bandwidth: float  # of its own memory, bytes/s
    flops: float  # 16-bit, without sparsity
    host_link: float  # bytes/s that a copy reaches
    peer_link: float  # bytes/s
    source: str


_PCIE4, _PCIE5 = 25e9, 50e9  # of 16 lanes, about 80 % of 31.5 and 63 GB/s: what large copies reach
CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        Card(
            "A100-40", MEMORY["A100-40"], 1.555 * TERA, 312 * TERA, _PCIE4, 300e9, "NVIDIA A100 data sheet, SXM 40 GB"
        ),
        Card(
            "A100-80", MEMORY["A100-80"], 2.039 * TERA, 312 * TERA, _PCIE4, 300e9, "NVIDIA A100 data sheet, SXM 80 GB"
        ),
        Card("H100", MEMORY["H100"], 3.35 * TERA, 989 * TERA, _PCIE5, 450e9, "NVIDIA H100 data sheet, SXM"),
        Card("H200", MEMORY["H200"], 4.8 * TERA, 989 * TERA, _PCIE5, 450e9, "NVIDIA H200 data sheet, SXM"),
        Card("L4", MEMORY["L4"], 0.3 * TERA, 121 * TERA, _PCIE4, _PCIE4, "NVIDIA L4 data sheet; no NVLink"),
    )
}


def measured_cpu(dtype: str = "bfloat16") -> Card:
    """The machine on which notebook 01 was written, as measured there (data/measured_model.json): two CPU cores.

    `flops` are those of `dtype`. Host memory is its own memory, so a copy moves each byte twice.
    """
    found = json.loads(files("minibatch").joinpath("data", "measured_model.json").read_text("utf-8"))
    bandwidth, machine = found["bandwidth"], found["machine"]
    source = f"measured on {machine['cores']} cores of an {machine['cpu']}, {machine['date']}: {found['command']}"
    return Card("laptop-cpu", 8 * GB, bandwidth, found["arithmetic"][dtype], bandwidth / 2, bandwidth / 2, source)


CARDS["laptop-cpu"] = measured_cpu()


@dataclass(frozen=True)
class Deployment:
    """A model on `tensor_parallel` equal cards, of whose memory the share `usable` may be used. Names or objects.

    0.9 is what vLLM and its like hold themselves to (`gpu_memory_utilization`); activations live in the rest.
    Raises ValueError for an unknown name, with the known ones, and for a model that does not fit, with the arithmetic.
    """

    card: str | Card
    model: str | ModelSpec
    tensor_parallel: int = 1
    usable: float = 0.9

    def __post_init__(self):
        object.__setattr__(self, "card", known("card", self.card, CARDS))
        object.__setattr__(self, "model", known("model", self.model, MODELS))
        if not isinstance(self.tensor_parallel, int) or self.tensor_parallel < 1:
            raise ValueError(f"tensor_parallel={self.tensor_parallel!r}: a whole number of cards, at least 1")
        if self.model.heads % self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel={self.tensor_parallel}: must divide the model's {self.model.heads} heads"
            )
        if not 0 < self.usable <= 1:
            raise ValueError(f"usable={self.usable!r}: a share of the memory, above 0 and at most 1")
        if self.memory_bytes < self.model.weight_bytes:
            raise ValueError(self._too_small())

    @property
    def memory_bytes(self) -> float:
        """What may be used, on all cards together."""
        return self.card.memory_bytes * self.tensor_parallel * self.usable

    @property
    def kv_tokens(self) -> int:
        """K/V positions that fit beside the weights, on all cards together."""
        return tokens_that_fit(self.model, kv_pool_bytes(self.model, self.memory_bytes))

    def _too_small(self) -> str:
        card, weights, one = self.card, self.model.weight_bytes / GB, self.card.memory_bytes * self.usable / GB
        enough = math.ceil(weights / one)
        return (
            f"card={card.name!r}: the weights take {weights:.1f} GB, and of {self.tensor_parallel} x "
            f"{card.memory_bytes / GB:.0f} GB x {self.usable} = {self.memory_bytes / GB:.1f} GB may be used; "
            f"it takes {enough} of these cards (tensor_parallel) or more"
        )


def known(field: str, choice: object, table: dict[str, object]) -> object:
    """An entry by its name, or an object as it is. Raises ValueError with the known names and the nearest of them."""
    if not isinstance(choice, str):
        return choice
    if choice in table:
        return table[choice]
    names = {name.lower(): name for name in table}
    longer = [name for name in names if name.startswith(choice.lower())]  # "a100" is no H100
    near = longer or get_close_matches(choice.lower(), names, n=1, cutoff=0.4)
    hint = f" Did you mean {names[near[0]]!r}?" if near else ""
    raise ValueError(f"{field}={choice!r}: there is {', '.join(table)}.{hint}")
