"""The real model: its scores are those of an independent implementation, its texts those of every batcher."""

import json
from pathlib import Path

import pytest
import torch

from minibatch import build_engine
from minibatch.metrics import summarise
from minibatch.model import smollm2 as source
from minibatch.workload import chat_prompts

REFERENCE = json.loads((Path(__file__).parent / "data" / "smollm2_reference.json").read_text())


@torch.inference_mode()
def scores(llama, ids):
    """Scores after the last of `ids`, the whole prompt at once."""
    from minibatch.model.kv_cache import attention

    hidden = llama.forward(
        torch.tensor(ids), torch.arange(len(ids)), lambda layer, q, k, v: attention(q, k, v).flatten(1)
    )
    return llama.logits(hidden[-1:])[0]


def test_scores_equal_the_committed_ones_of_transformers(smollm2):
    ids = smollm2.tokenizer.chat(REFERENCE["text"])
    assert ids == REFERENCE["prompt_ids"]
    found = scores(smollm2.llama, ids)
    assert len(found) == REFERENCE["vocab_size"]
    for token, score in [*REFERENCE["top"], *REFERENCE["at"]]:
        assert found[token] == pytest.approx(score, abs=2e-3)
    assert found.mean().item() == pytest.approx(REFERENCE["mean"], abs=1e-3)
    assert found.std(correction=0).item() == pytest.approx(REFERENCE["std"], abs=1e-3)
    assert found.topk(20).indices.tolist() == [token for token, _ in REFERENCE["top"]]


def test_scores_equal_transformers_on_the_same_file(smollm2):
    """Where transformers is installed: every score of several texts, read from the very same GGUF."""
    transformers = pytest.importorskip("transformers", reason="the peer is not installed (pip install .[peers])")
    path = source.gguf_path()
    peer = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    for text in ["Once", "The sea is", "def add(a, b):\n    return", "O lote que nunca fecha. " * 20]:
        ids = smollm2.tokenizer.encode(text)
        with torch.inference_mode():
            expected = peer(torch.tensor([ids])).logits[0, -1]
        torch.testing.assert_close(scores(smollm2.llama, ids), expected, atol=2e-3, rtol=0)


def test_greedy_text_is_the_committed_one(smollm2):
    engine = build_engine(smollm2, max_num_seqs=1, max_model_len=128)
    tokens = list(engine.stream(smollm2.request("R", REFERENCE["text"], max_new_tokens=32)))
    assert tokens == REFERENCE["greedy_ids"]
    assert smollm2.tokenizer.decode(tokens) == "The capital of France is Paris."


@pytest.fixture(scope="module")
def requests(smollm2):
    """Every other of the 24 prompts, at most 32 new tokens."""
    return [smollm2.request(name, text, max_new_tokens=32) for name, text in chat_prompts("smollm2")[::2]]


@pytest.fixture(scope="module")
def runs(smollm2, requests):
    """All of them through every batcher on 4 slots."""
    names = ("static", "dynamic", "iteration")
    return {name: build_engine(smollm2, name, 4, max_model_len=80).run(requests) for name in names}


def test_the_same_text_from_every_batcher_and_alone(smollm2, requests, runs):
    texts = {name: {r.request_id: r.tokens for r in trace.requests.values()} for name, trace in runs.items()}
    assert texts["static"] == texts["dynamic"] == texts["iteration"]
    assert len({len(tokens) for tokens in texts["static"].values()}) > 5, "answers of many lengths"
    engine = build_engine(smollm2, max_num_seqs=1, max_model_len=80)
    for one in requests[::5]:
        assert list(engine.stream(one)) == texts["static"][one.request_id]


def test_the_batch_that_never_closes_takes_fewer_steps(runs):
    static, iteration = summarise(runs["static"]), summarise(runs["iteration"])
    assert iteration.steps < static.steps and iteration.dead_slot_steps == 0 < static.dead_slot_steps
    assert iteration.mean_live_slots > static.mean_live_slots and iteration.padding_tokens == 0 < static.padding_tokens
    assert static.useful_tokens == iteration.useful_tokens


def test_bfloat16_serves_too(smollm2):
    """Its rounding differs with the batch, so no equality is asked of it; near the float32 scores it must be."""
    from minibatch import load_model

    half = load_model("smollm2", dtype="bfloat16")
    exact, rounded = scores(smollm2.llama, REFERENCE["prompt_ids"]), scores(half.llama, REFERENCE["prompt_ids"])
    difference = (rounded - exact).abs()
    assert difference.mean() < 0.5 and difference.max() < 5
    engine = build_engine(half, max_num_seqs=1, max_model_len=128)
    tokens = list(engine.stream(half.request("R", REFERENCE["text"], max_new_tokens=8)))
    assert tokens[0] in exact.topk(5).indices, "near ties may fall the other way, but no further"
    assert len(tokens) == 8 or tokens[-1] in half.tokenizer.eos_token_ids


def test_native_operations_write_the_same_in_a_batch_and_alone(smollm2, requests, runs):
    from minibatch import load_model
    from minibatch.cuda.compilers import host_compiler
    from minibatch.cuda.errors import KernelUnavailable

    try:
        host_compiler()
    except KernelUnavailable as missing:
        pytest.skip(f"native operations need a compiler: {missing}")
    native = load_model("smollm2", native=True)
    few = requests[:4]
    tokens = build_engine(native, max_num_seqs=3, max_model_len=80).run(few).requests
    assert all(tokens[r.request_id].tokens == runs["iteration"].requests[r.request_id].tokens for r in few)
    alone = build_engine(native, max_num_seqs=1, max_model_len=80)
    assert list(alone.stream(few[0])) == tokens[few[0].request_id].tokens
