"""Read a model folder in the ordinary Hugging Face form. No pickle is ever read: weights are safetensors."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from minibatch.model.config import ModelConfig, ModelFileError


def read_config(folder: Path) -> ModelConfig:
    """`config.json` of a folder."""
    path = folder / "config.json"
    try:
        return ModelConfig.from_hf(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: no such file; a model folder holds config.json, *.safetensors, tokenizer.json"
        ) from None
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from None


def read_weights(folder: Path, config: ModelConfig) -> dict[str, torch.Tensor]:
    """All tensors the model needs, as stored, from every *.safetensors file of the folder; shapes checked."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth")]
        hint = f"; {', '.join(others)} is a pickle, which this package does not read" if others else ""
        raise ModelFileError(f"{folder}: no *.safetensors file{hint}")
    found: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys()}
        except SafetensorError as error:
            raise ModelFileError(f"{path}: damaged or not a safetensors file ({error})") from None
    check_weights(found, config, str(folder))
    return found


def check_weights(found: dict[str, torch.Tensor], config: ModelConfig, where: str) -> None:
    """Refuse a missing, misshapen or non-finite tensor, by name."""
    for name, shape in config.shapes().items():
        tensor = found.get(name)
        if tensor is None:
            raise ModelFileError(f"{where}: the tensor {name} is missing")
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{where}: the tensor {name} has shape {tuple(tensor.shape)}, config.json asks for {shape}"
            )
        if not torch.stack(torch.aminmax(tensor)).isfinite().all():  # NaN is least and greatest; no copy is made
            raise ModelFileError(f"{where}: the tensor {name} holds values that are not finite")
