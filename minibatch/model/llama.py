"""A Llama decoder over packed tokens, in plain torch. Introduced in notebook 00, read in notebook 03.

Selective batching (Orca, OSDI 2022, section 3.2): the tokens of all sequences of a step lie end to end in one
[total_tokens, hidden] matrix, and every layer but attention neither knows nor cares whose they are. Only
attention looks at one sequence at a time, so the model is handed a function that does.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from minibatch.model.config import ModelConfig
from minibatch.model.linear import Linear

# attend(layer, q [T, heads, head_dim], k [T, kv_heads, head_dim], v [T, kv_heads, head_dim]) -> [T, heads * head_dim]
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Operations(NamedTuple):
    """What a layer is made of, where there are two of a kind: `PLAIN` below, in torch, and `native_operations`."""

    linear: Callable[[torch.Tensor], Linear]
    rms_norm: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
    rotate: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Layer:
    """The weights of one decoder layer. Products that share an input are one product: q, k, v; gate and up."""

    def __init__(self, weights: dict[str, torch.Tensor], prefix: str, linear: Callable[[torch.Tensor], Linear]):
        def take(name: str) -> torch.Tensor:
            return weights.pop(f"{prefix}{name}.weight")

        self.attention_norm = take("input_layernorm")
        self.qkv = linear(torch.cat([take(f"self_attn.{name}_proj") for name in "qkv"]))
        self.out = linear(take("self_attn.o_proj"))
        self.mlp_norm = take("post_attention_layernorm")
        self.gate_up = linear(torch.cat([take(f"mlp.{name}_proj") for name in ("gate", "up")]))
        self.down = linear(take("mlp.down_proj"))


class Llama:
    """Weights by their Hugging Face names, all of one dtype (float32 or bfloat16) on one device.

    They are taken out of the dict one by one, so that no weight is held twice: as it was read and as it is used.
    """

    def __init__(self, config: ModelConfig, weights: dict[str, torch.Tensor], operations: Operations | None = None):
        self.config, self.operations = config, operations or PLAIN
        linear = self.operations.linear
        self.embedding = weights.pop("model.embed_tokens.weight")  # [vocab, hidden]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self.layers = [Layer(weights, f"model.layers.{index}.", linear) for index in range(config.num_layers)]
        self.norm = weights.pop("model.norm.weight")
        self.head = linear(self.embedding if config.tie_word_embeddings else weights.pop("lm_head.weight"))
        self.cos, self.sin = rope_tables(config, self.device)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Hidden states [T, hidden] of T packed tokens. `tokens` and `positions` are int64 [T]."""
        config, (_, rms_norm, rotate) = self.config, self.operations
        heads, kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        cos, sin = self.cos[positions], self.sin[positions]  # [T, 1, head_dim], the same in every layer
        x = self.embedding[tokens]
        for index, layer in enumerate(self.layers):
            h = rms_norm(x, layer.attention_norm, config.rms_norm_eps)
            qkv = layer.qkv(h).view(-1, heads + 2 * kv_heads, head_dim)
            rotated = rotate(qkv[:, : heads + kv_heads], cos, sin)
            mixed = attend(index, rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :])
            x = layer.out(mixed, residual=x)
            h = rms_norm(x, layer.mlp_norm, config.rms_norm_eps)
            gate, up = layer.gate_up(h).chunk(2, dim=-1)
            x = layer.down(F.silu(gate) * up, residual=x)
        return rms_norm(x, self.norm, config.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 scores [rows, vocab] of the next token, for hidden states [rows, hidden]."""
        return self.head(hidden).float()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row [hidden] to a root mean square of 1, then by `weight` [hidden]."""
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def rope_tables(config: ModelConfig, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tables [positions, 1, head_dim], float32, of the angles position * theta ** (-2i / head_dim).

    Cosines twice over, and sines with the sign that `rotate` wants: minus for the first half.
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.arange(config.max_position_embeddings, dtype=torch.float32)[:, None] / config.rope_theta**exponent
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1)[:, None].to(device), torch.cat((-sin, sin), -1)[:, None].to(device)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of x [T, heads, head_dim]: dimension i turns with i + head_dim / 2.

    In float32 whatever the dtype of x, for a bfloat16 angle is worth little at position 1,000.
    """
    full = x.float()
    partner = full.roll(x.shape[-1] // 2, dims=-1)  # each dimension's other half of the pair
    return torch.addcmul(full * cos, partner, sin).to(x.dtype)


PLAIN = Operations(Linear, rms_norm, rotate)
