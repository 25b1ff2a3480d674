# %% [markdown]
# # 08 Paged attention in CUDA, rung by rung
#
# About 60 minutes. No GPU needed. A C++ compiler is: g++ 12 or clang++ 14, on Linux (`apt-get install g++`; where that is older, as on Colab,
# `apt-get install clang-14`; on Windows use WSL, on a Mac a Linux container). Without one, read: all results are in the page.
#
# You need [06](06_paged_kv_cache.ipynb): blocks, block tables, slots. C++ you should be able to read. At the end you can say
#
# * what threads, warps and blocks of CUDA do in attention, and how a warp follows a block table;
# * why six kernels that compute the same numbers move 8, 4 or 1 times the bytes there are to read, and what that costs;
# * what a bank conflict is, and what grouped queries and a split context have to do with the grid;
# * how to read what a checker says of a race, a divergent barrier or a stray read, and what mends it.
#
# **Nothing in this notebook has been run on a GPU.** Numbers are checked and counted on the CPU; times are a bound that is computed, and called so.
#
# Previous: [07 Preemption and admission](07_preemption_and_admission.ipynb) · Next: [09 The operating limit](09_operating_limit.ipynb)
#
# Articles: 3, "PagedAttention aproveita melhor a memória". Lab: [6, paged attention](labs/lab6.ipynb). Words: [glossary](GLOSSARY.md).

# %%
import os
from pathlib import Path
from unittest.mock import patch

import torch

from minibatch import build_engine, cuda, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb08 import COPIED, LARGEST, WINDOWED, check_copy, check_largest, check_mend, check_window
from minibatch.cuda import oracle, pictures, reading, trace
from minibatch.cuda.attempt import try_kernel
from minibatch.cuda.backends import missing
from minibatch.cuda.library import load
from minibatch.cuda.scene import make_scene
from minibatch.cuda.simulated import Run
from minibatch.metrics import tokens_sha256
from minibatch.model.paged_kv import attention_over_blocks
from minibatch.plot import show, show_source
from minibatch.schedulers.mix import Chunked
from minibatch.workload import chat_prompts

KERNELS, BUGS = Path(cuda.__file__).parent / "kernels", Path(cuda.__file__).parent / "bugs"

# %% [markdown]
# ## 1. One source, two machines
#
# Article 3: "PagedAttention aproveita melhor a memória". What reads such memory is a *kernel*, a function that thousands of threads run at once
# on a GPU. The kernels of this package are CUDA C++, written by hand. `nvcc` compiles them for a GPU. A C++ compiler compiles **the same files**
# for the CPU, over a layer (`minibatch/cuda/simt/`) that runs every thread, warp and barrier as CUDA defines them, and watches every access to memory.
#
# That is slow, and it says nothing about time. It says what a GPU does not tell: who read what, and whether they had a right to.
#
# | in CUDA | is | in this notebook |
# |---|---|---|
# | thread | one run of the kernel, with its own registers | |
# | warp | 32 threads that go together; a thread is one of its **lanes** | asks for memory as one: a **request** |
# | block | up to 32 warps with a common **shared memory**; can wait for each other at a **barrier** | a *CUDA block*: 4 warps here |
# | grid | all blocks of a launch; they cannot wait for each other | |
# | sector | 32 bytes, the least that memory moves | what is counted below |
#
# Mind the word: a **KV block** is 16 positions of a sequence (notebook 06). A CUDA block is a group of threads. They have nothing to do with each other.

# %%
print("missing on this machine:", missing("checked") or "nothing")
library = load("checked", torch.float32, head_dim=64)  # compiled once, in some seconds, and kept

# %% [markdown]
# ## 2. What is to be computed
#
# One decode step in one layer: four sequences of 100, 37, 64 and 129 tokens, one new token each. 8 query heads share 2 KV heads in groups of 4
# (GQA); `head_dim` is 64; float32. K and V lie in KV blocks of 16, shuffled, and whatever no sequence owns holds NaN, so that nobody can read it unseen.

# %%
scene = make_scene(lengths=(100, 37, 64, 129), heads=8, kv_heads=2, head_dim=64, block_size=16)
print("q          ", list(scene.q.shape), "= tokens, heads, head_dim")
print("k_cache    ", list(scene.k_cache.shape), "= KV blocks, block_size, kv_heads, head_dim")
print("block_table", scene.block_table.tolist())
print("seq_of     ", scene.seq_of.tolist(), "context_len", scene.context_len.tolist())

