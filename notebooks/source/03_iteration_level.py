# %% [markdown]
# # 03 The batch that never closes: iteration-level scheduling
#
# About 25 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [02](02_static_batching.ipynb): what a static batch is, and what a dead slot. At the end you can say
#
# * what Orca saw in 2022, and the one loop that follows from it;
# * how a prefill and decodes go through the model in one step: **selective batching**, with shapes;
# * on which traffic this gains nothing, and on which it gains a lot;
# * what the "10 to 20 times" of article 1 is made of;
# * why the texts do not change.
#
# Previous: [02 Static batching](02_static_batching.ipynb) · Next: [04 Chunked prefill](04_chunked_prefill.ipynb)
#
# Articles: 1, "a observação que mudou tudo" and "o tamanho do ganho"; 3, "qual foi a contribuição do artigo sobre o Orca?" and "um
# exemplo de escalonamento". Lab: [2, write `schedule()`](labs/lab2.ipynb). Words: [glossary](GLOSSARY.md).

# %%
import asyncio
from collections import deque
from statistics import mean, median, pstdev
from unittest.mock import patch

import matplotlib.pyplot as plt

from minibatch import AsyncEngine, Engine, Request, SamplingParams, build_engine, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb03 import check_finish_steps, check_hard_queue, check_mean_live_slots
from minibatch.memory import ContiguousMemory
from minibatch.metrics import latency, summarise, tokens_sha256
from minibatch.model import kv_cache
from minibatch.plot import Player, alt, caption, show, show_source, slots, slots_text
from minibatch.plot.colours import PALETTE
from minibatch.schedulers import DynamicBatcher, IterationScheduler, Scheduler, StaticBatcher
from minibatch.schedulers.mix import WholePrefills
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import (
    azure_trace,
    bimodal,
    chat_prompts,
    equal,
    exponential,
    poisson,
    synthetic,
    to_requests,
    uniform,
)

# %% [markdown]
# ## 1. The observation
#
# A model does not process requests. It processes *steps*. In a step each sequence of the batch gets one token, and what a sequence needs
# in order to go on is not in the batch: it is in its own KV cache (notebook 00). Two sequences of a batch share nothing but the moment.
# So nothing says that they must end together, or begin together. That is the observation of Orca (Yu et al., OSDI 2022; Seoul National
# University and FriendliAI), and article 1 calls it obvious once said.
#
# Between two steps a server may therefore let out whoever has finished and let in whoever waits. The article's second C# listing does
# just that. Here it is in Python, with a request reduced to the number of tokens its answer still lacks:
#
# | article 1, second listing | what it says | below |
# |---|---|---|
# | `ativas` | who holds a slot | `active` |
# | saída: `s.Terminou`, `EntregarAsync`, `Remove` | who has finished leaves *now* | the first `for` |
# | admissão: `ativas.Count < SlotsMaximos` | while a slot is free | `len(active) < num_slots` |
# | `MemoriaLivreParaKvCache()` | and memory for its KV cache | left out here; `_fits` in section 2 |
# | `fila.TryReceber(out var nova)` | the next of the queue | `queue.popleft()` |
# | `Sequencia.Iniciar(nova)` | enters; this hides a whole prefill | `active[request] = length` |
# | `fila.AguardarAsync()`, `continue` | nobody here: wait | `if not active: continue` |
# | `ExecutarUmPassoDeDecode(ativas)` | one token for each | the last `for` |


# %%
def iteration_level(lengths, num_slots):
    """Steps in all, and the step in which each answer ends. `lengths` in tokens, in order of arrival."""
    queue, active, ends, step = deque(enumerate(lengths)), {}, {}, 0
    while queue or active:
        for request in [request for request, left in active.items() if left == 0]:
            ends[request] = step
            del active[request]  # its slot is free from this moment on
        while queue and len(active) < num_slots:
            request, length = queue.popleft()
            active[request] = length
        if not active:
            continue
        step += 1
        for request in active:
            active[request] -= 1
    return step, ends


