"""Attention over block tables: the fast one gives what the oracle gives, and neither reads what nobody wrote.

The pool is NaN but for what the sequences of a test have stored, and their tables go on into blocks of NaN.
"""

import copy
import itertools
import random

import pytest
import torch

from minibatch.model import ModelConfig
from minibatch.model.kv_cache import PackedAttention, PaddedAttention
from minibatch.model.paged_kv import PagedKVCache, TokenByToken, attention_over_blocks
from minibatch.request import Request, Sequence
from minibatch.step import Chunk

GROUPS = [(4, 4), (8, 2), (6, 2), (12, 3), (8, 1)]  # query heads, KV heads
HEAD_DIM, LAYER = 16, 1


def config(heads, kv_heads):
    """Two layers, of which the second is used."""
    return ModelConfig(32, heads * HEAD_DIM, 32, 2, heads, kv_heads, HEAD_DIM, 256)


class Scene:
    """A poisoned pool, and chunks (start, count) of as many sequences: positions before `start` are stored."""

    def __init__(self, spans, size, heads=8, kv_heads=2, seed=0):
        self.config, self.size = config(heads, kv_heads), size
        torch.manual_seed(seed)
        needed = [-(-(start + count) // size) + 2 for start, count in spans]  # two more than the chunk may touch
        blocks = random.Random(seed).sample(range(sum(needed) + 3), sum(needed))
        self.cache = PagedKVCache(self.config, (sum(needed) + 3) * size, torch.float32, torch.device("cpu"), size)
        self.cache.k[:], self.cache.v[:] = torch.nan, torch.nan
        self.chunks = []
        for slot, (need, (start, count)) in enumerate(zip(needed, spans)):
            sequence = Sequence(Request(f"R{slot}", (1,) * (start + count)))
            sequence.block_table = [blocks.pop() for _ in range(need)]
            self.store(sequence, start)
            self.chunks.append(Chunk(sequence, slot, start, count))
        # As the model hands them over: views of one product.
        qkv = torch.randn(sum(count for _, count in spans), heads + 2 * kv_heads, HEAD_DIM)
        self.qkv = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]

    def store(self, sequence, count):
        """K and V of its first positions."""
        for position in range(count):
            block, offset = sequence.block_table[position // self.size], position % self.size
            for blocks in (self.cache.k_blocks, self.cache.v_blocks):
                blocks[LAYER, block, offset] = torch.randn(self.config.num_kv_heads, HEAD_DIM)

    def run(self, attention, **options):
        """What an attention gives over a copy of the pool, and the copy as it left it."""
        cache = copy.deepcopy(self.cache)
        cache.k_blocks, cache.v_blocks = (tensor.unflatten(1, (-1, self.size)) for tensor in (cache.k, cache.v))
        return attention(cache, self.chunks, **options)(LAYER, *self.qkv), cache


def assert_like_the_oracle(scene):
    """Batched and one by one, the fast attention gives the oracle's numbers and stores the very same K and V."""
    expected, after = scene.run(TokenByToken)
    assert torch.isfinite(expected).all()
    for batched in (True, False):
        found, cache = scene.run(PackedAttention, batched=batched)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert torch.equal(cache.k.nan_to_num(7e7), after.k.nan_to_num(7e7)), "stored in the same places, and no other"
        assert torch.equal(cache.v.nan_to_num(7e7), after.v.nan_to_num(7e7))


def borders(size):
    """Lengths around the ends of blocks."""
    return sorted({k * size + more for k in (1, 2, 3) for more in (-1, 0, 1)} - {0})


@pytest.mark.parametrize("heads, kv_heads", GROUPS)
@pytest.mark.parametrize("size", [1, 4, 16])
def test_decodes_of_every_length_around_a_border(size, heads, kv_heads):
    assert_like_the_oracle(Scene([(length - 1, 1) for length in borders(size)], size, heads, kv_heads))


@pytest.mark.parametrize("length", borders(4))
@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_decode_alone(size, length):
    assert_like_the_oracle(Scene([(length - 1, 1)], size))


@pytest.mark.parametrize("heads, kv_heads", GROUPS)
@pytest.mark.parametrize("size", [1, 4])
def test_chunks_that_begin_and_end_around_a_border(size, heads, kv_heads):
    ends = borders(size)
    spans = [(start, end - start) for start, end in itertools.combinations([0, *ends], 2)]
    assert_like_the_oracle(Scene(spans, size, heads, kv_heads))


@pytest.mark.parametrize("seed", range(20))
def test_chunks_and_decodes_in_one_step(seed):
    rng = random.Random(seed)
    spans = [(rng.randrange(20), rng.choice([1, 1, rng.randint(2, 12)])) for _ in range(rng.randint(2, 7))]
    heads, kv_heads = rng.choice(GROUPS)
    assert_like_the_oracle(Scene(spans, rng.choice([1, 2, 4, 5, 16]), heads, kv_heads, seed))


@pytest.mark.parametrize("heads, kv_heads", GROUPS)
def test_the_oracle_is_the_textbook(heads, kv_heads):
    """Dense, in float64: softmax(q k / sqrt(d)) v over the context laid end to end."""
    scene = Scene([(10, 3)], 4, heads, kv_heads)
    found, cache = scene.run(TokenByToken)
    (chunk,), q = scene.chunks, scene.qkv[0].double()
    for index in range(3):
        context = [(chunk.sequence.block_table[p // 4], p % 4) for p in range(chunk.start + index + 1)]
        k = (
            torch.stack([cache.k_blocks[LAYER, b, o] for b, o in context])
            .double()
            .repeat_interleave(heads // kv_heads, 1)
        )
        v = (
            torch.stack([cache.v_blocks[LAYER, b, o] for b, o in context])
            .double()
            .repeat_interleave(heads // kv_heads, 1)
        )
        weights = (torch.einsum("hd,phd->hp", q[index], k) / HEAD_DIM**0.5).softmax(dim=-1)
        expected = torch.einsum("hp,phd->hd", weights, v).flatten().float()
        torch.testing.assert_close(found[index], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("heads, kv_heads", GROUPS)
def test_grouped_query_heads_read_their_own_kv_head(heads, kv_heads):
    """V of KV head h is the constant h, so query head i must give i // group (cases.md A32)."""
    scene = Scene([(6, 1), (0, 5)], 4, heads, kv_heads)
    constant = torch.arange(kv_heads).float()[:, None].expand(kv_heads, HEAD_DIM)
    scene.cache.v[LAYER][~scene.cache.v[LAYER].isnan().any(-1).any(-1)] = constant
    scene.qkv = (*scene.qkv[:2], constant.expand(6, kv_heads, HEAD_DIM))
    expected = (torch.arange(heads) // (heads // kv_heads)).float()[:, None].expand(heads, HEAD_DIM).flatten()
    for attention in (TokenByToken, PackedAttention):
        found, _ = scene.run(attention)
        torch.testing.assert_close(found, expected.expand_as(found))


@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_rectangle_of_whole_prompts_stores_its_real_tokens_and_no_pad(size):
    lengths = [3, 8, 1, 5]
    scene = Scene([(0, length) for length in lengths], size)
    expected, after = scene.run(PackedAttention)
    longest, packed = max(lengths), scene.qkv
    real = [row * longest + i for row, length in enumerate(lengths) for i in range(length)]
    scene.qkv = [torch.randn(len(lengths) * longest, *tensor.shape[1:]) for tensor in packed]
    for padded, tensor in zip(scene.qkv, packed):
        padded[real] = tensor
    found, cache = scene.run(PaddedAttention)
    torch.testing.assert_close(found[real], expected, atol=1e-5, rtol=0)
    assert torch.equal(cache.k.nan_to_num(7e7), after.k.nan_to_num(7e7))


@pytest.mark.parametrize("attention", [TokenByToken, PackedAttention])
def test_poison_within_the_context_is_noticed(attention):
    """The test of the tests: one position too many, or a block of somebody else, and the result is no number."""
    scene = Scene([(6, 1), (9, 2)], 4)
    scene.cache.v_blocks[LAYER, scene.chunks[0].sequence.block_table[1], 1] = torch.nan
    found, _ = scene.run(attention)
    assert not torch.isfinite(found[0]).any() and torch.isfinite(found[1:]).all()


@pytest.mark.parametrize("count", [1, 3])
def test_a_table_that_is_too_short_raises_and_reads_nothing_else(count):
    scene = Scene([(8, count), (2, 1)], 4)
    del scene.chunks[0].sequence.block_table[2:]
    with pytest.raises(IndexError):
        scene.run(PackedAttention)


def test_half_a_block_is_refused():
    with pytest.raises(ValueError, match="num_positions=10: must be whole blocks of block_size=4"):
        PagedKVCache(config(4, 4), 10, torch.float32, torch.device("cpu"), 4)


def test_one_tokens_attention_by_hand():
    """Two stored tokens with equal scores: the mean of their values, whatever else lies in the pool."""
    keys, values = torch.full((3, 2, 1, 4), torch.nan), torch.full((3, 2, 1, 4), torch.nan)
    keys[2, 0], keys[2, 1] = 1.0, 1.0
    values[2, 0], values[2, 1] = 2.0, 4.0
    assert attention_over_blocks(torch.ones(2, 4), keys, values, [2, 0], 2).tolist() == [[3.0] * 4] * 2
