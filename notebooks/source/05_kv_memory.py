# %% [markdown]
# # 05 Memory takes the stage: contiguous K/V regions and what they waste
#
# About 25 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [03](03_iteration_level.ipynb): the batch that never closes, and its two conditions for entering, a slot and memory. At the end
# you can say
#
# * how many bytes a token's K and V take, and how many sequences fit on a card: **KV arithmetic**;
# * what a server does that gives each sequence one **contiguous region**, and why it must decide a length that nobody knows;
# * the four things a position of the pool can be: **used**, **reserved**, **internal** waste, **external** waste;
# * where the vLLM paper's "20 to 38 % of the memory holds tokens" comes from, and how near a laptop gets to it.
#
# Previous: [04 Chunked prefill](04_chunked_prefill.ipynb) · Next: [06 The paged KV cache](06_paged_kv_cache.ipynb)
#
# Articles: 1, "a consequência que ninguém anuncia: a memória virou o palco"; 3, "onde o KV cache impõe limites". Words:
# [glossary](GLOSSARY.md).

# %%
from collections import Counter
from dataclasses import replace
from statistics import mean

from minibatch import Engine, SamplingParams, build_engine, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb05 import check_fragment, check_most_sequences, check_split
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.memory.arithmetic import (
    CARDS,
    GB,
    MODELS,
    GiB,
    KiB,
    blocks_that_fit,
    kv_pool_bytes,
    sequences_that_fit,
    tokens_that_fit,
)
from minibatch.memory.placement import PLACEMENTS, Buddy, FirstFit, next_power_of_two
from minibatch.memory.waste import Split, mean_split, splits
from minibatch.plot import show, show_source
from minibatch.plot.regions import regions, regions_alt, stays
from minibatch.plot.waste import waste, waste_alt
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import chat_prompts, sharegpt_like, to_requests

# %% [markdown]
# ## 1. How many caches fit?
#
# Article 1 closes its account with a sentence: the batch now takes anyone who *fits*, and to fit means one thing, free memory for the KV
# cache of one more sequence. On a card of 80 GB with a 7B model, it says, about 66 GB are left for that. Work it out. For each token, each
# layer keeps one K and one V, each of `kv_heads` vectors of `head_dim` numbers, two bytes a number:


# %%
def kv_bytes_per_token(layers, kv_heads, head_dim, bytes_per_value=2):
    return 2 * layers * kv_heads * head_dim * bytes_per_value


llama_2_7b = kv_bytes_per_token(layers=32, kv_heads=32, head_dim=128)
free = 80e9 - 2 * 6.738e9  # two bytes for each of 6.738 billion weights
print(f"{llama_2_7b / KiB:.0f} KiB a token; {free / 1e9:.1f} GB free; {free // llama_2_7b:,.0f} tokens")

# %% [markdown]
# The article is right: 66.5 GB. They hold the K and V of 126,884 tokens.
#
# **Predict, then run.** How many sequences of 2,048 tokens is that? And how many for Llama-3-8B, which is a *larger* model, but in which
# four query heads share one K/V head (8 K/V heads instead of 32)?

