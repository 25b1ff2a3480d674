"""How many K/V caches fit on a card? Arithmetic for anyone, and the figures of a few models and cards.

Introduced in notebook 05. Article 1: "numa placa de 80 gigabytes com um 7B, sobram uns 66 para os caches".

A token's K and V take 2 x layers x kv_heads x head_dim x bytes per value. Heads are those of K and V, which are fewer
than those of the queries in a model with grouped-query attention. Memory is in bytes; GB is 10^9, GiB is 2^30.
"""

import math
from dataclasses import dataclass

GB, GiB, MiB, KiB = 10**9, 2**30, 2**20, 2**10


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What of a model decides its memory. Two bytes a value: float16 or bfloat16; four: float32; one: an FP8 cache."""

    layers: int
    kv_heads: int
    head_dim: int
    parameters: float
    bytes_per_value: float = 2  # of K and V
    bytes_per_weight: float = 2
    heads: int = 0  # of the queries; 0: as many as of K and V

    def __post_init__(self):
        object.__setattr__(self, "heads", self.heads or self.kv_heads)
        for field in self.__slots__:
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field}={value!r}: must be a number above 0")

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one token over all layers."""
        return int(2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_value)

    @property
    def weight_bytes(self) -> float:
        """All parameters."""
        return self.parameters * self.bytes_per_weight

    @property
    def hidden(self) -> int:
        """Width of a token between two layers."""
        return self.heads * self.head_dim


# Shapes are those of each model's published config.json; parameters are counted from it, to four digits.
MODELS = {
    "SmolLM2-135M": ModelSpec(30, 3, 64, 0.1345e9, heads=9),
    "Llama-2-7B": ModelSpec(32, 32, 128, 6.738e9),
    "Llama-3-8B": ModelSpec(32, 8, 128, 8.030e9, heads=32),
    "OPT-13B": ModelSpec(40, 40, 128, 12.853e9),
    "Llama-2-70B": ModelSpec(80, 8, 128, 68.98e9, heads=64),
    "OPT-66B": ModelSpec(64, 72, 128, 66e9),  # 132 GB of weights in the vLLM paper, table 1
    "GPT-3 175B": ModelSpec(96, 96, 128, 174.6e9),
}

# Bytes as the data sheets name them. A card of "80 GB" has 80 GiB, of which the driver keeps some; and a server keeps
# back 8 to 10 % and room for activations (vLLM: gpu_memory_utilization). That is what `usable` is for below.
CARDS = {"A100-40": 40 * GB, "A100-80": 80 * GB, "H100": 80 * GB, "H200": 141 * GB, "L4": 24 * GB}


def kv_pool_bytes(model: ModelSpec, memory_bytes: float, usable: float = 1.0) -> float:
    """Bytes left for K and V beside the weights, if the share `usable` of a card's memory may be used.

    Raises ValueError if the weights alone do not fit.
    """
    if not 0 < usable <= 1:
        raise ValueError(f"usable={usable!r}: a share of the memory, above 0 and at most 1")
    left = memory_bytes * usable - model.weight_bytes
    if left < 0:
        need, have = model.weight_bytes / GB, memory_bytes * usable / GB
        raise ValueError(f"memory_bytes={memory_bytes!r}: the weights take {need:.1f} GB, {have:.1f} GB may be used")
    return left


def tokens_that_fit(model: ModelSpec, pool_bytes: float) -> int:
    """Whole tokens whose K and V fit into a pool of so many bytes: its slots, as the vLLM paper calls them."""
    return int(pool_bytes // model.kv_bytes_per_token)


def blocks_that_fit(model: ModelSpec, pool_bytes: float, block_size: int = 16) -> int:
    """Whole blocks of `block_size` tokens in a pool."""
    return tokens_that_fit(model, pool_bytes) // _at_least_1("block_size", block_size)


def sequences_that_fit(model: ModelSpec, pool_bytes: float, length: int) -> int:
    """Sequences of `length` tokens each that fit into a pool, if nothing is wasted but what is left at its end."""
    return tokens_that_fit(model, pool_bytes) // _at_least_1("length", length)


def _at_least_1(field: str, tokens: int) -> int:
    if tokens < 1:
        raise ValueError(f"{field}={tokens!r}: must be at least 1 token")
    return tokens
