"""The model: a Llama decoder in plain torch, its K/V tensors, sampling, tokenizer and loading."""

from minibatch.model.config import ModelConfig, ModelFileError
from minibatch.model.executor import TorchExecutor
from minibatch.model.llama import Llama
from minibatch.model.load import KNOWN, Model, load_model

__all__ = ["KNOWN", "Llama", "Model", "ModelConfig", "ModelFileError", "TorchExecutor", "load_model"]