# %% [markdown]
# A token is a row of `q`, the row of the block table it belongs to, and the number of positions it sees. A decode is one such token. A chunk of a
# prompt is many, each of which sees one more. So one kernel serves decodes, prefill chunks and any mixture of the two (notebook 04), and need not know
# which is which.
#
# The truth is the textbook of notebook 06, in float64. What the engine uses if nobody names a kernel is this, in torch:

# %%
show_source(oracle.paged_attention)

# %%
pool = scene.k_cache.double(), scene.v_cache.double()
tables = [scene.block_table[seq].tolist() for seq in scene.seq_of]
contexts = scene.context_len.tolist()
truth = torch.stack([attention_over_blocks(q.double(), *pool, *where) for q, *where in zip(scene.q, tables, contexts)])
difference = (oracle.paged_attention(*scene.arguments) - truth).abs().max()
print(f"torch against float64, difference below 1e-6: {difference.item() < 1e-6}")
print(f"there is to read: {scene.kv_bytes:,} bytes, K and V of {sum(contexts)} positions, once each")

# %% [markdown]
# Those bytes are all that matters. Per position of K and V a query head does 4 × 64 operations on 512 bytes, shared by its group: 2 operations a byte
# for this group of 4. An H100 does about 20 in float32 in the time in which it moves a byte. **Attention over a cache waits for memory.** The
# fastest kernel is the one that moves the fewest bytes, in the fewest requests.
#
# So the ladder: six kernels, each one idea better. A table grows with it. *Requests*: how often a warp asked for K or V. *Times ideal*: bytes moved by
# them, in sectors, over the bytes there are. *Useful*: the share of the moved bytes that a lane asked for. The last column is the **roofline**: a step of 64
# sequences of 4,096 tokens, one layer of Llama 3 8B in float32 (2.1 GB of K and V), if an H100 moved these bytes at its 3.35 TB/s and did nothing
# else. It is no measurement and no forecast: a kernel does not reach the full speed, and caches answer part of what is asked twice.

# %%
IDEAL_MS = 64 * 4096 * (2 * 8 * 128 * 4) / 3.35e12 * 1000  # positions, bytes of each, bytes a second
ladder = {}


def climb(rung, name):
    """Run a rung on the scene, every access checked and traced; compare; add a row to the table."""
    run = Run(trace_limit=1_000_000)
    out = library.attention(*scene.arguments, rung=rung, parts=2, run=run)  # raises if the checker finds anything
    assert (out - truth).abs().max() < 1e-6
    reads = [use for use in trace.by_line(run) if use.array in ("k", "v")]
    useful = sum(use.useful * use.sectors * use.requests for use in reads) / sum(u.sectors * u.requests for u in reads)
    ladder[rung] = (f"{rung} {name}", trace.traffic(run, ["k", "v"]), useful)
    print(f"{'rung':14} requests   bytes moved   times ideal   useful   H100, ms (roofline)")
    for label, moved, useful in ladder.values():
        times = moved.request_bytes / scene.kv_bytes
        asked = f"{label:14} {moved.requests:8,} {moved.request_bytes:13,}"
        print(f"{asked} {times:13.2f} {useful:8.0%} {times * IDEAL_MS:12.2f}")
    return run


