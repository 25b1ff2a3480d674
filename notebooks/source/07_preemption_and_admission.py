# %% [markdown]
# # 07 Under pressure: preemption and admission control
#
# About 40 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [06](06_paged_kv_cache.ipynb): blocks, block tables, a pool that many sequences share. At the end you can say
#
# * what happens in the step in which no block is free, and who gives way;
# * what **recompute** and **swap** each cost, and why the size of a block decides between them;
# * why a text survives its preemption token for token, and why everybody gets to the end;
# * the two errors of **admission control**, on one plot, and three ways to stand between them;
# * how many may overtake a large request, and what goes wrong where nobody counts;
# * how a server can be busy all day computing the same prompts over and over.
#
# Previous: [06 The paged KV cache](06_paged_kv_cache.ipynb) · Next: [08 Paged attention in CUDA](08_paged_attention_cuda.ipynb)
#
# Articles: 2, "política de preempção" and "controle de admissão"; 3, "PagedAttention aproveita melhor a memória". Lab: [5, preemption and
# admission](labs/lab5.ipynb). Words: [glossary](GLOSSARY.md).

# %%
from dataclasses import replace

import matplotlib.pyplot as plt

from minibatch import Engine, Request, SamplingParams, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb07 import check_claim, check_peak_need, check_victims
from minibatch.memory import PagedMemory
from minibatch.metrics import idle_while_waiting, recomputed_tokens, summarise
from minibatch.plot import Player, alt, blocks, blocks_alt, caption, show, show_source, slots, slots_text
from minibatch.plot.colours import PALETTE
from minibatch.plot.pressure import pressure, pressure_alt
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.join import SmallOnesPass
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import Claim, FullNeed, NewTokenRatio, Profiled, PromptOnly, Reserve
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import chat_prompts, exponential, synthetic, to_requests

# %% [markdown]
# ## 1. A door that is checked once
#
# The loop of article 1 lets a request in under two conditions, `ativas.Count < SlotsMaximos && MemoriaLivreParaKvCache()`. It asks the second
# question once, at the door, and never again. But the memory of a sequence grows "token a token, sem que ninguém saiba de antemão quantos
# tokens a resposta vai ter". With one region for a whole life (notebook 05) once was enough, and cost most of the memory. With blocks
# (notebook 06) a request can enter on what its *prompt* takes, and many more do; then their answers grow, and one day a step finds no free
# block. Article 2 names the two decisions that follow:
#
# * *política de preempção*: somebody who runs must give way, "trocar seu cache KV para CPU RAM ou recomputá-la do zero mais tarde" (sections 2
#   to 5);
# * *controle de admissão*: whoever enters should fit "durante todo o seu tempo de vida de geração", and nobody knows how long that is
#   (sections 6 to 8). "Subestimar causa falhas de falta de memória no meio da sequência; superestimar deixa a fila desnecessariamente faminta."
#
# Article 3 says what the first looks like from outside: "uma requisição é pausada e seu estado é recalculado depois".
#
# ## 2. Memory runs out
#
# A pool of 6 blocks of 4 positions. Three requests, prompts of 8 tokens and answers of 9: each ends with 8 + 9 - 1 = 16 positions, 4 blocks.
# All three prompts fit at once, any one request fits alone, and no two fit to the end.
#
# **Predict, then run.** In which step does the pool first run out? Who should give way? How many steps until all three have their nine
# tokens, if one alone takes nine?


# %%
def request(name, prompt, output, **more):
    """A request by its lengths."""
    return Request(name, prompt=(5,) * prompt, sampling=SamplingParams(output), **more)


def serve(requests, memory, num_slots=3, executor=None, **policies):
    """The trace of a run, and its scheduler."""
    scheduler = IterationScheduler(num_slots, memory, **policies)
    return Engine(scheduler, executor or ScriptedExecutor()).run(requests), scheduler


three = [request(name, prompt=8, output=9) for name in "ABC"]
tight, _ = serve(three, PagedMemory(num_blocks=6, block_size=4))
show(slots(tight, queue=False, width=8), alt(tight))
print(caption(tight))

# %% [markdown]
# <details><summary>Answer</summary>
#
# In step 2, at once: the three prompts fill the pool, and each next token needs a new block. C, the newest, gives way, and its two blocks go to
# A and B. In step 6 both need one more, and B gives way to A. Nobody enters in between: B waits for 4 blocks, and there are 2. From step 10
# on B, then C, run alone. 21 steps, two preemptions.
#
# </details>
#
# Block by block, on the same steps:

# %%
show(blocks(tight, memory=False, width=8), blocks_alt(tight))
print("positions that hold a token, of 24:", *(step.memory.used for step in tight.steps))

# %% [markdown]
# B's prefill in step 10 is longer than its first: 13 tokens, the 8 of its prompt and the 5 it had written. That is all that **recompute** is.
# To the scheduler B is a sequence whose `num_computed_tokens` fell back to 0 while its `num_tokens` is 13, and it does what it always does:
# compute what is missing. The code of a preemption is therefore short. Where a sequence asks for room, others give way until there is
# some, or it does itself:

# %%
show_source(Draft.compute)

# %%
show_source(IterationScheduler.preempt)

# %% [markdown]
# `_enqueue` puts the victim back in its old place in line. It came before all who wait, so it stands before them.
#
# ## 3. Who gives way?
#
# vLLM takes the newest, which has least to lose; with priorities, the least important. SGLang takes the one that has written fewest tokens,
# and among equals the one with the longest prompt: one large victim may free what two small ones would. Under each rule
# there is one exception:

# %%
show_source(Evict.choose)

# %% [markdown]
# **Predict, then run.** Ten blocks of 4. Four requests, all with answers of 9 tokens: A and B with prompts of 8 and 12, C and D with 4.
# A and C have priority 1, B and D have 0, which is more important. Each rule throws somebody else out in step 2. Whom?

