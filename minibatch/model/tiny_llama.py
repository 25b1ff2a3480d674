"""The embedded model written out in full: a small Llama that can be trained, and its greedy answer.

Written apart from the model that serves (no K/V cache, no packing, nothing in common), with Hugging Face's names
for the weights, so that the tests can hold the one against the other.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

TINY = Path(__file__).parents[1] / "data" / "tiny"
USER, ASSISTANT, END = 256, 257, 258  # the special tokens follow the 256 bytes
SPECIALS = {USER: "<|user|>", ASSISTANT: "<|assistant|>", END: "<|end|>"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 259,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "bos_token_id": USER,
    "eos_token_id": END,
    "pad_token_id": END,
    "torch_dtype": "float16",
}


def encode(prompt: str) -> list[int]:
    """Token ids that ask for an answer: <|user|>, the bytes of the prompt, <|assistant|>."""
    return [USER, *prompt.encode(), ASSISTANT]


class Layer(nn.Module):
    """Attention, then SwiGLU, each normalised before and added after."""

    def __init__(self) -> None:
        super().__init__()
        wide, inner, head = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
        self.heads, self.kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
        shapes = {"q": (wide, self.heads * head), "k": (wide, self.kv_heads * head), "v": (wide, self.kv_heads * head)}
        shapes |= {"o": (self.heads * head, wide), "gate": (wide, inner), "up": (wide, inner), "down": (inner, wide)}
        linears = {f"{name}_proj": nn.Linear(*shape, bias=False) for name, shape in shapes.items()}
        self.self_attn = nn.ModuleDict({name: linears[name] for name in ("q_proj", "k_proj", "v_proj", "o_proj")})
        self.mlp = nn.ModuleDict({name: linears[name] for name in ("gate_proj", "up_proj", "down_proj")})
        self.input_layernorm = nn.RMSNorm(wide, eps=CONFIG["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(wide, eps=CONFIG["rms_norm_eps"])

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: float32 [batch, time, hidden]; cos, sin: [time, head_dim / 2]."""
        attn, mlp, h = self.self_attn, self.mlp, self.input_layernorm(x)
        q = attn.q_proj(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (p(h).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2) for p in (attn.k_proj, attn.v_proj))
        q, k = (rotate(heads, cos, sin) for heads in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + attn.o_proj(mixed.transpose(1, 2).flatten(2))
        h = self.post_attention_layernorm(x)
        return x + mlp.down_proj(F.silu(mlp.gate_proj(h)) * mlp.up_proj(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE as Hugging Face lays it out: dimension i turns with dimension i + head_dim / 2."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class TrainModel(nn.Module):
    """Llama with tied embeddings: int64 [batch, time] -> hidden states, float32 [batch, time, hidden]."""

    def __init__(self) -> None:
        super().__init__()
        vocab, wide = CONFIG["vocab_size"], CONFIG["hidden_size"]
        layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        norm = nn.RMSNorm(wide, eps=CONFIG["rms_norm_eps"])
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocab, wide), "layers": layers, "norm": norm})
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=CONFIG["initializer_range"])
        half = CONFIG["head_dim"] // 2
        self.register_buffer("turns", CONFIG["rope_theta"] ** (-torch.arange(half) / half), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        angles = torch.arange(tokens.shape[1])[:, None] * self.turns
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.model.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., vocab]."""
        return hidden @ self.model.embed_tokens.weight.T

    @torch.inference_mode()
    def generate(self, prompt: str) -> str:
        """The greedy answer, up to the first special token. Computes every position anew for each token."""
        tokens, start = encode(prompt), len(encode(prompt))
        while len(tokens) < CONFIG["max_position_embeddings"]:
            token = int(self.logits(self(torch.tensor([tokens]))[0, -1]).argmax())
            if token in SPECIALS:
                break
            tokens.append(token)
        return bytes(tokens[start:]).decode(errors="replace")


def load(directory: Path = TINY) -> TrainModel:
    """The saved model in float32, ready to generate."""
    model = TrainModel()
    model.load_state_dict({name: w.float() for name, w in load_file(directory / "model.safetensors").items()})
    return model.eval()
