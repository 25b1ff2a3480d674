"""`load_model`: a name or a folder in, a model ready to serve out."""

import difflib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch

from minibatch.memory import Memory, PagedMemory
from minibatch.model import checkpoint, smollm2
from minibatch.model.config import ModelConfig
from minibatch.model.executor import TorchExecutor
from minibatch.model.llama import Llama, Operations
from minibatch.model.pages import HUGE, use_huge_pages
from minibatch.model.tokenizer import Tokenizer, read_tokenizer
from minibatch.request import Request, SamplingParams

KNOWN = {
    "tiny": "embedded, 0.3 M parameters, counts and lists; trained by minibatch/model/train_tiny.py",
    "smollm2": "SmolLM2-135M-Instruct, 134.5 M parameters, a real chat model; 93 MB, fetched once",
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, tokenizer and the two things one does with them: ask, and serve."""

    name: str
    config: ModelConfig
    llama: Llama
    tokenizer: Tokenizer

    def request(
        self, request_id: str, text: str, arrival: float = 0.0, system: str | None = None, **sampling: object
    ) -> Request:
        """A chat request that ends at the model's EOS. `sampling` are fields of SamplingParams."""
        sampling.setdefault("stop_token_ids", self.tokenizer.eos_token_ids)
        return Request(request_id, tuple(self.tokenizer.chat(text, system)), SamplingParams(**sampling), arrival)

    def executor(self, memory: Memory, batched_decode: bool = True) -> TorchExecutor:
        """An executor whose K/V tensors have the size of `memory`'s pool, in regions or in blocks as it says."""
        paged = {}
        if isinstance(memory, PagedMemory):
            paged = {"block_size": memory.block_size, "host_blocks": memory.host_blocks or 0}
        executor = TorchExecutor(self.llama, memory.num_positions, memory.max_model_len, batched_decode, **paged)
        executor.memory = memory  # the engine asks: the scheduler must keep the books of these very tensors
        return executor


def load_model(name: str | Path = "tiny", dtype: str = "float32", device: str = "cpu", native: bool = False) -> Model:
    """Load "tiny" (embedded), "smollm2" (fetched once, then offline) or a Hugging Face folder of a Llama model.

    `native` puts operations compiled for this CPU (`native.py`) in the place of torch's. Raises ModelFileError for a
    file that is missing, damaged or unsupported, ValueError for a bad argument, and KernelUnavailable where `native`
    cannot be had, with what is missing.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: choose one of {', '.join(DTYPES)}")
    operations = _native(dtype, device) if native else None
    if name == "smollm2":
        config, weights, tokenizer = smollm2.read(smollm2.fetch())
    else:
        folder = _folder(name)
        config = checkpoint.read_config(folder)
        weights, tokenizer = checkpoint.read_weights(folder, config), read_tokenizer(folder)
    for key in weights:  # one at a time: a new dict would hold every weight twice
        weights[key] = weights[key].to(device=_device(device), dtype=DTYPES[dtype])
    llama = Llama(config, weights, operations)
    if llama.embedding.nbytes > 8 * HUGE and llama.device.type == "cpu":  # a small model fits the caches as it is
        use_huge_pages()
    return Model(str(name), config, llama, tokenizer)


def _native(dtype: str, device: str) -> Operations:
    if torch.device(device).type != "cpu":
        raise ValueError(f"native=True, device={device!r}: native operations are for a CPU")
    from minibatch.model.native import native_operations  # a compiler is looked for by those who ask for one

    return native_operations(DTYPES[dtype])


def _folder(name: str | Path) -> Path:
    if name == "tiny":
        return Path(str(files("minibatch") / "data" / "tiny"))
    if Path(name).is_dir():
        return Path(name)
    near = difflib.get_close_matches(str(name), KNOWN, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"model {str(name)!r}: {hint}known names are {', '.join(KNOWN)}; or give the path of a model folder"
    )


def _device(name: str) -> torch.device:
    """The device, or an error that says what this machine has."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = torch.device(name).type
    if not available.get(kind, False):
        raise ValueError(
            f"device={name!r}: not available here; there is {', '.join(k for k, v in available.items() if v)}"
        )
    return torch.device(name)