# %% [markdown]
# Compare it with `static_batch` of notebook 02: that had a loop in a loop, one batch after the other. Here there is one loop, and the words
# "open" and "close" have no place in it.
#
# **Predict, then run.** Article 3's example: two slots; A needs 2 steps, B needs 4, C waits with 2. A static batch ends C in step 6. And
# now?

# %%
steps, ends = iteration_level([2, 4, 2], num_slots=2)
print(f"{steps} steps; A, B, C end in steps {list(ends.values())}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# In step 4. A ends in step 2, C takes A's slot in step 3 and ends together with B. The printed order is the order of ending.
#
# </details>

# %% [markdown]
# ## 2. The same in the package
#
# `IterationScheduler` leaves to a *mix policy* what a step contains; notebook 04 has three of them. This one is the article's, and the
# default. `draft` is the step being put together; `compute` adds a sequence to it, `admit` lets in the next of the queue:

# %%
show_source(WholePrefills.fill)

# %% [markdown]
# Behind `draft.admit` stands the article's *admissão*, with its two conditions: a slot, and memory (`_fits` asks for it). Nobody may pass
# the head of the queue here (`may_pass`), and nothing is ever `preempted`; both are stories of notebook 07.

# %%
show_source(IterationScheduler.admit_one)

# %% [markdown]
# And `leave` is its *saída*, called as soon as a last token is known:

# %%
show_source(Scheduler.leave)

# %% [markdown]
# `StaticBatcher` (notebook 02) differs in two places: it lets nobody in while anybody is running, and its `leave` waits for the last.
# That is the whole difference between the two servers. A, B and C again, through the engine:


# %%
def serve(scheduler, lengths):
    """The trace of a run, everybody there at the start. `lengths`: request id to tokens of its answer."""
    requests = [Request(name, prompt=(1,), sampling=SamplingParams(length)) for name, length in lengths.items()]
    return Engine(scheduler, ScriptedExecutor()).run(requests)


toy = [serve(each(max_num_seqs=2), {"A": 2, "B": 4, "C": 2}) for each in (StaticBatcher, IterationScheduler)]
print(slots_text(toy))

# %%
show(slots(toy, width=7), alt(toy))
print(caption(toy))

# %% [markdown]
# ## 3. Side by side on a real model
#
# The 24 requests of notebook 02, all there at the start, on 8 slots. Same model, same requests; only the scheduler changes.
#
# **Predict, then run.** The static batcher took 192 steps, 650 of its 1536 slot-steps dead. The answers have 886 tokens in all. What is
# the least number of steps that 8 slots could need?
#
# <details><summary>Answer</summary>
#
# 886 / 8 = 110.75, so 111 steps, if all eight slots were live to the very end. It takes some more: when the queue is empty and the last
# answers run out, slots stay empty, and no scheduler can fill them.
#
# </details>

# %%
model = load_model("smollm2")
requests = [model.request(name, text, max_new_tokens=64) for name, text in chat_prompts("smollm2")]
iteration = build_engine(model, "iteration", max_num_seqs=8, max_model_len=128).run(requests)

# %% [markdown]
# To save time the static and the dynamic batcher do not run the model here: they serve the same requests from the tokens written above,
# which their executor replays. (Notebook 02 ran the static one for real, section 5 runs both.)

# %%
written = {name: record.tokens for name, record in iteration.requests.items()}
replay = ScriptedExecutor(written, vocab_size=model.config.vocab_size)
static = Engine(StaticBatcher(max_num_seqs=8), replay).run(requests)
dynamic = Engine(DynamicBatcher(max_num_seqs=8), replay).run(requests)
runs = [static, dynamic, iteration]
show(slots(runs), alt(runs))
print(caption(runs))

# %% [markdown]
# The dynamic batcher does what the static one does. In a burst its window never matters: there are always eight in the queue. The
# iteration-level scheduler has no grey in its picture. Follow slot 1: R2 says "No." in three steps, and in step 4 R9 sits in its place.
#
# Run the next cell to step through both at once; the arrow keys move the slider.

# %% tags=["local"]
Player([static, iteration], start=40)

# %% [markdown]
# The queue is served in the order in which it came, first come, first served: nobody overtakes. The static batcher hands out first
# tokens in three waves, this one all the time:

# %%
admitted = [name for step in iteration.steps for name in step.admitted]
print("admitted in order of arrival:", admitted == list(iteration.requests))
print("first token in step...")
for run in (static, iteration):
    first = {name: step.step for step in run.steps for name in step.admitted}
    print(f"{run.scheduler:9}", *(f"{first[name]:3}" for name in run.requests))

# %% [markdown]
# ## 4. One step of two kinds: selective batching
#
# In step 4 above, R9's prompt of 37 tokens is computed beside one token of each of seven others. How can one pass of the model do both?
# Orca's second idea: all tokens of the step lie end to end in one matrix `[total tokens, hidden]`. Every layer but attention treats rows
# alone, so it neither knows nor cares whose they are. Only attention looks at one sequence at a time.
#
# Watch one such step. A, B and C are decoding, then D arrives. `patch` looks over the shoulder of the first layer's product for
# queries, keys and values, and of the attention function:

# %%
memory = ContiguousMemory(num_positions=4 * 64, max_model_len=64)
executor = model.executor(memory, batched_decode=False)  # attention one sequence at a time
engine = Engine(IterationScheduler(4, memory), executor)
for name, text in [("A", "Name a fruit."), ("B", "Count to twenty."), ("C", "Tell me a joke.")]:
    engine.submit(model.request(name, text, max_new_tokens=20))
for _ in range(3):
    engine.step()
engine.submit(model.request("D", "What is the capital of France?", max_new_tokens=20))
layer = model.llama.layers[0]
with (
    patch.object(layer, "qkv", wraps=layer.qkv) as qkv,
    patch.object(kv_cache, "attention", wraps=kv_cache.attention) as attention,
):
    record = engine.step()

# %%
print("the matrix of the step [total tokens, hidden]:", list(qkv.call_args.args[0].shape))
print("attention, sequence by sequence:")
for work, call in zip(record.live, attention.call_args_list):
    q, k, v = (list(argument.shape) for argument in call.args)
    print(f"{work.request_id} computes [{work.start}, {work.start + work.count}): q {q}  k {k}  v {v}")

# %% [markdown]
# One matrix of 40 rows went through all weights of the layer: 37 rows of D and one each of A, B and C. In attention each sequence looked
# at its own context and at nothing else. (q has 9 heads and k and v have 3: grouped-query attention.) As a padded rectangle the step would
# have been 4 rows × 37 tokens.
#
# This is also where D's arrival costs the others something: the step computes 40 tokens instead of 3. Remember it for the end.

# %% [markdown]
# ## 5. The same text, whatever the batch
#
# If sequences share nothing but the moment, the scheduler must not change what they say. `tokens_sha256` is a fingerprint of every token of
# every answer. The six shortest through each of the three batchers on 3 slots, and one at a time:

# %%
short = sorted(requests, key=lambda request: len(written[request.request_id]))[:6]
for scheduler, num_slots in [("static", 3), ("dynamic", 3), ("iteration", 3), ("iteration", 1)]:
    run = build_engine(model, scheduler, max_num_seqs=num_slots, max_model_len=128).run(short)
    print(f"{scheduler:9}  6 requests on {num_slots} slots  {tokens_sha256(run)[:16]}")

# %% [markdown]
# Two conditions stand behind that. The run is **greedy**, so that the choice depends on the scores alone; and it is in **float32**. The
# scores of a sequence are not the same to the last bit in every batch: a product of another shape adds up in another order. In float32
# the difference is tiny against the lead that the best token has. In a 16-bit format it is far larger, near ties do tip, and from there
# on the texts part. Look at the scores of R1's first token, alone and in a batch of eight:


# %%
def first_scores(some):
    """Scores [vocabulary] of the first token of the first request of a batch."""
    engine = build_engine(model, "iteration", max_num_seqs=8, max_model_len=128)
    for request in some:
        engine.submit(request)
    with patch.object(model.llama, "logits", wraps=model.llama.logits) as logits:
        engine.step()
    return model.llama.logits(logits.call_args.args[0])[0]


alone, in_batch = first_scores(requests[:1]), first_scores(requests[:8])
best, second = alone.topk(2).values.tolist()
print("largest difference below 0.001:", (alone - in_batch).abs().max().item() < 1e-3)
print(f"lead of the best token over the next: {best - second:.1f}")

# %% [markdown]
# ## 6. How much is gained? It depends on the lengths
#
# Article 1: the gain comes from the *variance* of the lengths. Count steps for both schedulers over long queues of answers. The static
# one takes the longest answer of each batch; for the other run `iteration_level` of section 1.


# %%
def gain(lengths, num_slots):
    """Steps of the static batcher over steps of the iteration-level scheduler."""
    static = sum(max(lengths[i : i + num_slots]) for i in range(0, len(lengths), num_slots))
    return static / iteration_level(lengths, num_slots)[0]


def outputs(law, n=4000):
    return [one.output_tokens for one in synthetic(n, output=law)]


laws = {"all 64": outputs(equal(64)), "uniform, 1 to 128": outputs(uniform(1, 128))}
laws["20 or 900, half each"] = outputs(bimodal(20, 900, share=0.5), n=1000)
laws["exponential, mean 128"] = outputs(exponential(mean=128, cap=1536))
laws["Azure conversation"] = [one.output_tokens for one in azure_trace("conv")[:4000]]
laws["Azure code"] = [one.output_tokens for one in azure_trace("code")]
spread = {name: pstdev(lengths) / mean(lengths) for name, lengths in laws.items()}
gains = {name: [gain(lengths, size) for size in (8, 32)] for name, lengths in laws.items()}

# %% [markdown]
# **Predict, then run.** For which of the six lists is the gain 1.0, for which the largest, and which come below 2?

# %%
print("lengths of answers     deviation / mean   gain on 8 slots   on 32")
for name in sorted(laws, key=spread.get):
    print(f"{name:21}  {spread[name]:16.2f}  {gains[name][0]:16.1f}  {gains[name][1]:6.1f}")

# %%
order = sorted(laws, key=spread.get)
fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
for index, (size, colour) in enumerate([(8, PALETTE[0]), (32, PALETTE[1])]):
    ax.plot([gains[name][index] for name in order], order, "os"[index], color=colour, label=f"{size} slots")
ax.hlines(order, *zip(*(gains[name] for name in order)), color="#9AA0A6", zorder=0)
ax.set(xlim=(0.8, 8.2), xlabel="steps static / steps iteration-level", ylim=(-0.5, 5.5))
ax.set_yticks(range(6), [f"{name}   deviation / mean = {spread[name]:.2f}" for name in order])
ax.legend(frameon=False, loc="lower right")
ax.spines[["top", "right"]].set_visible(False)
show(
    fig,
    "Gain in steps for six lists of lengths in order of their spread, on 8 and on 32 slots: 1 for equal "
    "lengths, below 2 for uniform and for two lengths, up to 4 for exponential, 8 for Azure code on 32 slots.",
)
print("On 32 slots:", "; ".join(f"{name} {gains[name][1]:.1f}" for name in order))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Equal lengths gain nothing: a static batch wastes nothing on them. Uniform lengths stay below 2 on any number of slots, since the longest
# answer is less than twice the mean. So do {20, 900} in equal shares (900 / 460 is 1.96), dramatic as the single batch looks. Azure's code
# completions, a dozen tokens mostly and now and then a thousand, gain the most.
#
# </details>
#
# The picture is not a single line: deviation over mean tells most of it, but what counts is how far the longest of a batch lies above the
# mean (notebook 02, the dead-slot factor).

# %% [markdown]
# ## 7. What "10 to 20 times" is made of
#
# Dead slots alone give 1.0 to 8 times in the table above, and notebook 02 had 12 for Azure code on 64 slots. The numbers one reads are
# often larger, because they measure something else as well: **waiting**. Let requests *arrive*, at random, and ask how fast an answer comes: its E2E time divided by its tokens, which is 1 step per token on an idle server. Outputs as in Orca's experiment, uniform
# from 1 to 128; 8 slots; a dynamic batcher that never waits on purpose.


# %%
def typical_latency(scheduler, rate):
    """Median over requests of E2E / tokens, in steps, with `rate` requests arriving per step."""
    plan = synthetic(200, output=uniform(1, 128), arrivals=poisson(rate), seed=0)
    run = Engine(scheduler, ScriptedExecutor()).run(to_requests(plan, vocab_size=100))
    return median(latency(record).e2e / len(record.tokens) for record in run.finished)


rates = [0.005, 0.0075, 0.01, 0.02, 0.04, 0.05, 0.06, 0.07, 0.09, 0.1, 0.11, 0.12]
curves = {
    "dynamic": [typical_latency(DynamicBatcher(8, max_wait=0), rate) for rate in rates[:8]],
    "iteration": [typical_latency(IterationScheduler(8), rate) for rate in rates],
}

# %%
fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
for (name, curve), colour, place in zip(curves.items(), (PALETTE[0], PALETTE[1]), [(1.2, 1.8), (8.3, 1.08)]):
    ax.plot([100 * rate for rate in rates[: len(curve)]], curve, "o-", color=colour, ms=4)
    ax.text(*place, name, color=colour)
ax.hlines([1.2, 1.5, 2.0], 0, 13, color="#9AA0A6", linestyles="dotted")
ax.set(xlim=(0, 12.5), xlabel="requests arriving per 100 steps")
ax.set(ylim=(0.9, 2.6), ylabel="median E2E / tokens, in steps")
ax.spines[["top", "right"]].set_visible(False)
show(
    fig,
    "Median E2E time per token against the arrival rate: the dynamic batcher rises at once from 1 "
    "towards 2 and leaves the picture near 7 requests per 100 steps; iteration-level stays at 1 "
    "until 10 and turns up after it. Dotted lines: three latency bounds.",
)

# %%
print("latency bound   highest rate: dynamic   iteration   ratio")
for bound in (1.2, 1.5, 2.0):
    highest = {name: max(r for r, y in zip(rates, curve) if y <= bound) for name, curve in curves.items()}
    low, high = highest["dynamic"], highest["iteration"]
    print(f"{bound:13}  {100 * low:22.1f}  {100 * high:10.1f}  {high / low:6.1f}")

# %% [markdown]
# Same schedulers, same lengths, same slots: the ratio is 12 or 2, depending on where the line is drawn. (12 requests
# per 100 steps is the highest rate tried; eight slots cannot carry more than 800 / 64.5 = 12.4.) A dynamic batcher makes a new
# request wait for the batch in the oven even at a low load, so under a strict bound it can hardly be used at all. "X times at the same
# latency" is a statement about the bound as much as about the scheduler.
#
# Now the published figures, each with what it compares:
#
# | figure | what was measured | what is in it |
# |---|---|---|
# | 36.9 times, Orca (OSDI 2022) | highest request rate at one latency bound (190 ms per token, twice the unloaded value): 6.81 against 0.185 requests/s of FasterTransformer; GPT-3 175B on 16 A100, outputs uniform from 1 to 128 | waiting at a bound, as above, and larger batches within it; dead slots alone give less than 2 on these lengths; the engine itself was up to 47 % faster on this model |
# | the gain is small, Orca | the same with all requests equally long | no variance, no dead slots: our "all 64" |
# | 23 times, Anyscale (2023) | tokens/s of vLLM against naive static batching, OPT-13B; outputs exponential with mean 128, at most 1536 | prompt *and* output tokens are counted; a baseline of Hugging Face code, slow in itself (a faster static engine, FasterTransformer, is 4 times as fast); paged memory, which allows more slots |
# | 8 times, Anyscale | the same for two servers with continuous batching, TGI and Ray Serve, as of 2023 | scheduling and implementation, without vLLM's memory management |
# | 10 to 20 times, article 1 | a summary of such figures | at saturation, dead slots explain 1 (equal) to 12 (Azure code, 64 slots); the rest is waiting at a latency bound, memory, implementation |
#
# So the article is right in kind, no computation became faster and the gain is waiting that has gone away, and the size is a property of
# *your* lengths, *your* load and *your* bound. Article 2's "close to the theoretical maximum" is the promise to be careful with: a full
# slot is not yet a busy GPU, and an empty queue fills no slot.
#
# Sources: Yu et al., OSDI 2022; Anyscale, "How continuous batching enables 23x throughput in LLM inference", 2023, and its benchmark code.

# %% [markdown]
# ## 8. With arrivals: who waits where
#
# The 12 requests of notebook 02, section 5, through all three schedulers: four slots, 20 ms a step, simulated time.

# %%
light = to_requests(synthetic(12, output=uniform(4, 40), arrivals=poisson(rate=6), seed=2), vocab_size=100)
schedulers = (
    StaticBatcher(max_num_seqs=4),
    DynamicBatcher(max_num_seqs=4, max_wait=0.1),
    IterationScheduler(max_num_seqs=4),
)
flow = [Engine(scheduler, ScriptedExecutor(seconds_per_step=0.02)).run(light) for scheduler in schedulers]
show(slots(flow, axis="seconds"), alt(flow))

# %%
print("scheduler  steps  mean live slots  TTFT p50   p95  E2E p50   p95 (n=12)")
for run in flow:
    row = summarise(run)
    times = f"{row.ttft_p50:8.2f}  {row.ttft_p95:.2f}  {row.e2e_p50:7.2f}  {row.e2e_p95:.2f}"
    print(f"{row.scheduler:9}  {row.steps:5}  {row.mean_live_slots:15.2f}  {times}")

# %% [markdown]
# In the third panel a request starts in the step after it came, while there is a slot. There is no window to tune. Under this light load
# the steps are emptier than full, and that is fine: the point is that nobody waits for somebody else's answer while a slot is free. Under a load above what the slots carry,
# the queue grows here as everywhere; scheduling creates no capacity beyond the slots (article 3, "com pouca e muita demanda").

# %% [markdown]
# ## 9. Clients that come and go
#
# So far we handed the engine a list. A server's clients come when they like, read their answer token by token, and some leave in the
# middle. Article 1 names the pattern: producer and consumer, where the consumer has N slots (`fila.ReceberAsync`, `EntregarAsync`).
# `AsyncEngine` is that front. One task runs the loop you know, each step in a thread so that the clients are served meanwhile; whoever
# comes or goes is let in or out between two steps.
#
# **Predict, then run.** Three clients, two slots. B hangs up after three tokens. Who gets B's slot, and does the engine finish B's answer?


# %%
async def client(server, name, text, leaves_after=None):
    """Reads its stream to the end, or hangs up; says what it got."""
    tokens = []
    async for token in server.stream(model.request(name, text, max_new_tokens=12)):
        tokens.append(token)
        if len(tokens) == leaves_after:
            break
    return f"{name} got {len(tokens)} tokens: {model.tokenizer.decode(tokens)!r}"


async def serve_three():
    async with AsyncEngine(build_engine(model, max_num_seqs=2, max_model_len=128)) as server:
        a = client(server, "A", "What is the capital of France?")
        b = client(server, "B", "Tell me a joke.", leaves_after=3)
        c = client(server, "C", "Name a fruit.")
        print(*await asyncio.gather(a, b, c), sep="\n")
        print("ended by:", {name: record.finish_reason for name, record in server.engine.trace.requests.items()})


await serve_three()

# %% [markdown]
# <details><summary>Answer</summary>
#
# C. B's request is *aborted* as soon as its client has gone: the next step is made without it, and its slot and its K/V positions go
# to C. A server that does not notice would write B's answer to the end for nobody.
#
# </details>
#
# A client that stays but stops reading is aborted too, once `max_unread` tokens wait for it; its neighbours never wait for it.
# `Engine.stream` (notebook 00) is the same without asyncio.

# %% [markdown]
# ## What you saw
#
# * Sequences of a batch share nothing but the step, so the batch need not close. Exit, admission, step: one loop.
# * A=2, B=4, C=2 on two slots: C ends in step 4 instead of 6. 24 real answers on 8 slots: 128 steps instead of 192, no dead slot-steps.
# * Clients come and go between two steps; who hangs up is aborted and gives back slot and memory.
# * Selective batching packs a prefill and decodes into one matrix; only attention looks at sequences.
# * Float32 and greedy, all schedulers write the same tokens, and so does one slot.
# * In steps at saturation the gain is 1.0 for equal lengths, below 2 for uniform ones, about 8 for Azure code on 32 slots. At a
#   latency bound it can be far more, and depends on the bound.
#
# **And what does it cost?** Two conditions guard the door: a slot, and memory. And when somebody enters, the step grows:

# %%
sizes = {step.step: sum(work.count for work in step.live) for step in iteration.steps[1:]}
largest = max(sizes, key=sizes.get)
entered = " ".join(iteration.steps[largest - 1].admitted)
usual = median(sizes.values())
print(f"tokens computed in a step: {usual:.0f} mostly, {sizes[largest]} in step {largest}, when {entered} enter")

# %% [markdown]
# The five others in that step got their next token late, because three prompts went through the model with theirs. Had the prompts been of
# 4,000 tokens, how long would they have stalled? That is notebook 04. And who says that there is memory for everyone who fits a slot, when
# nobody knows how long the answers will be? That is notebook 05.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it says
# "NOT YET". Solutions: `notebooks/solutions/03_iteration_level.py`.
#
# **1.** In which step does each answer end? Iteration-level, first come, first served. `lengths` are the answers' tokens; `arrivals`, in
# order, are in steps: a request with arrival 5 comes when 5 steps have gone by, and may take part in step 6. The clock ticks on when nobody
# is there. Return a list in order of arrival. About twelve lines, or four with `heapq`.


# %%
def finish_steps(lengths, arrivals, num_slots):
    return None


# %%
attempt(check_finish_steps, finish_steps)

# %% [markdown]
# **2.** How many slots are live on average, over all steps of a run with everybody there at the start? You may use `iteration_level` as it
# stands in section 1, or your answer to 1. About three lines.


# %%
def mean_live_slots(lengths, num_slots):
    return None


# %%
attempt(check_mean_live_slots, mean_live_slots)

# %% [markdown]
# **3.** Build a queue on which the static batcher needs at least *ten times* the steps of the iteration-level scheduler, for any
# `num_slots` from 12 to 64. At most 5,000 answers of 1 to 5,000 tokens, in order of arrival. About two lines, and a moment's thought:
# where should the long ones stand?


# %%
def hard_queue(num_slots):
    return None


# %%
attempt(check_hard_queue, hard_queue)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`: `schedule()` first walks `self.running`, then `self.waiting`, with one token budget;
#   `update_from_output()` is our `update`. `max_num_seqs` is the number of slots.
# * **SGLang**, `python/sglang/srt/managers/scheduler.py`: `get_next_batch_to_run()` merges the last prefill into the running batch and asks
#   for a new prefill; by default a step is prefill or decode, not both. Admission is `PrefillAdder` in `schedule_policy.py`.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp` (who may hold memory) and `microBatchScheduler.cpp` (who
#   runs). It calls the technique in-flight batching and packs its tensors as section 4 does.
# * **Triton**: its dynamic batcher does not do this; `sequence_batching` with `iterative_sequence: true` does, and so does the
#   TensorRT-LLM backend inside it.
# * **transformers**, `src/transformers/generation/continuous_batching/scheduler.py`: `FIFOScheduler`, small enough to read next.
#
# Next: [04 Chunked prefill](04_chunked_prefill.ipynb): how a long prompt enters without a stall.
