# %% [markdown]
# # Lab 6: attention through a block table
#
# About 60 minutes. No GPU needed. 20 points. Questions 4 and 5 need a C++ compiler (g++ 12 or clang++ 14, on Linux); without one their checks say so,
# and the other 15 points count as ever.
#
# You need [06](../06_paged_kv_cache.ipynb) (blocks and block tables) and [08](../08_paged_attention_cuda.ipynb) (threads, warps, what the checker
# says). At the end you have written
#
# * attention in PyTorch that finds its keys and values through a block table, and serves a real model with it;
# * the merge of two partial softmaxes, which is what warps, GPUs and cascades do with each other's results;
# * the lines of a CUDA kernel that compute an address and bring four warps together, run without a GPU.
#
# **A serving engineer must be able to answer: how does attention read K and V through a block table, and what goes wrong when it reads one position
# too many?**
#
# Cells with a check are red until you have written the answer above them: NOT YET means that nothing is written, CHECK FAILED says what is
# wrong, and no output means that it passes. Do not change those cells; write where it says `YOUR CODE HERE`.
#
# Previous: [Lab 5](lab5.ipynb)

# %%
import math
from functools import reduce
from itertools import permutations
from pathlib import Path

import torch

from minibatch import cuda, load_model
from minibatch.checks.lab6 import (
    Plugged,
    check_attention_across_blocks,
    check_attention_in_a_block,
    check_attention_in_groups,
    check_attention_large_scores,
    check_engine,
    check_locate,
    engine_with,
)
from minibatch.checks.lab6_kernels import (
    FOUR_WARPS,
    check_address,
    check_meeting,
    check_merge,
    check_merge_edges,
    one_warp,
    part,
)
from minibatch.cuda.backends import missing
from minibatch.metrics import tokens_sha256
from minibatch.plot import alt, block_table, caption, show, show_source, slots, table_alt, table_caption
from minibatch.workload import chat_prompts

# %%
LAYOUT = "NHD"  # variant: "NHD" "HND"
WEIGHT_BASE = "e"  # variant: "e" "2"

# %% [markdown]
# ## 1. Where a position lies
#
# Seven requests to the embedded model, on three slots and memory in blocks of 4 positions. A sequence's blocks lie wherever one was free; its **block
# table** says where. The numbers in the cells are positions.

# %% tags=["shows"]
model = load_model("tiny")
prompts = dict(chat_prompts("tiny"))
asked = [
    model.request(name, prompts[name], max_new_tokens=24) for name in ("R9", "R10", "R11", "R18", "R20", "R22", "R23")
]
package = engine_with(model).run(asked)
show(block_table(package, "R22", step=20, width=8), table_alt(package, "R22", step=20))
print(table_caption(package, "R22", step=20))

# %% [markdown]
# Article 3, "PagedAttention aproveita melhor a memória": a map of blocks keeps the logical order. By hand, with blocks of 4 and the table `[5, 2]`: positions
# 0 to 3 lie in block 5, at offsets 0 to 3; position 4 is the first in block 2, and position 6 lies in block 2 at offset 2. Blocks 0, 1, 3 and 4 are
# somebody else's, or free.
#
# **Question 1 (2 points).** This is the whole of paging. It is asked for every position, by every layer, in every step.