# %%
print("model          KV/token   free GB   tokens    of 2,048   of 4,096  (on an 80 GB card, nothing held back)")
for name in ("Llama-2-7B", "OPT-13B", "Llama-3-8B"):
    model = MODELS[name]
    pool = kv_pool_bytes(model, CARDS["A100-80"])
    fit = [sequences_that_fit(model, pool, length) for length in (2048, 4096)]
    size, tokens = model.kv_bytes_per_token / KiB, tokens_that_fit(model, pool)
    print(f"{name:12}  {size:5.0f} KiB  {pool / GB:7.1f}  {tokens:8,}  {fit[0]:8}  {fit[1]:9}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 61 sequences of 2,048 tokens, or 30 of 4,096. With Llama-3-8B it is 238 of 2,048: its weights are larger, but a token takes 128 KiB
# instead of 512. Grouped-query attention is a memory policy as much as a model's.
#
# </details>
#
# `minibatch/memory/arithmetic.py` has these functions for any model and card. Three things to know when the numbers of others look different:
# "80 GB" cards have 80 GiB, which is 85.9 GB; servers hold back 8 to 10 % and room for activations (`usable`); and papers that say GB
# may mean GiB. Table 1 of the vLLM paper (Kwon et al., SOSP 2023) gives the memory for KV caches and the "slots" in it:

# %%
for name, gib, paper in [("OPT-13B", 12, "15.7K"), ("OPT-66B", 21, "9.7K"), ("GPT-3 175B", 264, "60.1K")]:
    tokens = tokens_that_fit(MODELS[name], gib * GiB)
    blocks = blocks_that_fit(MODELS[name], gib * GiB, block_size=16)
    print(f"{name:10}  {gib:3} GiB  {tokens:6,} tokens (paper: {paper:>5})  {blocks:5,} blocks of 16")
held_back = kv_pool_bytes(MODELS["Llama-2-7B"], 80 * GiB, usable=0.9)
print(f"Llama-2-7B on 80 GiB, a tenth held back: {tokens_that_fit(MODELS['Llama-2-7B'], held_back):,} tokens")

# %% [markdown]
# (The middle line is 9,557 here and 9.7K there because the paper's 21 GB is itself rounded.) All of this supposes that every byte of the
# pool holds a token somebody needs. The rest of this notebook is about that supposition.

# %% [markdown]
# ## 2. One region each, from nothing
#
# Attention as one learns it wants a sequence's K and V in one piece, position after position. So the first servers gave each sequence a
# *contiguous region* of the pool. It cannot be moved and it cannot grow, for somebody else's begins where it ends. So its length is fixed
# when the request comes in, before a single token of the answer exists. Where it goes is the oldest question of memory allocation. The
# oldest answer is **first fit**, the lowest gap that is long enough:


# %%
def first_fit(regions, pool, length):
    """Start of a new region of `length` positions beside `regions` [(start, stop), ...]; None if it fits nowhere."""
    end = 0
    for start, stop in sorted(regions):
        if start - end >= length:
            return end
        end = stop
    return end if pool - end >= length else None


print(first_fit([(0, 6), (10, 16)], pool=16, length=4), first_fit([(0, 6), (10, 16)], pool=16, length=5))

# %% [markdown]
# In the package `FirstFit` keeps the gaps instead of the regions, and `ContiguousMemory` asks it for a place. This is where
# `MemoriaLivreParaKvCache()` of article 1 is answered:

# %%
show_source(ContiguousMemory.admit)

# %%
show_source(FirstFit.take)

# %% [markdown]
# How long should the region be? The package has the three answers that the vLLM paper compares: `max`, as long as the model's longest
# sequence; `pow2`, the prompt and the next power of two of the answer (an answer of 25 gets room for 32); `exact`, what the
# sequence will really need, P + N − 1. The last two need to know the length of the answer. In a replay we do; a server does not.

# %% [markdown]
# ## 3. 24 chat requests and a pool of 1,024 positions
#
# The requests of notebooks 02 and 03, once through SmolLM2, for real: 8 slots, and 8 regions of 128 positions.

# %%
smollm2 = load_model("smollm2")
requests = [smollm2.request(name, text, max_new_tokens=64) for name, text in chat_prompts("smollm2")]
real = build_engine(smollm2, max_num_seqs=8, max_model_len=128).run(requests)
kib = smollm2.config.kv_bytes_per_token / KiB
print(f"{kib:.0f} KiB a token in float32; the pool of 1,024 positions is {1024 * kib / 1024:.0f} MiB")

# %% [markdown]
# **Predict, then run.** The prompts have 33 to 43 tokens and no answer more than 64. What share of the pool holds a token, on average, while
# others wait for memory?

# %%
show(regions({"max: 128 positions each": real}), regions_alt({"max: 128 positions each": real}))
found = splits(real)[0]._asdict()
print("step 1:", *(f"{count} {kind}," for kind, count in found.items()), "of 1,024 positions")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 47 %, as the heading says. More than half of the memory that others wait for is empty.
#
# </details>
#
# Read the picture from top to bottom. Each box is a region, as long as its request stays. The strong colour is what holds a token, and its lower edge
# sinks by one position a step. Pale is *reserved*: empty now, but this request will fill it. Grey is *internal* waste: nobody will ever
# write there. That makes three kinds of position. The fourth is white, in no region at all:
#
# | kind | is | can another use it now? |
# |---|---|---|
# | **used** | holds the K and V of a token | no, and it should not |
# | **reserved** | empty; its holder fills it before it leaves | it could have, until then |
# | **internal** | in a region whose holder never fills it | it could have, all along |
# | **external** | in no region, and yet the next request cannot enter | no: too short a gap, or cut off |
#
# Only afterwards can one tell reserved from internal, so `splits` reads the trace of a finished run:

# %%
show_source(splits)

# %% [markdown]
# Now the same pool, the same prompts and the same answers with other region lengths. The tokens are known, so a script replays them; there
# are 24 slots, so that memory alone decides. For `pow2` and `exact` the request says how long its answer will be, which makes both of
# them **oracles**.

# %%
answers = {name: record.tokens for name, record in real.requests.items()}
oracle = [replace(one, sampling=SamplingParams(max_new_tokens=len(answers[one.request_id]))) for one in requests]


def replay(memory, some):
    """The 24 answers again, token by token, in another memory."""
    executor = ScriptedExecutor(answers, vocab_size=smollm2.config.vocab_size)
    return Engine(IterationScheduler(24, memory), executor).run(some)


memories = {reserve: ContiguousMemory(1024, 128, reserve) for reserve in ("max", "pow2", "exact")}
runs = {reserve: replay(memory, oracle) for reserve, memory in memories.items()}

# %%
known = {"pow2: the answer rounded up": runs["pow2"], "exact: the answer known": runs["exact"]}
show(regions(known, height=1.9), regions_alt(known))

# %% [markdown]
# Under `exact` nothing is grey any more, but pale is still there: the oracle knows how long the answer will be, and yet must keep the
# end of the region from the first step on. And white appears, between the regions.
#
# How many run at once? For comparison, the memory of the next notebook, which takes 16 positions at a time as they are needed; and `exact`
# as it would be on a server, where "what it will need" is the client's limit of 64.

# %%
runs["exact, by the limit"] = replay(ContiguousMemory(1024, 128, "exact"), requests)
runs["paged (notebook 06)"] = replay(PagedMemory(num_blocks=64, block_size=16), oracle)
print("                                       while others wait:")
print("reserve              most at once   at once   external   steps")
for name in ("max", "exact, by the limit", "pow2", "exact", "paged (notebook 06)"):
    live = [len(record.live) for record in runs[name].steps]
    crowded = [len(record.live) for record in runs[name].steps if record.waiting]
    outside = mean_split(runs[name]).external
    print(f"{name:19}  {max(live):12}  {mean(crowded):8.1f}  {outside:9.0%}  {len(live):6}")

# %% [markdown]
# The same bytes. What a request is *given* decides how many run, not what it uses. Look at the second row: to give each request what its
# client allows is no better than `max`, on average even worse. The limits are the same, the prompts are not, so no region fits exactly into
# the gap that another has left; regions of 128 always do. Part of the waste has only changed its name, from internal to external.
#
# And these 24 are tame: the longest sequence stores 103 positions, three times what the shortest does. Section 5 has wilder traffic.

# %% [markdown]
# ## 4. External: free, and of no use
#
# A toy pool of 16 positions. Four sequences take 4 each, and then the first and the third leave.
#
# **Predict, then run.** Half of the pool is free. Can a sequence enter that needs 5?


# %%
def drawn(placement, regions):
    """The pool as text: a letter for a region, '-' what its piece has beyond it, '·' free."""
    cells = ["·"] * 16
    for name, region in regions.items():
        for position in placement.span(region):
            cells[position] = name if position in region else "-"
    return "".join(cells)


def play(placement, moves):
    """Take (a length) or give back (None), and draw."""
    held = {}
    for name, length in moves:
        start = placement.take(length) if length else placement.give_back(held.pop(name))
        if start is not None:
            held[name] = range(start, start + length)
        said = f"{name} leaves" if length is None else f"{name} takes {length}"
        print(f"{said:9} {drawn(placement, held)}", "no place for it" if length and start is None else "")


moves = [("A", 4), ("B", 4), ("C", 4), ("D", 4), ("A", None), ("C", None), ("E", 5)]
play(FirstFit(16), moves)

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. There are two gaps of 4, and a region is one piece. That is **external fragmentation**: 8 positions are free, nobody owns them, and nobody can
# have them.
#
# </details>
#
# Allocators fight it by being tidier about where they cut. The **buddy** allocator, which the vLLM paper assumes for its baselines, only cuts in
# halves: every piece has a power of two of positions and starts at a multiple of its size, and when both halves of a piece are
# free they become one again.

# %%
show_source(Buddy.give_back)

# %% [markdown]
# **Predict, then run.** A takes 5 and B takes 3 in a pool of 16. How much is left for others, and in which pieces? When both have left, how
# long is the longest piece?

# %%
play(Buddy(16), [("A", 5), ("B", 3), ("C", 5), ("B", None), ("A", None), ("C", 9)])

# %% [markdown]
# <details><summary>Answer</summary>
#
# A gets a piece of 8 and B one of 4; a piece of 4 is left, where a first-fit pool would have 8 positions. C needs 5, so a piece of 8, and has to
# wait. When both have left, the halves have grown together and the pool is whole.
#
# </details>
#
# The minus signs are what it costs. They lie in no region, the request did not ask for them, and no other can have them: external waste, too.

# %% [markdown]
# ## 5. Figure 2 of the vLLM paper
#
# Now at full size. OPT-13B on a 40 GB card leaves 12 GiB for K and V: 15,728 positions. Requests have lengths like those of ShareGPT,
# conversations of people with ChatGPT. The paper gives their means, 161 tokens in and 338 out, and OPT takes 2,048 in all. We may not
# ship that data, so `sharegpt_like` draws log-normal lengths with these means and the spread of Azure's conversations, which we have.
#
# No model and no seconds are needed. Who is in which step depends on lengths and memory alone: the package's own engine, scheduler and
# memories, and an executor that makes up tokens.

# %%
POSITIONS = tokens_that_fit(MODELS["OPT-13B"], 12 * GiB)
SKIP = 500  # steps: at first everybody is equally young


def crowd(memory, seed=0):
    """300 requests, all there at the start, through 256 slots: memory is the only limit."""
    some = to_requests(sharegpt_like(300, seed), vocab_size=10)
    return Engine(IterationScheduler(256, memory), ScriptedExecutor()).run(some)


def batched(trace):
    """Sequences in a step, on average, while others wait."""
    return mean(len(record.live) for record in trace.steps[SKIP:] if record.waiting)


def memory_for(name):
    if name == "paged":
        return PagedMemory(num_blocks=POSITIONS // 16, block_size=16)
    return ContiguousMemory(POSITIONS, max_model_len=2048, reserve=name, placement="buddy")


# %% [markdown]
# **Predict, then run.** Under `max` you can say without a computer how many sequences run at once, and how much of the pool is external.
# 15,728 / 2,048 is 7.68.

# %%
ours, sizes = {}, {}
for name in ("max", "pow2", "exact", "paged"):
    measured = [(mean_split(trace, SKIP), batched(trace)) for trace in (crowd(memory_for(name), s) for s in range(3))]
    kinds, sizes[name] = zip(*measured)
    ours[name] = Split(*map(mean, zip(*kinds)))
paper = {
    "max": Split(0.204, 0.133, 0.573, 0.089),
    "pow2": Split(0.268, 0.179, 0.136, 0.416),
    "exact": Split(0.382, 0.252, 0.0, 0.366),
    "paged": Split(0.963, 0.0, 0.0, 0.037),  # the paper says 96.3 % used; where the rest lies it does not say
}

# %%
called = {"max": "Orca (Max)", "pow2": "Orca (Pow2)", "exact": "Orca (Oracle)", "paged": "vLLM"}
bars = {}
for name in ours:
    bars |= {f"{name}, here": ours[name], f"{called[name]}, paper": paper[name]}
show(waste(bars, together=2), waste_alt(bars))

# %%
figure_13 = {"max": 7.00, "pow2": 9.81, "exact": 13.62, "paged": 30.42}  # at 2 requests/s
print("% of the pool        used  reserved  internal  external   sequences at once")
for name, three in sizes.items():
    here, there = ([f"{100 * share:8.1f}" for share in split] for split in (ours[name], paper[name]))
    print(f"{name:15}", *here, f"{mean(three):11.2f}  (three seeds: {min(three):.2f} to {max(three):.2f})", sep="  ")
    print(f"{'  ' + called[name]:15}", *there, f"{figure_13[name]:11.2f}", sep="  ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Seven at a time, whatever the answers. Seven regions are 14,336 positions; the other 1,392, or 8.9 %, are too few for an eighth. That is the
# paper's 7.00 and its 8.9 %, to the digit.
#
# </details>
#
# The shape is the paper's: every share it gives is within two points of ours, but for Pow2. (Ours are means of three seeds; the paper's are in its
# figures 2 and 13.) How far are we, and why?
#
# * **Max, Oracle.** About a point more is used here, and the oracle runs a sequence less. Both say that our requests are a little
#   longer: the answers of the three samples have means of 338 to 367 tokens.
# * **Pow2** is the farthest: 3.5 points more used, 6.4 less external, at the same batch size. How a prompt plus a power of two falls against
#   the buddy's next power of two depends on the shape of the lengths. Ours is a log-normal, the paper's is what people wrote.
# * **Paged.** 97.4 against 96.3 %. What is left is half a block for each sequence, and a few blocks too few for the next request.
# * **Load.** Here all requests are there at the start, only steps with a queue count, and each counts alike. The paper measures over
#   time with Poisson arrivals, in figure 13 at 2 requests/s. That is more than its Orca variants carry (by its own account vLLM carries 1.7 to
#   2.7 times the rate of the best of them), so they had a queue as well; vLLM's may have run dry now and then.
# * **Not modelled:** a prompt's cost in time, and whatever else stands behind "others" in the paper's "external fragmentation & others".

# %% [markdown]
# So the article's "up to 80 %" of waste is Orca (Max): 100 − 20.4 = 79.6. And the oracle, which no server has, still wastes 60 %.
# What does the external part consist of? Two things, and for them first fit and buddy are opposites:


# %%
def external(trace, placement):
    """Shares of the pool in no region, cut off and free; share of steps in which both together would take the next."""
    cut, lengths = Counter(), {stay.request_id: stay.length for stay in stays(trace)}
    for stay in stays(trace) if placement == "buddy" else ():
        for record in stay.steps:
            cut[record.step] += next_power_of_two(stay.length) - stay.length
    queue, entered, rows = list(trace.requests), 0, []
    for record, split in zip(trace.steps, splits(trace)):
        entered += len(record.admitted)
        if record.waiting and record.step > SKIP:
            rows.append(
                (cut[record.step], split.external - cut[record.step], lengths[queue[entered]] <= split.external)
            )
    cut_off, free, would_fit = map(mean, zip(*rows))
    return cut_off / POSITIONS, free / POSITIONS, would_fit


# %%
print("exact regions   cut off    free   used   at once   the next would fit, were it all in one piece")
for placement in PLACEMENTS:
    trace = crowd(ContiguousMemory(POSITIONS, 2048, "exact", placement))
    cut_off, free, would_fit = external(trace, placement)
    print(
        f"{placement:13}  {cut_off:8.1%}  {free:6.1%}  {mean_split(trace, SKIP).used:5.1%}  {batched(trace):8.2f}",
        end="",
    )
    print(f"   in {would_fit:.0%} of the steps")

# %% [markdown]
# Seven tenths of the buddy's external waste is rounding. First fit cuts nothing off and runs four sequences more; the published
# baselines would look better with it. But neither gets near the paged memory, for the largest part of what is left is
# *reserved*, and no placement does anything about that: it is the price of deciding at the door.

# %% [markdown]
# ## What you saw
#
# * A token's K and V: 2 × layers × K/V heads × head size × bytes. 80 GB with a 7B: 66.5 GB, 126,884 tokens, 61 sequences of 2,048; an 8B with
#   grouped-query attention: 238.
# * A contiguous region is decided at the door. Too long, and it is internal waste; even if exact, its end stands reserved and empty
#   from the first step on.
# * What lies between regions is external waste: gaps that are too short (first fit), or what rounding cut off (buddy).
# * Figure 2 of the vLLM paper, on a laptop: about 21, 30 and 39 % of the pool hold tokens under Orca's three reserves, against the paper's
#   20.4, 26.8 and 38.2; seven sequences at once instead of thirty-one.
#
# **What would help?** Everything above follows from one demand, that a sequence lies in one piece. Article 1 ends here, with a
# question: how do you allocate memory that grows token by token, to a size nobody knows? Operating systems answered it in the sixties. That is
# notebook 06.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it says
# "NOT YET". Solutions: `notebooks/solutions/05_kv_memory.py`.
#
# **1.** How many sequences of `length` tokens fit beside a model's weights? Two bytes for each weight and each value; whole sequences only;
# 0 if the weights themselves do not fit. About three lines.


# %%
def most_sequences(layers, kv_heads, head_dim, parameters, memory_bytes, length):
    return None


# %%
attempt(check_most_sequences, most_sequences)

# %% [markdown]
# **2.** Split a pool of `pool` positions at one moment into the four kinds of section 3. `regions` has a tuple for each region: its length,
# the positions filled by now, the positions filled when its request ends. Return (used, reserved, internal, external). About five
# lines.


# %%
def split(pool, regions):
    return None


# %%
attempt(check_split, split)

# %% [markdown]
# **3.** Break first fit. Return two lists: `lengths` of regions that are taken one after the other in an empty pool of `pool` positions (they
# must all fit), and the indices of those that are then given back. Afterwards at least 90 % of the pool must be free, and yet no region
# of `pool // 10` positions may fit. For any pool from 100 to 2,000. About five lines, and a moment's thought.


# %%
def fragment(pool):
    return None


# %%
attempt(check_fragment, fragment)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM** never had contiguous regions. Its arithmetic is `vllm/v1/core/kv_cache_utils.py`: at the start it logs the KV cache's size in tokens
#   and the "maximum concurrency" for sequences of `max_model_len` (`get_max_concurrency_for_kv_cache_config`). `gpu_memory_utilization`
#   (0.92) is our `usable`; `kv_cache_dtype="fp8"` halves the bytes of a value.
# * **SGLang**: `--mem-fraction-static` is the share for weights and KV pool together; `--page-size` 1 means that its unit is one token.
# * **TensorRT-LLM** has both: its documentation describes a contiguous KV cache, a tensor `[max_batch_size * max_beam_width, 2, num_heads,
#   max_seqlen, hidden_dim_per_head]`, which is our `max`, and a paged one; `kv_cache_free_gpu_mem_fraction` (0.90) sizes the latter.
# * **TGI** counts what it may promise in `max_batch_total_tokens`; for models without paging, the number of requests times the longest input plus
#   all the `max_new_tokens`: a rectangle, notebook 02's padding in memory.
# * **llama.cpp**: `-c` positions divided among `-np` slots, a fixed context each: `max` again (newer versions can share one pool).
# * **transformers**: `StaticCache` is a region of `max_cache_len` for each row of a batch; `DynamicCache` grows by copying.
# * The paper: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023, sections 3.1
#   and 6.1. The buddy system: Knowlton, CACM 1965.
#
# Next: [06 The paged KV cache](06_paged_kv_cache.ipynb)