def who_reads(rung, length, heads=2):
    """One sequence, one KV head, head_dim 32: who reads which element of K?"""
    small, run = make_scene((length,), heads=heads, kv_heads=1, head_dim=32, block_size=4), Run(trace_limit=1_000_000)
    load("checked", torch.float32, head_dim=32).attention(*small.arguments, rung=rung, parts=2, run=run)
    slots = [4 * small.block_table[0, p // 4].item() + p % 4 for p in range(length)]
    rows = [128 * slot for slot in slots], 128
    titles = ["both query heads"] if rung > 4 else [f"query head {head}" for head in range(heads)]
    words = reading.lanes_words(run, *rows)
    show(reading.lanes(run, *rows, titles), words)
    print(words)


# %% [markdown]
# ## 3. Rung 1: a thread for each token and head
#
# The definition, written down: a loop over the context, in one thread. The only trick is that softmax needs no second pass. A thread keeps the largest
# score so far, `top`, and sums of weights relative to it; when a larger score comes, what was summed is scaled down once. This is the *online softmax*
# (Milakov and Gimelshein 2018), and it is why no rung needs memory that grows with the context.

# %%
show_source(KERNELS / "common.cuh", "template <int N> struct Softmax", "return weight")

# %%
show_source(KERNELS / "k1_thread.cuh", "Softmax<D> state", "for (int d = 0; d < D; ++d) store")

# %% [markdown]
# `kv.offset` is all there is to paging: the entry of the block table, times a stride, plus the place in the block.

# %%
show_source(KERNELS / "common.cuh", "// Where K and V", "return block")

# %% [markdown]
# The idea in a picture, drawn from a traced run of a small case, one sequence and two query heads on one KV head. The colour is the warp, the
# number the lane.

# %%
who_reads(1, 8)

# %% [markdown]
# **Predict, then run.** In the scene a warp's 32 lanes are 4 tokens with 8 heads each. In one instruction each lane asks for *one* element of K,
# 4 bytes, of its own sequence and KV head. How many sectors must move for one such request, and what share of them is of use?

# %%
run = climb(1, "thread")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The four heads of a group want the same element, so 32 lanes want 8 different ones: 8 sectors of 32 bytes, of which 4 are used. That is 12 %, or 8 times
# the ideal. (Towards the end fewer sequences are left, and fewer sectors.) In half precision a lane takes 2 bytes of 32, and it is 16 times. The next
# instruction wants the neighbouring 4 bytes, and a cache may still hold the sector; but with thousands of such warps at once it will often be gone.
#
# </details>

# %%
line = next(i for i, text in enumerate((KERNELS / "k1_thread.cuh").read_text().splitlines(), 1) if "score +=" in text)
words = pictures.request_words(run, line, "k")
show(pictures.request(run, line, "k"), words)
print(words)

# %% [markdown]
# ## 4. Rung 2: a warp for each token and head
#
# Let the 32 lanes stand side by side along `head_dim`. Neighbouring lanes then ask for neighbouring elements, and every byte of a sector is used: the
# request is **coalesced**. The price: a score lies in 32 pieces in 32 lanes. A *shuffle* lets lanes read each other's registers, and five of them
# make the sum.

# %%
who_reads(2, 8)

# %%
show_source(KERNELS / "common.cuh", "// The sum of x over", "}")

# %%
show_source(KERNELS / "k2_warp.cuh", "Softmax<EACH> state", "state.acc[e] +=")

# %%
run = climb(2, "warp")

# %% [markdown]
# All of what moves is used, and half the traffic is gone. Why not more? Each query head has a warp of its own, and the four warps of a group fetch the
# same K and V. That is the remaining 4.00.
#
# A warp takes the positions one by one, and this is how it finds them. One sequence of 10 tokens in KV blocks of 4; the numbers are the order in which the
# warp read the slots, taken from the trace.

# %%
ten, run = make_scene((10,), heads=1, kv_heads=1, head_dim=32, block_size=4), Run(trace_limit=100_000)
load("checked", torch.float32, head_dim=32).attention(*ten.arguments, rung=2, run=run)
cache = (len(ten.k_cache), 4, 32 * 4)  # KV blocks, positions of a block, bytes of a position
words = reading.walk_words(run, cache)
show(reading.walk(run, cache), words)
print(words)

# %% [markdown]
# The last block is half full. The kernel stops at `context_len`, and what lies in the other two slots is NaN here and anybody's on a server.

# %% [markdown]
# ## 5. Rung 3: a block of warps for each token and head
#
# One warp that walks through 4,096 positions takes long, whatever it reads. Let four warps share the walk: each takes every fourth position and ends
# with a softmax state of its own. They meet in shared memory and are merged, for two states merge just as a state takes a new score. One query head
# is shown; the other has a block of its own, which reads the same.

# %%
who_reads(3, 8, heads=1)

# %%
show_source(KERNELS / "k3_block.cuh", "if (lane == 0) top", "store(&out_row")

# %% [markdown]
# **Predict, then run.** Four times as many warps. How many requests, and how many bytes?

# %%
run = climb(3, "block")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The same number: what there is to ask for has not changed, only who asks. What is gained does not show in a count of bytes: more requests are under way
# at the same time, and waiting is what a GPU does in parallel.
#
# </details>
#
# ## 6. Banks
#
# Shared memory has 32 **banks**, each 4 bytes wide: word w lies in bank w % 32. In one pass each bank hands out one word. If the 32 lanes of a request want
# words of 32 different banks (or the same word), one pass will do; if two words lie in one bank, there are two passes, and so on: a *bank conflict*.
#
# Rung 3 writes element `e * 32 + lane` of its result to that place of `acc`, so that the lanes are neighbours. It would be as natural to let a lane's
# elements be neighbours: place `lane * EACH + e`. Nothing else changes. With `head_dim` 128 a lane has 4 elements.

# %%
text = (KERNELS / "k3_block.cuh").read_text()
natural = text.replace("acc[warp][e * 32 + lane]", "acc[warp][lane * EACH + e]")
natural = natural.replace("&acc[w][d]", "&acc[w][d % 32 * EACH + d / 32]")
for name, source in [("lanes are neighbours", text), ("elements of a lane are neighbours", natural)]:
    tried = try_kernel(source, head_dim=128)
    shared = [use for use in trace.by_line(tried.run) if use.array == "acc"]
    passes = ", ".join(f"{use.operation} {use.passes:.0f}" for use in shared)
    print(f"{name:34} right: {tried.ok}   passes a request: {passes}")

# %% [markdown]
# Same numbers, no mistake to report, and four times the time at that line, by writing and by reading. The usual cure is another arrangement, as here, or
# one word of padding a row. From rung 4 on the ladder stores 16 bytes a lane, which takes 4 passes for a full warp and cannot take fewer.

# %% [markdown]
# ## 7. Rung 4: sixteen bytes a load
#
# A lane may ask for up to 16 bytes at once. With `head_dim` 32 in float32, a position then needs 8 lanes, and the warp holds four positions side by side. Sums
# run over 8 lanes, three shuffles and not five. At the end the lanes that hold different positions merge their states, by shuffles again.

# %%
who_reads(4, 8, heads=1)

# %%
show_source(KERNELS / "k4_vector.cuh", "for (int first", "state[0].acc[n] +=")

# %%
run = climb(4, "vector")

# %% [markdown]
# The same bytes in a quarter of the requests. (The scene has `head_dim` 64, so a warp holds two positions.) Mind the lanes past the end of the
# context: they must not read, but they must not leave either, because a shuffle waits for all lanes of its mask. So they stay, and their score
# is minus infinity.
#
# ## 8. Rung 5: the query heads of a group together
#
# Who reads which KV block? A row is a KV block, a column a CUDA block of rung 4. Columns 0 to 3 are query head 0 of the four tokens, 4 to 7 are query
# head 1, and so on.

# %%
words = pictures.kv_readers_words(run, "k", scene.k_cache[0].nbytes)
show(pictures.kv_readers(run, "k", scene.k_cache[0].nbytes), words)
print(words)

# %% [markdown]
# Eight CUDA blocks come by each KV block, one a query head: four for each of its two KV heads. With one CUDA block for each token and **KV head**,
# a piece of K is fetched once and used for all four heads from registers. Grouped queries were invented to make the cache smaller. They make
# attention faster as well, and only if the kernel is written for it.

# %%
who_reads(5, 64)

# %%
show_source(KERNELS / "k5_group.cuh", "for (int g = 0; g < G; ++g) {", "state[g].raise_to")

# %% [markdown]
# **Predict, then run.** What are the requests and the traffic now?

# %%
run = climb(5, "group")

# %% [markdown]
# <details><summary>Answer</summary>
#
# A quarter of rung 4 in both: 664 requests where rung 1 made 16,512, and exactly the bytes that there are to read. It cannot become less. With
# groups of 1 (no GQA) rungs 4 and 5 would be the same.
#
# </details>
#
# ## 9. Rung 6: cut the context
#
# Bytes are at their best. Threads are not: the grid has a CUDA block for each token and KV head. One long conversation, alone on a server, in a model of 8 KV heads:
# 8 CUDA blocks, and an H100 has 132 multiprocessors to run them. 94 % of the card looks on. So the context is cut into **parts** with a CUDA block
# each. Blocks cannot wait for each other; each leaves its softmax state in memory, and a second launch merges them (*flash-decoding*, Dao et al. 2023).
# Two parts of 64 positions: eight warps in two CUDA blocks.

# %%
who_reads(6, 128)

# %%
show_source(KERNELS / "k6_split.cuh", "Softmax<4> whole;", "store_four")

# %%
run = climb(6, "split")

# %%
for one in run.launches:
    print(f"{one['name'].decode():9} grid {one['grid'].tolist()}, {one['block'][0]} threads a CUDA block")
parts = trace.traffic(run, ["part_acc", "part_state"])
share = parts.request_bytes / scene.kv_bytes
print(f"the merge reads {parts.request_bytes:,} bytes of partial states, {share:.0%} of K and V")

# %% [markdown]
# The price is the last line, and once more as much for writing them. It looks high because contexts are short here: the four states of a
# group are as large as two positions of K and V, however long the part is. With parts of 256 positions or more, as the operator cuts them, that
# is below one per cent. Where one part is enough, the operator takes rung 5.
#
# That is the ladder. A seventh rung (`k7_async.cuh`) copies ahead while it computes, which only a GPU does.

# %% [markdown]
# ## 10. A gallery of mistakes
#
# On the six rungs the checker was silent. Here are five copies of rungs 1 to 3 (in `minibatch/cuda/bugs/`), each with a small change. For each: read the
# report, go to the line, and say what is wrong before you open the answer.


# %%
def diagnose(name, **sizes):
    """What the checker says first; often the rest follows from it."""
    tried = try_kernel(BUGS / f"{name}.cuh", **sizes)
    print(tried.reports[0] if tried.reports else tried.wrong)
    if len(tried.reports) > 1:
        print(f"({len(tried.reports) - 1} more)")


diagnose("missing_barrier")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Rung 3 without its `__syncthreads()`. Warp 0 reads the states of warps that have not written them. On a GPU the four warps run nearly in step, and the
# numbers may be right until a warp is late.
#
# </details>

# %%
diagnose("divergent_barrier")

# %%
show_source(BUGS / "divergent_barrier.cuh", "if (warp < length)", "T* out_row")

# %%
print("without the checker, are the numbers right?", try_kernel(BUGS / "divergent_barrier.cuh", kind="fast").ok)

# %% [markdown]
# <details><summary>Answer</summary>
#
# With a context of one token three warps have no position and take the other branch. Its barrier is not the one where the rest waits. CUDA calls
# the outcome undefined. Where arrivals are merely counted, as in the unchecked run, all goes well, and that is the trouble with it.
#
# </details>

# %%
diagnose("wrong_group_divisor")

# %%
diagnose("wrong_group_divisor", kv_heads=4)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The KV head of a query head is `head / kv.kv_heads` there. The divisor should be the size of the *group*, `heads / kv_heads`. With 8 heads on 2 the
# result runs past the KV heads, and the checker sees it. With 8 on 4 every read is lawful, if mistaken, and only the numbers tell. With 9 on 3, or 16
# on 4, both are the same and nothing tells: a checker sees accesses, not meaning, and tests must choose their sizes.
#
# </details>

# %%
diagnose("past_the_context")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `position <= length`: one position too far. Most of the time this is a slot of the sequence's own last block, unwritten, or worse, written by somebody who
# had the block before. No crash, plausible numbers, and a text that depends on strangers.
#
# </details>

# %%
diagnose("int_overflow")

# %% [markdown]
# <details><summary>Answer</summary>
#
# An offset in a type that is too small wraps round and points before the tensor. Here the type is `short`, so that a small pool shows it. With
# `int` it happens at 2³¹ elements: KV block 131,072 of 16 × 8 × 128, or 8.6 GB for K and V of a layer in bfloat16. Every test passes, and the large server crashes.
#
# </details>
#
# **Exercise 1.** Mend them. `bug` is the name, `source` the text of the file; return it mended. `source.replace("this", "that")` will do for four of the five. The check
# compiles, runs under the checker on two shapes, and compares with float64.


# %%
def mend(bug, source):
    return None


# %%
attempt(check_mend, mend)

# %% [markdown]
# ## 11. The engine writes through the kernel
#
# The loop of notebook 06, paged memory, chunked prefill from notebook 04, the embedded model (three layers, 6 query heads on 2 KV heads), and
# `MINIBATCH_KERNEL` in the environment. In each layer the step's K and V go to their slots by one kernel, and its tokens, whatever mixture
# they are, attend by rung 6. Everything else in the engine stays.

# %%
model = load_model("tiny")
asked = [model.request(name, text, max_new_tokens=16) for name, text in chat_prompts("tiny")[:6]]


def serve(kernel, requests):
    """The run, through a kernel or through torch."""
    with patch.dict(os.environ, MINIBATCH_KERNEL=kernel):
        mix = Chunked(token_budget=24)
        sizes = {"max_num_seqs": 4, "max_model_len": 128, "block_size": 4}
        return build_engine(model, memory="paged", mix=mix, **sizes).run(requests)


runs = {kernel: serve(kernel, asked) for kernel in ("torch", "emulated", "checked")}
for kernel, run in runs.items():
    print(f"{kernel:9} {len(run.steps)} steps, texts {tokens_sha256(run)[:16]}")

# %%
for one in runs["emulated"].requests.values():
    print(f"{one.request_id}: {model.tokenizer.decode(one.tokens)!r}")

# %% [markdown]
# The texts are equal, token by token. In the last run every access of every thread was checked, and nothing was found. Sums were added up in another
# order than torch does, so the last bits of a score may differ; a text changes only where two tokens are that close.
#
# On a GPU the same engine takes `MINIBATCH_KERNEL=cuda`, and `python -m minibatch.cuda.gpu_check` measures the ladder there. No such
# measurement is stored: what this page says of time is the roofline, and no more.

# %% [markdown]
# ## What you saw
#
# * Paging costs a kernel one read of the block table for a position, and nothing else.
# * Attention over a cache is as fast as its bytes. Lanes side by side: from 8 times the ideal to 4. Heads of a group together: from 4 to 1. Wide loads: a
#   quarter of the requests.
# * Softmax states merge in any order: lanes, warps and parts of a context all meet that way, by shuffles, in shared memory, and by a second launch.
# * A grid must be large enough for the card. That is what cutting the context is for.
# * Many a wrong kernel gives right numbers. Who reads what, with which right, and after which barrier is a question of its own, and can be asked without a GPU.
# * What this layer cannot tell: time, caches, what a GPU's weak memory order allows, tensor cores. Its limits are in `minibatch/cuda/README.md`.
#
# ## Exercises
#
# The first is in section 10. In the others a kernel has a hole, and you return the lines that fill it, as one string.
#
# **2.** Mistral 7B lets a token see only its last `window` positions. Write the lines that begin the loop: where it starts, and `at`, where a position's K and V
# lie. Two lines are enough; the loop is closed below the hole.

# %%
print(WINDOWED)


# %%
def window():
    return None


# %%
attempt(check_window, window)

# %% [markdown]
# **3.** Let the four warps agree on the largest score of the tile, through `best`. Four lines. The loop comes round again: who may still be reading `best`
# when the next tile is written to it?

# %%
print(LARGEST)


# %%
def largest():
    return None


# %%
attempt(check_largest, largest)

# %% [markdown]
# **4.** Copy-on-write (notebook 06) copies whole KV blocks. A CUDA block of 64 threads copies one pair: `block_elements` elements of KV block `from[blockIdx.x]`
# over those of `to[blockIdx.x]`. `block_elements` may be less than 64, or more, or no multiple of it. Three or four lines.

# %%
print(COPIED)


# %%
def copy():
    return None


# %%
attempt(check_copy, copy)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM**, `csrc/attention/attention_kernels.cuh`: the first PagedAttention. A group of threads takes one key in pieces of 16 bytes; K is stored in
#   pieces for that purpose (`[num_blocks, kv_heads, head_size/x, block_size, x]`). Scores of the whole context lie in shared memory, hence a limit, and
#   version 2, which cuts it into partitions of 512. Each query head reads K and V for itself: our rung 4. Today vLLM calls FlashAttention or FlashInfer.
# * **FlashInfer**, which SGLang uses: `include/flashinfer/attention/decode.cuh` has the group sharing K and V, the merge of states, and asynchronous
#   copies; `page.cuh` the block table, in compressed rows.
# * **FlashAttention**, `flash_attn_with_kvcache(block_table=…, num_splits=…)`: our `parts`; with 0 it chooses by how well they fill the card.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention/`: the same for decodes, with a "multi-block mode", which is the split.
# * **compute-sanitizer** is the checker for a real GPU: memcheck, racecheck (shared memory), initcheck (global memory), synccheck. **Nsight Compute** counts
#   sectors for a request.
