# %% [markdown]
# # 02 The baking tray: static and dynamic batching
#
# About 25 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [00](00_start_here.ipynb) and, for why there is a batch at all, [01](01_why_batch.ipynb). At the end you can say
#
# * what a static batch does when its answers end at different times: **dead slots**, counted;
# * what unequal prompts cost in it: **padding**, counted;
# * what a dynamic batcher's **window** buys, what it costs, and whose clock it is;
# * how large the waste gets, from the lengths of the answers alone: the **dead-slot factor**.
#
# Previous: [01 Why batch](01_why_batch.ipynb) · Next: [03 Iteration level](03_iteration_level.ipynb)
#
# Articles: 1, "o jeito antigo: o lote como fornada"; 2, "por que o lote estático falhou?"; 3, "batching estático, dinâmico e contínuo".
# Lab: [1, the static batcher](labs/lab1.ipynb). Words: [glossary](GLOSSARY.md).

# %%
from collections import deque
from random import Random
from unittest.mock import patch

import matplotlib.pyplot as plt

from minibatch import Engine, Request, SamplingParams, build_engine, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb02 import check_closings, check_dead_slot_steps, check_expected_longest
from minibatch.metrics import dead_slot_factor, summarise
from minibatch.plot import Player, alt, caption, show, show_source, slots, slots_text
from minibatch.plot.colours import PALETTE
from minibatch.schedulers import DynamicBatcher, StaticBatcher
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import (
    Planned,
    azure_trace,
    chat_prompts,
    equal,
    exponential,
    poisson,
    synthetic,
    to_requests,
    uniform,
)

# %% [markdown]
# ## 1. The tray, from nothing
#
# Article 1 opens with a supermarket till that serves eight customers at a time and calls nobody else until all eight have paid. The
# first language model servers were built like that, and the article's first C# listing is what most of us would write on the first day:
# collect requests until the batch is full or a deadline passes, start them all, wait for *all* of them, and only then look at the queue
# again. Here it is in Python, with a request reduced to the one thing that matters now: how many tokens its answer still lacks.
#
# | article 1, first listing | what it says | below |
# |---|---|---|
# | `lote`, `new List<Requisicao>()` | an empty tray | `batch = {}` |
# | `lote.Count < TamanhoDoLote` | while there is room on it | `len(batch) < num_slots` |
# | `await fila.ReceberAsync()` | take the next from the queue | `queue.popleft()` |
# | `prazoEstourou` | stop hoping for more | an empty queue; section 5 has the real deadline |
# | `GerarRespostaCompletaAsync`, `Task.WhenAll` | bake until the *last* is done | `while any(batch.values())` |
# | the comment on its last line | now the queue moves again | the outer `while queue` |


# %%
def static_batch(lengths, num_slots):
    """Steps, dead slot-steps, and the step in which each answer ends. `lengths` in tokens, in order of arrival."""
    queue, ends, step, dead = deque(enumerate(lengths)), {}, 0, 0
    while queue:
        batch = {}
        while queue and len(batch) < num_slots:
            request, length = queue.popleft()
            batch[request] = length
        while any(batch.values()):  # until ALL are done: the answer of 20 waits for the one of 900
            step += 1
            for request, left in batch.items():
                if left == 0:
                    dead += 1  # this row is computed, and nobody wants it
                    continue
                batch[request] = left - 1
                if left == 1:
                    ends[request] = step
    return step, dead, ends


# %% [markdown]
# **Predict, then run.** Article 1's example: one answer of 20 tokens and one of 900 share a batch. How many steps does the batch take,
# from which step on is the short one's slot dead, and for how many steps?
#
# <details><summary>Answer</summary>
#
# 900 steps, as many as the longest answer. The short answer ends in step 20, so its slot is dead from step 21 on, for 880 steps.
#
# </details>

# %%
steps, dead, ends = static_batch([20, 900], num_slots=2)
print(f"{steps} steps, {dead} dead slot-steps, answers end in steps {list(ends.values())}")

# %% [markdown]
# A **dead slot-step** is one slot for one step, held by an answer that has ended. A slot that nobody holds is *empty*, which is something
# else: it is free to be given away.

# %% [markdown]
# ## 2. The same in the package
#
# `StaticBatcher` is that function, cut where an engine needs a cut. An engine asks its scheduler for *one step at a time*, so the loops
# are gone. What is left of them: a batch is admitted only when nothing is running, and nobody leaves before all are finished.

# %%
show_source(StaticBatcher)

# %% [markdown]
# The loop itself is the engine's, and the same for every scheduler of this course: schedule, execute, update, record.