# %%
four = [request("A", 8, 9, priority=1), request("B", 12, 9, priority=0)]
four += [request("C", 4, 9, priority=1), request("D", 4, 9, priority=0)]
rules = ("newest", "fewest_outputs", "lowest_priority")
by_rule = {rule: serve(four, PagedMemory(10, 4), num_slots=4, evict=rule)[0] for rule in rules}
print(slots_text(by_rule))
for rule, run in by_rule.items():
    gone = [f"{' '.join(step.preempted)} in step {step.step}" for step in run.steps if step.preempted]
    print(f"{rule}: preempts {', '.join(gone)}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# D, the newest; B, whose prompt is the longest of those that have one token each; C, for its priority. Not A, although its priority is as low
# as C's: A is the oldest.
#
# </details>
#
# All take 17 steps here. Let us put them under a real load. 200 requests, all there at the start; prompts and answers with the means of the
# ShareGPT conversations of the vLLM paper, 161 and 338 tokens (exponential, which they are not quite). What matters most: **every
# request allows 2,048 tokens** and ends when the model says so. The pool has 15,728 positions, the vLLM paper's 12 GiB for OPT-13B on an
# A100 of 40 GB (notebook 05). A step takes as long as the slower of two things, by a rule that you can check with the figures of notebook 05:
#
# * reading the weights: 25.7 GB at 1.555 TB/s, 16.5 ms;
# * the arithmetic of its tokens: 2 × 13 × 10⁹ operations each, at about half of 312 TFLOP/s, 0.165 ms.
#
# So the first 100 tokens of a step cost nothing extra, and a prompt of 200 makes it twice as long.

# %%
END, LIMIT, POOL = 1, 2048, 15_728
plan = synthetic(200, prompt=exponential(mean=161, cap=1024), output=exponential(mean=338, cap=LIMIT), seed=0)
chats = [
    replace(one, sampling=SamplingParams(LIMIT, stop_token_ids=(END,))) for one in to_requests(plan, vocab_size=100)
]
answers = {one.request_id: [7] * (planned.output_tokens - 1) + [END] for one, planned in zip(chats, plan)}


def seconds(step):
    """Simulated: OPT-13B on an A100 with 40 GB."""
    return max(16.5e-3, 0.165e-3 * step.num_tokens)


def load(num_blocks=POOL // 16, block_size=16, host_blocks=None, rule=seconds, requests=chats, **policies):
    """The 200 chats on 64 slots: the trace and the scheduler."""
    memory = PagedMemory(num_blocks, block_size, host_blocks=host_blocks)
    return serve(requests, memory, 64, ScriptedExecutor(answers, rule), **policies)


# %%
mixed = [replace(chat, priority=index % 2) for index, chat in enumerate(chats)]
print("victim           preemptions  of priority 0 / 1  most of one  recomputed  tokens/s  mean E2E, s: 0     1")
for rule in rules:
    run, _ = load(requests=mixed, evict=rule)
    times = [[run.requests[one.request_id] for one in mixed if one.priority == level] for level in (0, 1)]
    hits = [sum(record.preemptions for record in level) for level in times]
    e2e = [sum(record.finished_at for record in level) / len(level) for level in times]
    most = max(record.preemptions for record in run.requests.values())
    row = f"{rule:15}  {sum(hits):11}  {hits[0]:13} /{hits[1]:3}  {most:11}  {recomputed_tokens(run):10}"
    print(f"{row}  {summarise(run).tokens_per_second:8.0f}  {e2e[0]:14.1f}  {e2e[1]:4.1f}")

# %% [markdown]
# About one preemption for each request, and forty thousand tokens computed again for seventy thousand written: the pool is far too
# small for so open a door. Between the rules the sum differs little. What differs is *who pays*.
#
# ### Why everybody gets to the end
#
# Preemption can go wrong in a famous way: two sequences take turns evicting each other and neither ends. Three rules keep that out.
# The **oldest** of those who run is never the victim of another, so it gets on in every step, ends, and the next one is the oldest. A
# victim keeps what it has written, and the tokens of its answer come back as part of one prefill. And in a step with a
# preemption nobody enters: the room was made for somebody who runs. So the smallest pool that fits one request is enough:

# %%
print("blocks  steps  preemptions of A, B, C")
for num_blocks in (4, 5, 6, 7, 8, 10, 12):
    run, _ = serve(three, PagedMemory(num_blocks, block_size=4))
    assert all(len(record.tokens) == 9 for record in run.requests.values())
    print(f"{num_blocks:6}  {len(run.steps):5}  ", *(record.preemptions for record in run.requests.values()))

# %% [markdown]
# A pool of 3 blocks could never hold one of them; then the engine says so when a request is submitted, with need and capacity in blocks.
#
# ## 4. Recompute or swap?
#
# The victim's K and V need not be lost. A server has more host memory than GPU memory, so it can move the blocks there and back:
# **swap**. A pool of host blocks, `host_blocks`, says how many fit. The three requests of section 2 again:

# %%
swapped, scheduler = serve(three, PagedMemory(6, 4, host_blocks=6), evict=Evict("newest", swap=True))
pair = {"recompute": tight, "swap": swapped}
show(slots(pair, queue=False, width=8), alt(pair))
for name, run in pair.items():
    out, back = (sum(getattr(step, field) for step in run.steps) for field in ("blocks_out", "blocks_in"))
    print(f"{name:9}: {recomputed_tokens(run):2} tokens computed again, {out} blocks out, {back} back")

# %% [markdown]
# The same steps; but when B and C come back there is no second prefill. They decode in the very step in which they return. Blocks are moved whole:
# B had stored 12 positions, three blocks.
#
# **Predict, then run.** The host pool above had 6 blocks. What if it has 2? None?

# %%
for host_blocks in (6, 2, 0):
    run, scheduler = serve(three, PagedMemory(6, 4, host_blocks=host_blocks), evict=Evict("newest", swap=True))
    counts = {what: scheduler.counts[what] for what in ("swapped", "swap_refused", "recomputed")}
    print(f"{host_blocks} host blocks: {counts}, {len(run.steps)} steps")

# %% [markdown]
# <details><summary>Answer</summary>
#
# With 2, C's two blocks fit and B's three do not; with 0, nothing does. Whoever does not fit is recomputed, and counted as `swap_refused`, so
# that an operator sees that the host pool is too small. Nothing stops. (A real server once did: vLLM issue 546.)
#
# </details>
#
# Which costs less? Count bytes alone and swap wins: a token of OPT-13B has 800 KiB of K and V, out and back at 25 GB/s is 0.066 ms, and to
# compute it again takes 0.165 ms. But the K and V of a block do not lie in one piece. There is one piece for K and one for V in each of 40
# layers, so a block is 80 transfers, and each costs about 10 µs before its first byte moves. The smaller the blocks, the more transfers.
# With this rule in the simulated step, the first 100 chats run with ever larger blocks:


# %%
def move_seconds(block_size):
    """One block, out or back: 80 transfers of 10 KiB a position, 10 microseconds each and 25 GB/s."""
    return 80 * (10e-6 + block_size * 10_240 / 25e9)


def with_moves(block_size):
    def rule(step):
        return seconds(step) + move_seconds(block_size) * sum(move.kind in ("out", "in") for move in step.moves)

    return rule


sizes = (1, 4, 16, 64, 256)
half = chats[:100]
lost = {"recompute": [], "swap": []}
for size in sizes:
    pools = {"num_blocks": POOL // size, "block_size": size, "host_blocks": POOL // size}
    again, _ = load(**pools, requests=half, evict="newest")
    lost["recompute"].append(0.165e-3 * recomputed_tokens(again))
    moved, _ = load(**pools, requests=half, rule=with_moves(size), evict=Evict("newest", swap=True))
    lost["swap"].append(move_seconds(size) * sum(step.blocks_out + step.blocks_in for step in moved.steps))

# %%
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (name, costs), colour, mark in zip(lost.items(), (PALETTE[0], PALETTE[1]), "os"):
    ax.plot(sizes, costs, mark + "-", color=colour, label=name)
ax.set(xscale="log", yscale="log", xlabel="block size, positions", ylabel="seconds spent, whole run")
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.set_xticks([], minor=True)
ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
ax.set_yticks([1, 2, 5, 10, 20])
ax.set_yticks([], minor=True)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
words = "Seconds spent on preemptions over block size, both axes logarithmic: recompute stays nearly level, swap falls steeply "
show(fig, words + "and crosses it near 16.")
print("block size ", *(f"{size:8}" for size in sizes))
for name, costs in lost.items():
    print(f"{name:11}", *(f"{cost:6.1f} s" for cost in costs))

# %% [markdown]
# The shape is that of the vLLM paper (section 7.3): recompute does not care about the block size, swap is hopeless with small blocks and better
# with large ones, and in the range people use, 16 to 64, they are not far apart. Put the 10 µs at zero and swap wins everywhere: **the cost
# of a transfer *is* the result.** Two things the plot leaves out, one for each side. The arithmetic of recomputing hides behind the reading of
# weights where a step has fewer than 100 tokens; and a host pool is memory that somebody has to own and pin.
#
# vLLM V0 had both, and swapped only groups of several sequences. V1 has only recompute; the blocks of a victim stay in its prefix cache
# (notebook 06), so one that returns soon may find its own.

# %% [markdown]
# ## 5. Exact resume
#
# Whatever happened to it, the text must be that of an undisturbed run. Greedy is the easy case. With a temperature, every token is a
# draw, and a server that draws from one generator for all writes other texts as soon as the batch changes. Here the generator of a draw is
# derived from the request's seed and the *index of the token*. So the draw after a return is the one that would have come anyway.
#
# SmolLM2, the first 8 prompts of notebook 02, 32 tokens each, temperature 0.8, seeds 0 to 7. First a pool with room for all, then one of
# 24 blocks of 16, where each may need 5.
#
# **Predict, then run.** A sequence is preempted after its 20th token and recomputed. Its 20 tokens go through the model as one prefill now,
# not one by one. Can its 21st come out differently?

# %%
model = load_model("smollm2")
some = [model.request(name, text, max_new_tokens=32) for name, text in chat_prompts("smollm2")[:8]]
drawn = [replace(one, sampling=replace(one.sampling, temperature=0.8, seed=seed)) for seed, one in enumerate(some)]


def on_the_model(num_blocks, **policies):
    memory = PagedMemory(num_blocks, block_size=16, host_blocks=num_blocks)
    return serve(drawn, memory, num_slots=8, executor=model.executor(memory), **policies)


roomy, _ = on_the_model(40)
recomputed, _ = on_the_model(24)
returned, _ = on_the_model(24, evict=Evict("newest", swap=True))

# %%
print("          steps  preemptions  recomputed  same tokens  same finish reasons")
texts = {name: record.tokens for name, record in roomy.requests.items()}
ends = {name: record.finish_reason for name, record in roomy.requests.items()}
for name, run in {"roomy": roomy, "recompute": recomputed, "swap": returned}.items():
    same = all(record.tokens == texts[key] for key, record in run.requests.items())
    alike = all(record.finish_reason == ends[key] for key, record in run.requests.items())
    preempted = sum(record.preemptions for record in run.requests.values())
    print(f"{name:9} {len(run.steps):5}  {preempted:11}  {recomputed_tokens(run):10}  {same!s:11}  {alike}")
unlucky = max(recomputed.requests.values(), key=lambda record: record.preemptions)
print(f"{unlucky.request_id}, preemptions: {unlucky.preemptions}, text: {model.tokenizer.decode(unlucky.tokens)!r}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# In exact arithmetic, no: K and V of a token depend on the tokens before it and not on how they were batched. In float32 the scores differ in
# their last digits (notebook 03, section 5), and a draw changes only if it falls within such a hair of a border. In a 16-bit format it
# happens now and then, with recompute; with swap the bytes come back as they were.
#
# </details>
#
# Step through it: the crosses mark where somebody is thrown out.

# %% tags=["local"]
Player({"recompute": recomputed, "swap": returned}, start=20)

# %% [markdown]
# ## 6. Admission control: the two errors
#
# Preemption repairs what admission got wrong. Whoever let in every prompt that fits computed some forty thousand tokens twice (section 3). The opposite
# is to take for each request all it may ever need, and nobody is ever preempted. TGI does that, and TensorRT-LLM's default counts the
# same. In the package such a choice is a **reserve policy**. Its `claim` is a pair: tokens for which blocks are taken at the door, and
# blocks that must stay free beside them. Full need is `Claim(sequence.request.kv_need)`. The open door with a margin:

# %%
show_source(PromptOnly.claim)

# %% [markdown]
# The *watermark* keeps a share of the pool free for those who are in already (1 % in vLLM V0).
#
# **Predict, then run.** The 200 chats allow 2,048 tokens and write 338 on average. How much of the pool holds tokens if each reserves its
# limit? And where is the time lost with the open door?

# %%
doors = {"full need": FullNeed(), "prompt only": PromptOnly(), "watermark 5 %": PromptOnly(0.05)}
runs = {name: load(reserve=policy)[0] for name, policy in doors.items()}
show(pressure(runs, axis="seconds", width=8), pressure_alt(runs))
for name, run in runs.items():
    row = summarise(run)
    times = f"ITL p99 {1000 * row.itl_p99:.0f} ms, E2E p50 {row.e2e_p50:.0f} s (n={row.n})"
    print(f"{name:13}: {row.tokens_per_second:5.0f} tokens/s, {times}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# A fifth. Look in at a random moment, and a request has about 338 tokens written, not half of that, for the long answers are there
# longest; (161 + 338) of (161 + 2,048) is 23 %, and what is left of the pool is too small for one more. With the open door, time goes into
# prefills of tokens that were there already; each is a stall for all who run beside it, which is why ITL p99 is so high.
#
# </details>
#
# The two errors of article 2, seen. Above: the queue starves before a pool that is taken and empty. In the middle: a pool always full, and
# somebody thrown out again and again. Between them there is a knob, and there is something to be known: how long answers *are*.
#
# ### Two estimates
#
# **Profiled.** Keep the lengths of the last answers. Let a request in if there is room for everybody to reach the length that, say, half of them
# did not exceed; article 2's "distribuições de comprimento perfiladas e buffers de reserva".

# %%
show_source(Profiled.claim)

# %% [markdown]
# **A ratio that learns from its mistakes**, SGLang's. Assume that those who run will write a share of what they may still write. Begin high;
# take a little off in each step that goes well; jump after a preemption. It needs no history.

# %%
show_source(NewTokenRatio.step_done)

# %% [markdown]
# Each policy has one knob between the errors: the watermark, the quantile, the ratio to begin with (and its floor, 0.14 of that, as SGLang
# has it). We turn each. The profile starts with the lengths of 200 answers of "yesterday", which are others by the same law.

# %%
yesterday = [one.output_tokens for one in synthetic(200, output=exponential(mean=338, cap=LIMIT), seed=1)]


def profiled(quantile):
    policy = Profiled(quantile)
    policy.lengths.extend(yesterday)
    return policy


knobs = {
    "watermark": (PromptOnly, (0.02, 0.1, 0.2, 0.3)),
    "quantile": (profiled, (0.1, 0.3, 0.5, 0.7, 0.9)),
    "ratio": (lambda share: NewTokenRatio(share, 0.14 * share), (0.05, 0.2, 0.7)),
}
swept = {knob: [(value, load(reserve=make(value))[0]) for value in values] for knob, (make, values) in knobs.items()}
swept["watermark"] += [(0, runs["prompt only"]), (0.05, runs["watermark 5 %"])]
swept["watermark"].sort(key=lambda point: point[0])
swept["full need"] = [("", runs["full need"])]

# %%
fig, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for (knob, points), colour, mark in zip(swept.items(), [PALETTE[index] for index in (0, 1, 3, 5)], "osD^"):
    x = [100 * idle_while_waiting(run) for _, run in points]
    y = [100 * recomputed_tokens(run) / summarise(run).useful_tokens for _, run in points]
    ax.plot(x, y, mark + "-", color=colour, label=knob, ms=6)
    for at, (value, _) in enumerate(points):
        left = {"xytext": (-7, -3), "ha": "right"} if y[at] > 3 else {"xytext": (0, -13), "ha": "center"}
        place = {"watermark": left, "quantile": {"xytext": (5, 4)}}.get(knob, {"xytext": (3, 7)})
        ax.annotate(f"{value}", (x[at], y[at]), textcoords="offset points", size=8, color=colour, **place)
ax.set(xlabel="memory that holds no token while requests wait, %", ylabel="tokens recomputed for 100 written")
ax.set(xlim=(0, 85), ylim=(-6, 64))
ax.annotate("estimate too low:\npreemptions", (9, 50), size=9, color="#5F6368")
ax.annotate("estimate too high: an idle pool and a queue", (45, 5), size=9, color="#5F6368")
ax.legend(frameon=False, loc="upper right")
ax.spines[["top", "right"]].set_visible(False)
ends = [idle_while_waiting(runs[name]) for name in ("prompt only", "full need")]
words = "Tokens recomputed per 100 written over the share of memory that is empty while requests wait. Each knob draws a curve "
words += f"that falls steeply from its open end, at {ends[0]:.0%}, to 0 and runs out along the axis; full need is "
show(fig, words + f"at {ends[1]:.0%}.")

# %%
print("                  preemptions  recomputed  empty while waiting  tokens/s  ITL p99   E2E p50 (n=200)")
for knob, points in swept.items():
    for value, run in points:
        row, preempted = summarise(run), sum(len(step.preempted) for step in run.steps)
        said = f"{knob:10} {value:5}  {preempted:11}  {recomputed_tokens(run):10}  {idle_while_waiting(run):19.0%}"
        print(f"{said}  {row.tokens_per_second:8.0f}  {1000 * row.itl_p99:4.0f} ms  {row.e2e_p50:6.1f} s")
fresh, _ = load(reserve=Profiled(0.5))
print("quantile 0.5 without yesterday's lengths:", sum(len(step.preempted) for step in fresh.steps), "preemptions")

# %% [markdown]
# All curves are nearly one curve: what a policy lets in decides between the errors, whatever it is called. The best throughput lies where
# there are *some* preemptions. Thirty of them in 200 requests cost less than the memory that would prevent the last one; SGLang's tuning
# rule says the same in its own words (memory less than 90 % used and a queue: be bolder; frequent retractions: be more careful).
# And look at ITL p99: it goes on falling to the right, since fewer sequences enter beside you. A server with a tight bound on
# latency wants to stand further right than one that wants tokens.
#
# What the policies differ in is what they need to know. The watermark was right here because somebody tried six values on this very
# traffic. The quantile follows the traffic by itself, with one trap: the answers that end first are the short ones, so a *fresh* profile
# is too bold (last line). The ratio needs neither; it counts against the limits that clients set, 2,048 here, and is careful for that.

# %% [markdown]
# ## 7. Who may pass?
#
# First come, first served has a price: one large request at the head, and small ones that would fit wait behind it. Let them pass, and the
# large one may wait for ever. A pool of 10 blocks of 8. R0 holds 6 of them for 20 steps. BIG needs 8 and is next in line. From then on a
# request of one block comes with every step and stays for five.
#
# **Predict, then run.** When does BIG start, first come, first served? If whoever fits may pass? If 16 may pass, and then no more?

# %%
small = [request(f"S{i}", 1, 5, arrival=float(i)) for i in range(1, 401)]
crowd = [request("R0", 29, 20), request("BIG", 40, 25), *small]
print("who may pass      BIG starts in step   longest wait of a small one")
orders = {"nobody (fcfs)": "fcfs"} | {f"{most} times": SmallOnesPass(most) for most in (16, 64, 256)}
orders["no bound"] = SmallOnesPass(10**9)
for name, join in orders.items():
    run, _ = serve(crowd, PagedMemory(10, block_size=8), num_slots=16, join=join, reserve="full")
    first = {name: step.step for step in run.steps for name in step.admitted}
    longest = max(run.requests[one.request_id].first_scheduled - one.arrival for one in small)
    print(f"{name:16}  {first['BIG']:18}  {longest:16.0f} steps")

# %% [markdown]
# <details><summary>Answer</summary>
#
# In step 21, when R0 has gone. With no bound after step 400, when the stream of small ones ends; had it gone on, never. With a bound of n, BIG
# is passed n times, then the door stays shut until those inside have made room: a few steps after step n.
#
# </details>
#
# The same holds for **priorities** (`join="priority"`, and `lowest_priority` for the victims): a steady stream of important requests would shut
# the others out. In the package a request that was passed `max_passes` times goes before all others, whatever their priority. A bound like
# this is a *promise* one can write down, and a test can hold it.

# %% [markdown]
# ## 8. A bug to find: busy with the same prompts
#
# Chunked prefill (notebook 04) computes a prompt in pieces. So why not let a request in as soon as its *first piece* fits? The rest will
# find its place. This was a real bug (vLLM issue 21809), and as a reserve policy it is one line:


# %%
class FirstChunk(Reserve):
    """Blocks for the first chunk are enough to enter."""

    def __init__(self, chunk):
        self.chunk = chunk

    def claim(self, sequence, running, memory):
        return Claim(min(sequence.num_tokens, self.chunk))


# %% [markdown]
# A pool of 12 blocks of 4, chunks of 8 tokens. Three requests with prompts of 28 tokens (7 blocks) and answers of 12. One fits, two do not.
#
# **Predict, then run.** R1 has its seven blocks and decodes. Five are free. What does R2 do, and what does it do after that?

# %%
long_ones = [request(f"R{i}", prompt=28, output=12) for i in (1, 2, 3)]
thrash, _ = serve(long_ones, PagedMemory(12, 4), num_slots=2, mix=Chunked(8), reserve=FirstChunk(8))
show(slots(thrash, queue=False, width=8), alt(thrash))
print(caption(thrash))
print(f"{recomputed_tokens(thrash)} tokens computed again")

# %% [markdown]
# <details><summary>Answer</summary>
#
# R2 enters with two blocks, computes a second chunk, finds no room for the third, and is the newest: out. In the next step its first
# chunk fits again. It goes round like this until R1 ends; then R3 does it to R2. Each round computes tokens and throws them away.
#
# </details>
#
# In the picture the server never idles, and a graph of utilisation looks healthy. At a larger size, 30 blocks of 16, four requests with
# prompts of 300 and answers of 100 tokens:


# %%
def crowd_of_prompts(reserve, cap=None):
    """Preemptions, tokens computed again and steps. `cap`: the most one prompt gets of a step's 64 tokens."""
    prompts = [request(f"R{i}", prompt=300, output=100) for i in range(1, 5)]
    run, _ = serve(prompts, PagedMemory(30, 16), num_slots=8, mix=Chunked(64, cap), reserve=reserve)
    return sum(len(step.preempted) for step in run.steps), recomputed_tokens(run), len(run.steps)


wanted = 4 * (300 + 100 - 1)
print(f"{wanted} tokens are wanted")
for cap in (None, 16):
    for name, policy in {"first chunk": FirstChunk(cap or 64), "prompt only": PromptOnly()}.items():
        preempted, again, steps = crowd_of_prompts(policy, cap)
        print(f"chunk cap {cap!s:4}  {name}: {steps} steps, {preempted:3} preemptions, {again:5} tokens computed again")

# %% [markdown]
# Seven times the work that anybody wanted, and hardly a step is saved by it. The package's own policy takes blocks for the whole prompt at the door, and
# there is nothing to throw away. The bug has two halves, and it is easy to mend only the first. *(1)* A sequence may enter only if
# there is room for its **whole context**, not for its first chunk. *(2)* Those who entered before and are still in their prompts have
# a claim on free blocks too, though they may not have taken them yet; with the chunk cap several prompts are under way side by side, and this
# half shows. Exercise 3 is yours: write a `claim` that mends both.
#
# ## What you saw
#
# * Entering on the prompt alone fills the pool, and then somebody must give way. With 6 blocks, three requests take 21 steps and two
#   preemptions instead of 9 steps and none.
# * Which victim: nearly the same sum, other payers. The oldest is never one, so everybody ends, in any pool that fits one request.
# * Recompute costs arithmetic, whatever the block size. Swap costs transfers, and they are many when blocks are small: the lines cross near 16.
# * After a preemption the same tokens come, with a temperature too. The draw belongs to the token's index, not to the step.
# * Admission control moves between two errors, recomputing and an empty pool before a queue. The best throughput has a few preemptions.
# * A bound on passing is a promise; without one a large request waited 400 steps, and would wait for ever.
# * A chunk that fits is not a context that fits.
#
# So far attention over blocks was PyTorch, gathering what is scattered before it computes. A kernel reads the block table itself. That is
# the next notebook.
#
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. Solutions: `notebooks/solutions/07_preemption_and_admission.py`.
#
# **1.** Who gives way? `running` is a list of `(order, outputs, prompt, blocks)`: place in line, tokens written, tokens of the prompt,
# blocks held. `missing` blocks have to come free. Return the `order` of each victim, as they go, by SGLang's rule: fewest outputs first, among
# equals the longest prompt, then the newest. Never the oldest. Stop when enough blocks are free; if even all of them do not suffice, all go.
# About six lines.


# %%
def victims(running, missing):
    return None


# %%
attempt(check_victims, victims)

# %% [markdown]
# **2.** How much will they need? Suppose the lengths were known (a replayed trace, or a perfect estimate). `sequences` is a list of `(stored,
# left)`: positions held now, and tokens it has yet to write, at least one. In each step every sequence takes one position more, and
# whoever has written its last token gives everything back *after* that step. How many positions does the fullest step need? It is *less*
# than the sum of all needs, for some end before others have grown. SGLang admits by such a walk where it knows the lengths: this is
# article 2's "durante todo o seu tempo de vida", exactly. One to eight lines.


# %%
def peak_need(sequences):
    return None


# %%
attempt(check_peak_need, peak_need)

# %% [markdown]
# **3.** Mend section 8. Write `claim(sequence, running, memory)`, which returns a `Claim(tokens, keep_free)`, or a pair. You may use
# `sequence.num_tokens`, `len(sequence.block_table)`, `memory.blocks_for(tokens)`. The check runs it with and without a chunk cap: nobody may be
# without room while its context is being computed. Nor may you shut the door on those who would fit: the limit on the answer,
# `max_new_tokens`, is none of its business. You may do as `PromptOnly` does, in one line; or take blocks only as they are needed, in four.
# Which of the two promises more?


# %%
def claim(sequence, running, memory):
    return None


# %%
attempt(check_claim, claim)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`: the loop around `allocate_slots` in the first half of `schedule()` is our `Draft.compute`;
#   the victim is `self.running.pop()`, or the largest `(priority, arrival_time)` with `--scheduling-policy priority`. Recompute only. After
#   a preemption it admits nobody in that step. The fix of section 8 is `scheduler_reserve_full_isl` (on by default), the margin `watermark` (0.0 by default;
#   V0 had 0.01). Watch `vllm:num_preemptions_total`.
# * **SGLang**, `python/sglang/srt/managers/schedule_batch.py`: `retract_decode` picks the victims and computes the new ratio;
#   `schedule_policy.py`, `PrefillAdder`, admits with `new_token_ratio`. `--schedule-conservativeness` multiplies its start (0.7).
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`: `capacity_scheduler_policy`. GUARANTEED_NO_EVICT is our full need;
#   MAX_UTILIZATION lets in what fits the next step and pauses the last started.
# * **TGI**, `backends/v3/src/queue.rs` and `block_allocator.rs`: blocks for `input + max_new_tokens - 1` at the door, never a preemption; the pool is
#   `max_batch_total_tokens`. Where it cannot chunk, `waiting_served_ratio` (0.3) says how many must wait before a prefill may interrupt the decodes.
# * **transformers**, `src/transformers/generation/continuous_batching/scheduler.py`: `safety_margin` (0.15 of the blocks) is a watermark;
#   `offloading_manager.py` swaps to pinned memory where `cpu_offload_space` allows it, and otherwise makes a soft reset, its word for recompute.
#
# Next: [08 Paged attention in CUDA](08_paged_attention_cuda.ipynb).
