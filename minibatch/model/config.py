"""The shape of a Llama-architecture model, read from a Hugging Face `config.json`."""

from dataclasses import dataclass


class ModelFileError(ValueError):
    """A model file that is missing, damaged or of a kind this package cannot run; says which and why."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes in elements. Attention is grouped (GQA): `num_heads` queries share `num_kv_heads` keys and values."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True

    @property
    def kv_bytes_per_token(self) -> int:
        """Float32 bytes that one token's K and V take over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 4

    @classmethod
    def from_hf(cls, config: dict) -> "ModelConfig":
        """Take over a Hugging Face configuration; refuse what `Llama` does not compute, naming the field."""
        expected = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
        for field, value in expected.items():
            if config.get(field, value) != value:
                raise ModelFileError(f"config.json: {field}={config[field]!r} is not supported, only {value!r}")
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
            raise ModelFileError(f"config.json: rope scaling {kind!r} is not supported")
        try:
            heads = config["num_attention_heads"]
            found = cls(
                vocab_size=config["vocab_size"],
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_layers=config["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=config.get("num_key_value_heads") or heads,
                head_dim=config.get("head_dim") or config["hidden_size"] // heads,
                max_position_embeddings=config["max_position_embeddings"],
                rope_theta=config.get("rope_theta") or rope.get("rope_theta", 10_000.0),
                rms_norm_eps=config.get("rms_norm_eps", 1e-5),
                tie_word_embeddings=config.get("tie_word_embeddings", False),
            )
        except KeyError as missing:
            raise ModelFileError(f"config.json: the field {missing} is missing") from None
        if found.num_heads % found.num_kv_heads:
            raise ModelFileError(
                f"config.json: {found.num_heads} heads do not divide over {found.num_kv_heads} KV heads"
            )
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors a checkpoint must hold, by their Hugging Face names, each with its shape [out, in]."""
        hidden, kv = self.hidden_size, self.num_kv_heads * self.head_dim
        layer = {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (self.num_heads * self.head_dim, hidden),
            "self_attn.k_proj.weight": (kv, hidden),
            "self_attn.v_proj.weight": (kv, hidden),
            "self_attn.o_proj.weight": (hidden, self.num_heads * self.head_dim),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (self.intermediate_size, hidden),
            "mlp.up_proj.weight": (self.intermediate_size, hidden),
            "mlp.down_proj.weight": (hidden, self.intermediate_size),
        }
        found = {"model.embed_tokens.weight": (self.vocab_size, hidden), "model.norm.weight": (hidden,)}
        if not self.tie_word_embeddings:
            found["lm_head.weight"] = (self.vocab_size, hidden)
        for index in range(self.num_layers):
            found |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
        return found
