"""SmolLM2 in the form each engine reads: the same numbers, dequantised once, in float32 or rounded to bfloat16."""

import json
from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize, quants
from safetensors.torch import save_file

from minibatch.model import ModelConfig, smollm2

_GGUF_TYPES = {"float32": GGMLQuantizationType.F32, "bfloat16": GGMLQuantizationType.BF16}


def prepare(work: Path, dtype: str) -> None:
    """Write `hf-DTYPE/` (transformers, vLLM) and `smollm2-DTYPE.gguf` (llama.cpp) into `work` if they are missing."""
    source = smollm2.fetch()
    folder, gguf = work / f"hf-{dtype}", work / f"smollm2-{dtype}.gguf"
    if not (folder / "model.safetensors").exists():
        write_hf(source, folder, dtype)
    if not gguf.exists():
        part = gguf.with_suffix(".part")
        write_gguf(source, part, _GGUF_TYPES[dtype])
        part.replace(gguf)


def write_hf(source: Path, folder: Path, dtype: str) -> None:
    """A Hugging Face folder: config.json and model.safetensors."""
    config, weights, tokenizer = smollm2.read(source)
    folder.mkdir(parents=True, exist_ok=True)
    eos = tokenizer.eos_token_ids[0]
    (folder / "config.json").write_text(json.dumps(hf_config(config, dtype, eos), indent=1))
    rounded = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in weights.items()}
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})


def hf_config(config: ModelConfig, dtype: str, eos: int) -> dict:
    """The fields of a Llama's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype,
        "bos_token_id": 1,
        "eos_token_id": eos,
    }


def write_gguf(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """The same GGUF, its matrices dequantised and written as `kind`; norms stay float32, as llama.cpp wants."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1 or kind == GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