# %%
show_source(Engine.step)


# %% [markdown]
# `ScriptedExecutor` stands in for a model where only lengths matter: every step takes one second and every sequence gets some token.


# %%
def serve(batcher, lengths):
    """The trace of a run, everybody there at the start. `lengths`: request id to tokens of its answer."""
    requests = [Request(name, prompt=(1,), sampling=SamplingParams(length)) for name, length in lengths.items()]
    return Engine(batcher, ScriptedExecutor()).run(requests)


tray = serve(StaticBatcher(max_num_seqs=2), {"short": 20, "long": 900})
show(slots(tray), alt(tray))
print(caption(tray))
print("first dead step:", next(record.step for record in tray.steps if record.dead))

# %% [markdown]
# **Predict, then run.** Article 3's example: two slots; A needs 2 steps, B needs 4, and C waits in the queue with 2. In which step does C
# end? How many slot-steps are dead, and how many are empty?

# %%
print(slots_text(serve(StaticBatcher(max_num_seqs=2), {"A": 2, "B": 4, "C": 2})))

# %% [markdown]
# <details><summary>Answer</summary>
#
# C ends in step 6: it has to wait for B. Slot 0 is dead in steps 3 and 4, held by A. Slot 1 is empty in steps 5 and 6: nobody is left
# to take it. C could have run in slot 0 in steps 3 and 4; notebook 03 lets it.
#
# </details>

# %% [markdown]
# ## 3. On a real model
#
# Nothing so far depended on a model. Now 24 chat requests go to SmolLM2, all at once, through 8 slots. Each answer ends when the model
# says so, at 64 tokens at the latest. Steps are counted here, not seconds.
#
# **Predict, then run.** 24 requests on 8 slots are three batches. In each of them at least one answer runs to 64 tokens. How many
# steps in all? Does it matter what the other answers do?
#
# <details><summary>Answer</summary>
#
# 3 × 64 = 192 steps, and no: a batch takes as long as its longest answer, be the others of 3 tokens or of 63.
#
# </details>

# %%
model = load_model("smollm2")
requests = [model.request(name, text, max_new_tokens=64) for name, text in chat_prompts("smollm2")]
real = build_engine(model, "static", max_num_seqs=8, max_model_len=128).run(requests)
print(caption(real))

# %%
Player(real, start=len(real.steps))

# %% [markdown]
# (Run the cell for a slider; the arrow keys move it, and ▶ plays the run from its start.) Grey is dead: the model really computes these
# rows, the last token of a finished answer over and over, and throws the result away.

# %%
summary = summarise(real)
slot_steps = summary.steps * real.num_slots
wanted, dead = summary.useful_tokens, summary.dead_slot_steps
print(f"{slot_steps} slot-steps = {wanted} tokens that somebody wanted + {dead} dead ({dead / slot_steps:.0%})")

# %% [markdown]
# A graph of GPU utilisation would not show it: the machine is busy in all 192 steps. What counts is how much of the work somebody wanted
# (article 3, "por que o throughput aumenta").
#
# Who suffers? Look at R2, whose answer has 3 tokens, and at R10, the request that gets the same slot after it:

# %%
for name in ("R2", "R10"):
    live = [record.step for record in real.steps for work in record.live if work.request_id == name]
    dead = [record.step for record in real.steps for work in record.dead if work.request_id == name]
    answer = model.tokenizer.decode(real.requests[name].tokens)
    print(f"{name}: {answer!r}")
    print(f"    tokens in steps {live[0]} to {live[-1]}, slot dead in steps {dead[0]} to {dead[-1]}")

# %% [markdown]
# R2's client may have had its three tokens after three steps, *if* the server streams: a static batch can hand out tokens as they come
# (article 3: "streaming é outra questão"). With `Task.WhenAll`, which returns whole answers together, even R2 waits for step 64. In
# either case the slot stays taken, and R10, there from the start, gets its first token in step 65. What waits is the queue.

# %% [markdown]
# ## 4. Padding: a rectangle has one length
#
# A static batch has a second cost. Its prompts are computed together as a rectangle, `[rows, longest]`, and the shorter ones are
# filled up. Three short prompts show it; `patch` looks over the shoulder of the model's `forward`:

# %%
texts = {"A": "Paris is", "B": "One, two, three, four, five, six,"}
texts["C"] = "The opposite of hot is cold. The opposite of big is"
encode = model.tokenizer.encode
ragged = [Request(name, encode(text), SamplingParams(max_new_tokens=8)) for name, text in texts.items()]
with patch.object(model.llama, "forward", wraps=model.llama.forward) as forward:
    together = build_engine(model, "static", max_num_seqs=3, max_model_len=32).run(ragged)