# %% answer="locate"
def locate(position, block_table, block_size):
    """Where the K and V of a position lie: the pair (block, offset).

    position: counted from 0. block_table: list of block numbers, in the order of the sequence.
    block_size: positions in a block. The offset counts from 0, inside the block. The table is long enough
    for the position.
    """
    ### BEGIN SOLUTION
    return block_table[position // block_size], position % block_size
    ### END SOLUTION


# %% check="locate_places" points=2
check_locate(locate)

# %% [markdown]
# ## 2. Attention for one token
#
# K and V of one layer are two tensors, the **caches**: all blocks of all sequences. There are two ways to order their dimensions, with the names FlashInfer
# gives them. This lab uses **{LAYOUT}**.
#
# | name | order of dimensions |
# |---|---|
# | NHD | `[blocks, block_size, kv_heads, head_dim]` |
# | HND | `[blocks, kv_heads, block_size, head_dim]` |
#
# One token asks: its queries are `q`, `[heads, head_dim]`. A query head takes the product of its query with the key of each position it sees,
# times `scale`: the *score*. Softmax over the positions makes weights of the scores, and the result is the weighted sum of the values.
#
# There may be fewer KV heads than query heads (GQA). Query heads then form groups of `heads // kv_heads` neighbours that share a KV head: with 6
# query heads on 2, heads 0, 1 and 2 read KV head 0, and heads 3, 4 and 5 read KV head 1.
#
# And it sees `context_len` positions, itself included. Not more: the rest of its last block is unwritten, or holds what a stranger left there.
# Blocks are not cleaned when they change hands.
#
# **Predict, then run.** It is quick to read whole blocks and then to give the positions past the end a score of −∞, so that they weigh nothing. What is
# the result, if such a position holds NaN?

# %%
scores = torch.tensor([1.0, 1.0, -math.inf])  # the third is past the end
values = torch.tensor([2.0, 4.0, math.nan])
print("weights", scores.softmax(0).tolist(), "result", (scores.softmax(0) @ values).item())

# %% [markdown]
# <details><summary>Answer</summary>
#
# NaN: the weight is exactly 0, and 0 times NaN is NaN. vLLM mended this in its first kernel in 2023 (pull request 936) and in another one in 2026
# (47305); TensorRT-LLM clears the tails of V for it (18925). What lies past the context must not be read, or must be cleared. The checks here fill
# everything that is not the sequence's with NaN.
#
# </details>
#
# **Question 2 (8 points, 2 more in section 5).** Write it with PyTorch, plainly: a loop over positions or heads is fine. Four checks look at four
# things: one block; borders of blocks and what lies beyond them; groups; large scores. Float32 ends near e^88, and real models have scores beyond it
# before the largest is subtracted (`torch.softmax` does that by itself).


# %% answer="attention"
def paged_attention(q, k_cache, v_cache, block_table, context_len, scale):
    """Attention of one token over the first `context_len` positions of its sequence: a tensor like q.

    q: [heads, head_dim], float32. k_cache, v_cache: K and V of all blocks, their dimensions in the order of
    LAYOUT. block_table: list of block numbers; it may be longer than the context needs. context_len: at
    least 1. scale: what the scores are multiplied by, and all they are multiplied by. Nothing but those
    positions may be read, for anything may lie elsewhere, NaN too. The arguments stay as they are.
    """
    ### BEGIN SOLUTION
    if LAYOUT == "HND":
        k_cache, v_cache = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
    block_size, kv_heads = k_cache.shape[1:3]
    places = [locate(position, block_table, block_size) for position in range(context_len)]
    keys = torch.stack([k_cache[block, offset] for block, offset in places])  # [context_len, kv_heads, head_dim]
    values = torch.stack([v_cache[block, offset] for block, offset in places])
    group, out = len(q) // kv_heads, torch.empty_like(q)
    for head in range(len(q)):
        weights = (keys[:, head // group] @ q[head] * scale).softmax(0)
        out[head] = weights @ values[:, head // group]
    return out
    ### END SOLUTION


# %% check="attention_in_a_block" points=2
check_attention_in_a_block(paged_attention, layout=LAYOUT)

# %% check="attention_across_blocks" points=3
check_attention_across_blocks(paged_attention, layout=LAYOUT)

# %% check="attention_in_groups" points=2
check_attention_in_groups(paged_attention, layout=LAYOUT)

# %% check="attention_large_scores" points=1
check_attention_large_scores(paged_attention, layout=LAYOUT)

# %% [markdown]
# ## 3. Two parts of a softmax
#
# A long context is read by many at once: warps, CUDA blocks, GPUs. Each sees some of the positions and leaves a **part**
# `(top, sum, acc)`: the largest score it has seen; the sum of its weights, where the weight of a score is {WEIGHT_BASE} to the power of `score - top`; and
# the sum of weight × V, a list of `head_dim` numbers. At the very end somebody divides `acc` by `sum`. (Kernels often use powers of 2, for which a GPU has
# an instruction, and fold the conversion into `scale`. Powers of e are the textbook.)
#
# By hand: one part has seen a score of 3, with a V of 10: `(3, 1, [10])`. The other has seen a score of 5, with a V of 20: `(5, 1, [20])`. Of both
# together the top is 5. Relative to 5 the first weight is not 1 but {WEIGHT_BASE}^(3 − 5), and so is its share of `acc`.
#
# A part that has seen no position is `(-inf, 0, [0, ...])`. Two of those meet more often than one thinks, and −∞ − (−∞) is NaN. vLLM met that bug
# (pull requests 28181 and 39148), and so did FlashInfer (issue 4051).
#
# **Question 3 (3 points).** Plain Python numbers; `math.exp` and `math.exp2` take large arguments ill (`math.exp(1000)` raises).


# %% answer="merge"
def merge(one, other):
    """The part of whoever has seen the positions of both, as a tuple (top, sum, acc).

    one, other: tuples (top, sum, acc) of float, float and a list of floats, with weights as powers of
    WEIGHT_BASE. Neither is changed. Scores may be in the thousands, and a part may have seen nothing.
    """
    ### BEGIN SOLUTION
    power = {"e": math.exp, "2": math.exp2}[WEIGHT_BASE]
    top = max(one[0], other[0])
    if top == -math.inf:
        return one
    fixes = [power(part[0] - top) for part in (one, other)]
    total = one[1] * fixes[0] + other[1] * fixes[1]
    return top, total, [a * fixes[0] + b * fixes[1] for a, b in zip(one[2], other[2])]
    ### END SOLUTION


# %% check="merge_numbers" points=2
check_merge(merge, base=WEIGHT_BASE)

# %% check="merge_edges" points=1
check_merge_edges(merge, base=WEIGHT_BASE)

# %% [markdown]
# Five positions in three parts, one of them empty, merged in all six orders. It must not matter, for nobody knows which warp is done first.

# %% tags=["shows"]
some_scores, some_values = [1.0, 4.0, 0.0, 2.0, 3.0], [[10.0, 1.0], [20.0, 1.0], [30.0, 1.0], [40.0, 1.0], [50.0, 1.0]]
cuts = [(0, 2), (2, 2), (2, 5)]
parts = [part(some_scores[first:end], some_values[first:end], WEIGHT_BASE) for first, end in cuts]
for order in permutations(range(3)):
    top, total, acc = reduce(merge, [parts[index] for index in order])
    print(f"parts {order}: top {top}, result {acc[0] / total:.6f}")
top, total, acc = part(some_scores, some_values, WEIGHT_BASE)
print(f"all at once:     top {top}, result {acc[0] / total:.6f}")

# %% [markdown]
# ## 4. The same in CUDA
#
# The kernels have holes. You return the lines that fill one, as a string; they are compiled for the CPU, every thread is run, and every access to memory is
# watched. What was never written may not be read, as in section 2. A complaint of the checker names the thread, the line and the element: `your
# lines` are counted from the first line of your string, lines of `the kernel` from its top. (It is notebook 08's checker. No time is measured.)

# %% tags=["shows"]
print("missing on this machine:", missing("checked") or "nothing")
print(one_warp(LAYOUT))

# %% [markdown]
# `Softmax<1>` is a part with room for one element of `acc`: `raise_to`, `weigh` and `merge` are your question 3 with powers of e,
# and `value` divides.

# %% tags=["shows"]
KERNELS = Path(cuda.__file__).parent / "kernels"
show_source(KERNELS / "common.cuh", "// Softmax in one pass", "float value")

# %% [markdown]
# **Question 4 (2 points).** The lines that declare `at`: the element of `k` (and of `v`) where this position's key for this query head begins. Memory is flat, so
# the order of dimensions is now arithmetic: a step along a dimension skips as many elements as the dimensions after it hold. By hand, {LAYOUT}, blocks of 4,
# 2 KV heads, 32 elements: a block is 4 × 2 × 32 = 256 elements long, so the first key of block 5 begins at element 1,280. Two or three lines.
# Make `at` an `int64_t`: notebook 08 says what an `int` does on a large server.


# %% answer="address"
def address():
    """Lines of CUDA C++, as one string, that declare `int64_t at`.

    They may use `position`, `block_table`, `block_size`, `head`, `heads` and `kv_heads`; head_dim is 32.
    k and v lie in the order of LAYOUT, without gaps.
    """
    ### BEGIN SOLUTION
    order = {
        "NHD": "((block * block_size + position % block_size) * kv_heads + kv_head) * 32",
        "HND": "((block * kv_heads + kv_head) * block_size + position % block_size) * 32",
    }
    return f"""
    int64_t block = block_table[position / block_size];
    int kv_head = head / (heads / kv_heads);
    int64_t at = {order[LAYOUT]};
    """
    ### END SOLUTION


# %% check="address_lines" points=2
check_address(address, layout=LAYOUT)

# %% [markdown]
# One warp that walks through thousands of positions takes long. Here four warps share the walk, and each ends with a part of its own, `state`. (This kernel
# asks `kv.offset` for the address. It has been told how many elements a step along each dimension skips, so it fits any order.) A warp cannot see the registers of
# another. It can leave what it has in **shared memory**, the three arrays at the top.

# %% tags=["shows"]
print(FOUR_WARPS)

# %% [markdown]
# **Question 5 (3 points).** The lines after which `whole`, in the lanes of warp 0, holds what all four warps have seen. `state.top` and `state.sum` are the same in all
# lanes of a warp, so one lane is enough to write them (two writers of one place are a race to the checker, whatever they write); `state.acc[0]` is
# element `lane`. `whole.merge(top, sum, &acc)` merges a part into `whole`. About four lines, and one of them is the reason
# for this question. Who may read what a warp has written, and from when on?
#
# Mind a context of 1: three warps have seen nothing. Do they still have to come?


# %% answer="meeting"
def meeting():
    """Lines of CUDA C++, as one string, after which `whole` holds, in warp 0, what all four have seen."""
    ### BEGIN SOLUTION
    return """
  if (lane == 0) top[warp] = state.top, sum[warp] = state.sum;
  acc[warp][lane] = state.acc[0];
  __syncthreads();
  for (int w = 0; w < WARPS; ++w) whole.merge(top[w], sum[w], &acc[w][lane]);
    """
    ### END SOLUTION


# %% check="meeting_lines" points=3
check_meeting(meeting)

# %% [markdown]
# The answer to the last question is yes. A warp that has seen nothing has an empty part to write: its `top` is the most negative float, its `sum` is 0. If it
# stayed away, its entries would be unwritten, and a barrier to which not all threads come is no barrier.
#
# ## 5. In the engine
#
# The engine of notebook 06 asks an object for attention: once a step it is made, and once a layer it is called. This one stores the new K and V, then
# asks your function for each token. A chunk of a prompt needs nothing special: each of its tokens sees one position more than the one before, and what is
# stored beyond that it does not see.

# %% tags=["shows"]
show_source(Plugged)

# %% [markdown]
# **The last 2 points of question 2.** The embedded model (three layers, 6 query heads on 2 KV heads) must write the same tokens as with the package's
# attention. The pool is filled with NaN first.

# %% check="attention_in_the_engine" points=2
check_engine(paged_attention, layout=LAYOUT)

# %% tags=["shows"]
served = engine_with(model, paged_attention, LAYOUT).run(asked)
errors = [f"step {step.step} failed: {step.error}" for step in served.steps if step.error]
show(slots(served, width=8), alt(served))
print(errors[0] if errors else caption(served))

# %% tags=["shows"]
for name, run in {"package": package, "yours": served}.items():
    print(f"{name:8} {len(run.steps)} steps, tokens {tokens_sha256(run)[:16]}")
for record in served.requests.values():
    print(f"{record.request_id:4} {prompts[record.request_id]:18} {model.tokenizer.decode(record.tokens)!r}")

# %% [markdown]
# ### One position too many
#
# Now the question from the top. Your function again, but told that the context is one longer than it is, where the table has room for one more.
#
# **Predict, then run.** First on a new server, whose memory is still all zeros. Then on one that has served twelve strangers before. Which texts
# are right?


# %% tags=["shows"]
def one_too_many(q, k_cache, v_cache, block_table, context_len, scale):
    return paged_attention(q, k_cache, v_cache, block_table, min(context_len + 1, 4 * len(block_table)), scale)


strangers = [model.request(f"stranger {name}", text, max_new_tokens=24) for name, text in chat_prompts("tiny")[:12]]
new, used = (engine_with(model, one_too_many, LAYOUT, num_blocks=48) for _ in range(2))
used.run(strangers)
runs = {"right": served, "new server": new.run(asked), "used server": used.run(asked)}
for request in asked:
    print(prompts[request.request_id])
    for name, run in runs.items():
        print(f"    {name:12} {model.tokenizer.decode(run.requests[request.request_id].tokens)!r}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# On the new server all are right: a key of zeros has a score of 0 and a value of zeros, which dilutes the result a little and changes no token here. So every
# test on a fresh process passes. On the used server a token sees a key and a value that a stranger has left in the block. No crash, no NaN, and some
# texts are wrong; which ones depends on who was there before. (A prefill token goes wrong in another way: it sees the token after it.)
#
# </details>
#
# That is why a test of paged attention poisons what nobody owns, and why the contexts it tries lie around the borders of blocks.

# %% [markdown]
# ## What you saw
#
# * A block table turns a position into a block and an offset. Attention needs nothing else to be paged, and softmax does not care where K and V lie.
# * What must not be read must not be read: a weight of 0 does not protect from NaN, and zeros hide the mistake.
# * Parts of a softmax merge in any order, if they are brought to one top first. Empty parts need a thought.
# * The order of dimensions is a contract between whoever writes the cache and whoever reads it. In CUDA it is arithmetic.
# * Threads that share memory must meet at a barrier, all of them, between the writing and the reading.
#
# ## Where to read this in vLLM and friends
#
# * **vLLM**, `vllm/v1/worker/block_table.py`: `BlockTable`, and the small kernel in it that turns positions into slots. `csrc/attention/merge_attn_states.cu`:
#   question 3 for the results of two attention calls, a shared prefix and the rest; two empty ones are a case of their own there.
# * **FlashInfer**, `include/flashinfer/page.cuh`: `paged_kv_t`, whose strides follow from NHD or HND, as in question 4. `attention/state.cuh`: `state_t::merge`, with
#   powers of 2. `attention/decode.cuh`: threads that meet in shared memory.
# * **FlashAttention**, `flash_attn_with_kvcache(block_table=...)`: reads a cache in the order NHD.
# * Here: `minibatch/cuda/kernels/`, rung 2 is your question 4, rung 3 your question 5; `minibatch/model/kv_cache.py` is what the engine runs on a CPU.
