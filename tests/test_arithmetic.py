"""KV arithmetic against published figures, and what it refuses."""

import pytest

from minibatch.memory.arithmetic import (
    CARDS,
    GB,
    MODELS,
    GiB,
    KiB,
    ModelSpec,
    blocks_that_fit,
    kv_pool_bytes,
    sequences_that_fit,
    tokens_that_fit,
)


@pytest.mark.parametrize(
    "name, kib",
    [("SmolLM2-135M", 22.5), ("Llama-2-7B", 512), ("Llama-3-8B", 128), ("OPT-13B", 800), ("Llama-2-70B", 320)]
    + [("OPT-66B", 2.25 * 1024), ("GPT-3 175B", 4.5 * 1024)],
)
def test_bytes_of_a_token(name, kib):
    assert MODELS[name].kv_bytes_per_token == kib * KiB


def test_article_1_a_7b_leaves_66_gb_of_80():
    pool = kv_pool_bytes(MODELS["Llama-2-7B"], CARDS["A100-80"])
    assert round(pool / GB, 1) == 66.5
    assert tokens_that_fit(MODELS["Llama-2-7B"], pool) == 126_884
    assert [sequences_that_fit(MODELS["Llama-2-7B"], pool, length) for length in (2048, 4096)] == [61, 30]


@pytest.mark.parametrize(
    "name, memory, usable, tokens",
    [
        ("Llama-2-7B", 80 * GiB, 0.9, 121_752),
        ("Llama-2-7B", 141 * GB, 1.0, 243_232),
        ("Llama-3-8B", 80 * GB, 1.0, 487_823),
        ("Llama-3-8B", 80 * GiB, 0.9, 467_295),
        ("Llama-3-8B", 141 * GB, 1.0, 953_216),
        ("OPT-13B", 80 * GB, 1.0, 66_276),
        ("OPT-13B", 80 * GiB, 0.9, 62_992),
        ("OPT-13B", 141 * GB, 1.0, 140_739),
    ],
)
def test_tokens_on_a_card(name, memory, usable, tokens):
    assert tokens_that_fit(MODELS[name], kv_pool_bytes(MODELS[name], memory, usable)) == tokens


def test_grouped_query_attention_makes_room():
    pool = kv_pool_bytes(MODELS["Llama-3-8B"], 80 * GB)
    assert sequences_that_fit(MODELS["Llama-3-8B"], pool, 2048) == 238


@pytest.mark.parametrize(
    "name, gib, slots", [("OPT-13B", 12, 15_728), ("OPT-66B", 21, 9_557), ("GPT-3 175B", 264, 60_074)]
)
def test_table_1_of_the_vllm_paper(name, gib, slots):
    assert tokens_that_fit(MODELS[name], gib * GiB) == slots
    assert blocks_that_fit(MODELS[name], gib * GiB) == slots // 16


def test_borders_of_a_block_and_of_a_sequence():
    tiny = ModelSpec(layers=1, kv_heads=1, head_dim=1, parameters=1)  # 4 bytes a token
    for k in (1, 2, 3):
        for tokens, blocks in ((16 * k - 1, k - 1), (16 * k, k), (16 * k + 1, k)):
            assert tokens_that_fit(tiny, 4 * tokens) == tokens and tokens_that_fit(tiny, 4 * tokens + 3) == tokens
            assert blocks_that_fit(tiny, 4 * tokens) == blocks == sequences_that_fit(tiny, 4 * tokens, 16)


def test_the_cache_may_have_another_precision_than_the_weights():
    fp8 = ModelSpec(32, 8, 128, 8.03e9, bytes_per_value=1)
    assert fp8.kv_bytes_per_token == 64 * KiB and fp8.weight_bytes == MODELS["Llama-3-8B"].weight_bytes
    assert ModelSpec(2, 1, 4, 10, bytes_per_weight=4).weight_bytes == 40


def test_the_weights_exactly_fill_a_card_or_do_not_fit():
    model = ModelSpec(1, 1, 1, parameters=50)
    assert kv_pool_bytes(model, 100) == 0 == tokens_that_fit(model, 0)
    with pytest.raises(ValueError, match="memory_bytes=99: the weights take"):
        kv_pool_bytes(model, 99)
    with pytest.raises(ValueError, match="the weights take 138.0 GB, 80.0 GB may be used"):
        kv_pool_bytes(MODELS["Llama-2-70B"], CARDS["H100"])


def test_bad_numbers_are_refused_by_name():
    with pytest.raises(ValueError, match="kv_heads=0"):
        ModelSpec(1, 0, 1, 1)
    with pytest.raises(ValueError, match="parameters=nan"):
        ModelSpec(1, 1, 1, float("nan"))
    for usable in (0, 1.1):
        with pytest.raises(ValueError, match=f"usable={usable}"):
            kv_pool_bytes(MODELS["OPT-13B"], 80 * GB, usable)
    with pytest.raises(ValueError, match="length=0"):
        sequences_that_fit(MODELS["OPT-13B"], GiB, 0)
    with pytest.raises(ValueError, match="block_size=-1"):
        blocks_that_fit(MODELS["OPT-13B"], GiB, -1)


def test_the_table_knows_the_model_of_the_course(smollm2):
    assert smollm2.config.kv_bytes_per_token == 2 * MODELS["SmolLM2-135M"].kv_bytes_per_token  # float32 here