tokens, positions, attend = forward.call_args_list[0].args
print("tokens computed in step 1:", list(tokens.shape), "= rows x longest =", attend.shape)

# %%
for request, ids in zip(ragged, tokens.view(attend.shape).tolist()):
    print(f"{request.request_id}, {len(request.prompt):2} tokens:", *(f"{token:5}" for token in ids))
print("positions:   ", *(f"{position:5}" for position in positions.view(attend.shape)[0].tolist()))
print("padding:", together.steps[0].padding_tokens, "of", tokens.numel())

# %% [markdown]
# A has 2 tokens, and the model computes 12 for it: every zero goes through all 30 layers. The zeros stand on the *right*. A token looks only
# backwards, so no real token ever sees one, each row counts its positions from 0, and its answer starts from its own last real token. The
# zeros' K and V are not kept. (Servers that take the rectangle's last column for everybody have to pad on the left and mask.)
#
# **Predict, then run.** Does A write the same text with ten zeros behind it as alone?

# %%
alone = build_engine(model, "static", max_num_seqs=1, max_model_len=32).run(ragged)
for name, text in texts.items():
    record = together.requests[name]
    same = record.tokens == alone.requests[name].tokens
    print(f"{text!r} -> {model.tokenizer.decode(record.tokens)!r}; the same alone: {same}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Yes, token for token. Padding done right costs work and changes nothing; padding done wrong (positions that count the zeros, attention
# that sees them) changes the text, and is a well-known bug.
#
# </details>
#
# The 24 chat prompts are of similar length, thanks to the template around them, so they lose little:

# %%
for record in real.steps:
    if record.admitted:
        tokens = [work.count for work in record.live]
        print(f"step {record.step:3}: {len(tokens)} rows x {max(tokens)}, the shortest prompt has {min(tokens)}")
print(f"padding in all: {summarise(real).padding_tokens} tokens")

# %% [markdown]
# On production prompts it is another story. The same rectangle over the prompts of the Azure 2023 traces, eight at a time as they came:

# %%
for name in ("conv", "code"):
    prompts = [one.prompt_tokens for one in azure_trace(name)]
    trays = [prompts[i : i + 8] for i in range(0, len(prompts), 8)]
    computed = sum(len(tray) * max(tray) for tray in trays)
    print(f"Azure {name}: {computed / sum(prompts):.1f} tokens computed for each prompt token")

# %% [markdown]
# ## 5. The dynamic batcher: a tray with a clock
#
# A static batcher waits for a full batch. At night, when two requests come in an hour, they would wait for six more. So the article's
# listing has a deadline, `prazoEstourou`, and NVIDIA's Triton has `max_queue_delay_microseconds`: close the batch when it is full, or when
# its **oldest** request has waited long enough. Once closed it is a static batch like any other.

# %%
show_source(DynamicBatcher)

# %% [markdown]
# **Predict, then run.** Four slots, a window of 100 ms, and a model so fast that a batch takes next to no time. Requests come at 0, 80,
# 160 and 240 ms. When do batches close, and with whom in them?
#
# <details><summary>Answer</summary>
#
# At 100 ms with R1 and R2, for R1 has waited 100 ms then. R3 comes at 160 and is the oldest of a new batch, which closes at 260 with R3
# and R4. If each arrival started the clock again, a request every 80 ms would hold the door open until the batch is full; if R2's arrival
# had left a clock running, it would close R3's batch too early. Both are bugs found in real batchers.
#
# </details>


# %%
def batches(trace):
    """When each batch of a run began, in seconds, and who was in it."""
    return [(record.start, record.admitted) for record in trace.steps if record.admitted]


every_80_ms = to_requests([Planned(time, 1, 1) for time in (0.0, 0.08, 0.16, 0.24)], vocab_size=10)
window = DynamicBatcher(max_num_seqs=4, max_wait=0.1)
for start, members in batches(Engine(window, ScriptedExecutor(seconds_per_step=0.001)).run(every_80_ms)):
    print(f"closes at {1000 * start:.0f} ms:", *members)

# %% [markdown]
# Now with answers that take time: 12 requests, about six a second, of 4 to 40 tokens at 20 ms a step. Time is simulated, so the axis
# is in seconds on every machine.

# %%
light = to_requests(synthetic(12, output=uniform(4, 40), arrivals=poisson(rate=6), seed=2), vocab_size=100)
batchers = StaticBatcher(max_num_seqs=4), DynamicBatcher(max_num_seqs=4, max_wait=0.1)
runs = [Engine(batcher, ScriptedExecutor(seconds_per_step=0.02)).run(light) for batcher in batchers]
show(slots(runs, axis="seconds"), alt(runs))
for run in runs:
    summary = summarise(run)
    print(f"{run.scheduler}: {summary.steps} steps, TTFT p50 {summary.ttft_p50:.2f} s (n={summary.n})")

# %% [markdown]
# The static batcher stands idle with requests in its queue, waiting for a fourth. The dynamic one starts sooner with fewer, and takes
# more steps in all, each with emptier slots. How long should the window be? Poisson arrivals, 8 slots, 400 requests
# of 1 to 32 tokens, 20 ms a step, under a light and a heavy load:

# %%
print("requests/s  max_wait  mean batch  steps  TTFT p50  p95 (n=400)")
for rate in (4, 12):
    plan = synthetic(400, output=uniform(1, 32), arrivals=poisson(rate), seed=0)
    for max_wait in (0, 0.25, 0.5, 1, 2):
        batcher = DynamicBatcher(max_num_seqs=8, max_wait=max_wait)
        run = Engine(batcher, ScriptedExecutor(seconds_per_step=0.02)).run(to_requests(plan, vocab_size=100))
        row, size = summarise(run), 400 / len(batches(run))
        print(f"{rate:10}  {max_wait:8.2f}  {size:10.1f}  {row.steps:5}  {row.ttft_p50:8.2f}  {row.ttft_p95:.2f}")

# %% [markdown]
# Under the light load the window is a trade: larger batches and fewer steps, paid for in waiting, first of all by whoever came first.
# Under the heavy load it hardly matters. While one batch bakes, the queue fills the next one by itself. And in no row does the window
# do anything about dead slots: it decides when the door closes, not when it opens again.

# %% [markdown]
# ## 6. How much is wasted? The dead-slot factor
#
# With a queue that never runs dry, a batch of B answers takes as many steps as its longest one. The same tokens in B slots that are never
# dead would take, on average, as many steps as the *mean* answer has tokens. So a static batcher needs
#
#     factor = E[longest of B lengths] / E[length]
#
# times the steps. Nothing about the model or the GPU is in it, only the lengths of the answers. The longest of B independent lengths is at
# most x if each of them is: its probability is P(length ≤ x) to the power of B. From a list of lengths that makes a short sum, which is
# what `dead_slot_factor` computes and exercise 3 asks for.
#
# **Predict, then run.** Lengths spread evenly over 1 to 128, as in Orca's experiments: can the factor exceed 2, however large the batch?
#
# <details><summary>Answer</summary>
#
# No. The mean is 64.5, the longest never exceeds 128, and 128 / 64.5 is 1.98. The factor has a ceiling: the longest possible answer over
# the mean one. It is a long *tail* that makes it large.
#
# </details>


# %%
def outputs(law):
    return [one.output_tokens for one in synthetic(4000, output=law)]


laws = {"all 64": outputs(equal(64)), "uniform, 1 to 128": outputs(uniform(1, 128))}
laws["exponential, mean 128"] = outputs(exponential(mean=128, cap=1536))
laws["Azure conversation"] = [one.output_tokens for one in azure_trace("conv")]
laws["Azure code"] = [one.output_tokens for one in azure_trace("code")]
print("lengths of answers      mean  longest  factor for 8    32    64 slots")
for name, lengths in laws.items():
    factors = (f"{dead_slot_factor(lengths, size):6.2f}" for size in (8, 32, 64))
    print(f"{name:21}  {sum(lengths) / len(lengths):6.1f}  {max(lengths):7}     ", *factors)

# %% [markdown]
# The last two rows are real: the answers of two services in Azure, about an hour each (Splitwise, ISCA 2024; CC-BY 4.0). The code service
# mostly writes a dozen tokens and now and then a thousand. In batches of
# 32 a static batcher takes eight times the steps it would take without waste.
#
# Is the formula right? Measure it: shuffle each list, send it through the static batcher and divide the slot-steps that were paid for
# by the tokens that came out.

# %%
sizes = (2, 4, 8, 16, 32, 64)
samples = {name: Random(0).sample(lengths, min(len(lengths), 8000)) for name, lengths in laws.items()}
measured, errors = {}, []
for name, some in samples.items():
    measured[name] = [static_batch(some, size)[0] * size / sum(some) for size in sizes]
    formula = [dead_slot_factor(laws[name], size) for size in sizes]
    errors += [abs(got / wanted - 1) for got, wanted in zip(measured[name], formula)]
print(f"largest difference between formula and run: {max(errors):.1%}")

# %%
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for (name, lengths), colour in zip(laws.items(), PALETTE[:2] + PALETTE[3:4] + PALETTE[5:7]):
    curve = [dead_slot_factor(lengths, size) for size in range(1, 65)]
    ax.plot(range(1, 65), curve, color=colour)
    ax.plot(sizes, measured[name], "o", color=colour, ms=4)
    ax.annotate(name, (64, curve[-1]), (8, 0), textcoords="offset points", va="center", color=colour)
ax.set(xlabel="slots in the batch", ylabel="steps needed, as a multiple of no waste", ylim=(0, 14))
ax.set_title("Dead-slot factor: lines by the formula, dots measured", loc="left", fontsize=10)
ax.spines[["top", "right"]].set_visible(False)
show(
    fig,
    "Dead-slot factor against the number of slots: flat at 1 for equal lengths, below 2 for uniform; at 64 slots "
    "3 for Azure conversation, 4.5 for exponential and 12 for Azure code. The measured dots lie on the lines.",
)
print(*(f"{name} {dead_slot_factor(lengths, 64):.1f}" for name, lengths in laws.items()), sep="; ")

# %% [markdown]
# That the dots come from 20 lines of Python and not from the package makes no difference:

# %%
for name, some in samples.items():
    trace = serve(StaticBatcher(max_num_seqs=8), {f"R{i}": length for i, length in enumerate(some[:160])})
    steps, dead, ends = static_batch(some[:160], num_slots=8)
    print(f"{name:21}  package {len(trace.steps)} steps, section 1 {steps} steps")

# %% [markdown]
# Two things the factor does not say. It counts steps as if all took the same time, which notebook 01 found nearly true while the
# batch is small. And it supposes that somebody is always waiting: on a server with one user there is nothing to gain.

# %% [markdown]
# ## What you saw
#
# * A static batch runs as long as its longest answer. {20, 900}: 900 steps, 880 of them with a dead slot. 24 real answers: 192 steps,
#   42 % of the slot-steps dead.
# * The queue waits for the last one on the tray, though tokens may stream out of it all along.
# * Unequal prompts are filled up to a rectangle; with production prompts, two to three tokens are computed for each real one.
# * A dynamic batcher closes sooner, by the clock of its oldest request. It trades waiting for batch size, and its slots die as before.
# * The dead-slot factor: 1 for equal lengths, below 2 for uniform ones, 8 for code completion on 32 slots.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it says
# "NOT YET". Solutions: `notebooks/solutions/02_static_batching.py`.
#
# **1.** Count the dead slot-steps of a static batcher without stepping: `lengths` in order of arrival, `num_slots` of them in a batch,
# everybody there at the start. The last batch may be smaller, and slots that nobody holds are not dead. About four lines.


# %%
def dead_slot_steps(lengths, num_slots):
    return None


# %%
attempt(check_dead_slot_steps, dead_slot_steps)

# %% [markdown]
# **2.** When does a dynamic batcher close its batches? `arrivals` are times in milliseconds, in order; batches take no time to run. Return
# a list of pairs (time of closing, requests in the batch). The batch closes when it is full or when its oldest request has waited
# `max_wait`. About ten lines.


# %%
def closings(arrivals, max_batch, max_wait):
    return None


# %%
attempt(check_closings, closings)

# %% [markdown]
# **3.** How long, on average, is the longest of `num_slots` lengths drawn independently from the list `lengths` (with replacement, each
# equally likely)? An exact answer, not a simulation. About five lines.


# %%
def expected_longest(lengths, num_slots):
    return None


# %%
attempt(check_expected_longest, expected_longest)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **Triton**, `src/dynamic_batch_scheduler.cc` of the `core` repository, and `docs/user_guide/batcher.md` of `server`: `max_batch_size`,
#   `preferred_batch_size`, `max_queue_delay_microseconds`, priorities, what happens when a queue is full.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`: the policy `STATIC_BATCH` looks at waiting requests only when
#   nothing is scheduled. Its documentation calls it legacy.
# * **transformers**, `src/transformers/generation/utils.py`: `generate()` with a list of prompts is a static batch, padded on the left,
#   that runs until every row has ended. Look for `unfinished_sequences`.
# * **vLLM** has no static batch. `LLM.generate` takes a list of prompts, but the list goes through `vllm/v1/core/sched/scheduler.py` like
#   any other traffic.
# * **SGLang** has none either: `ScheduleBatch.filter_batch` in `python/sglang/srt/managers/schedule_batch.py` drops the finished rows
#   between two steps. That is where notebook 03 goes.
#
# Next: [03 Iteration level](03_iteration_level.ipynb)
