# %% [markdown]
# # Lab 5: who gives way, and who should not have come in
#
# About an hour. No GPU needed. 18 points.
#
# You need [07 Under pressure](../07_preemption_and_admission.ipynb) and, for the last question, sections 1 to 3 of
# [09 The operating limit](../09_operating_limit.ipynb). At the end you can answer what every operator of such a server is asked one day:
# **memory has run out; who gives way, and whom should I not have let in?** You write the rule that picks a victim, put a price on
# each preemption, write the rule at the door, and keep a promise on real traffic that the default settings break.
#
# You write where it says `YOUR CODE HERE`; run that cell, then the checks below it. A check is red until you have answered: NOT YET
# means that nothing is written, CHECK FAILED says what is wrong, with the smallest example that shows it. No output means that it passes.
# Each check counts by itself, so a part that is right has its points.
#
# Previous: [Lab 4](lab4.ipynb) · Next: [Lab 6](lab6.ipynb)

# %%
from minibatch import Engine, Request, SamplingParams, load_model
from minibatch.checks.lab5 import (
    check_estimates,
    check_everybody_ends,
    check_other_days,
    check_promise,
    check_recomputed,
    check_room_kept,
    check_room_used,
    check_swapped,
    check_victim,
)
from minibatch.checks.lab5_service import kept, run
from minibatch.memory import PagedMemory
from minibatch.metrics import recomputed_tokens
from minibatch.plot import alt, caption, show, show_source, slots
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import Claim, PromptOnly, Reserve
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import azure_trace, chat_prompts

# %% [markdown]
# Two things differ from class to class; the questions say what they mean.

# %%
VICTIM = "fewest_outputs"  # variant: "fewest_outputs" "newest" "lowest_priority"
FIRST = 18500  # variant: 18500 6500 1000

# %% [markdown]
# ## 1. Who gives way?
#
# A step needs a block, and none is free. Somebody who runs must give way: article 2's *política de preempção*. Its K and V go, its slot too,
# and it waits in its old place in line. Whom you choose decides who pays, and whether anybody ever ends:
#
# | `VICTIM` | gives way first | among equals |
# |---|---|---|
# | `fewest_outputs` | who has written fewest tokens (SGLang) | the longest prompt, and after that the newest |
# | `newest` | who came last (vLLM) | |
# | `lowest_priority` | the highest number in `request.priority` (vLLM with priorities) | the newest |
#
# In this lab the rule is **{VICTIM}**. To every rule there is one exception: the **oldest** of those who run never gives way while anybody
# else runs. Without it, two sequences can throw each other out in turn for ever (a real fault, and not of one server alone). With it the
# oldest gets on in every step, ends, and then another is the oldest.
#
# By hand, with four who run:
#
# | | order | written | prompt | priority |
# |---|---|---|---|---|
# | A | 0 | 1 | 90 | 2 |
# | B | 1 | 3 | 8 | 0 |
# | C | 2 | 3 | 40 | 1 |
# | D | 3 | 7 | 8 | 0 |
#
# By `fewest_outputs` it is C: A has written less and is the oldest; B and C have written the same, and C's prompt is longer. By `newest` it is D.
# By `lowest_priority` it is C again, because A is the oldest.


# %% answer="victim"
class Victim:
    """The rule that says who gives way."""

    swap = False  # K and V of a victim are thrown away, and computed again later

    def choose(self, running):
        """The sequence that gives way, by the rule `VICTIM`; a single one that runs is its own victim.

        `running`: everybody who holds a slot, in the order of *admission*. That is not the order of
        arrival as soon as a victim has come back. A sequence knows its `order` (place in line: a
        lower one came earlier), its `output` (the list of tokens it has written) and its `request`,
        with `request.prompt` (a tuple of tokens) and `request.priority`.
        """
        ### BEGIN SOLUTION
        oldest = min(running, key=lambda sequence: sequence.order)
        others = [sequence for sequence in running if sequence is not oldest]
        rules = {
            "fewest_outputs": lambda one: (-len(one.output), len(one.request.prompt), one.order),
            "newest": lambda one: one.order,
            "lowest_priority": lambda one: (one.request.priority, one.order),
        }
        return max(others or running, key=rules[VICTIM])
        ### END SOLUTION


# %% check="victim_rule" points=2
check_victim(Victim, rule=VICTIM)

# %% check="everybody_ends" points=2
check_everybody_ends(Victim)

# %% [markdown]
# Your rule in a scheduler: `evict=Victim()`. Six blocks of 4 positions; A, B and C have prompts of 8 tokens and answers of 9, so each ends
# with 16 positions, 4 blocks. All three prompts fit, and no two answers.
#
# **Predict, then run.** In which step does somebody give way for the first time? How many of the three are ever preempted? (They have no
# priorities, and all prompts are alike.)
#
# <details><summary>Answer</summary>
#
# In step 2: the prompts have filled the pool, and each next token needs a block. Under each of the rules it is the newest here, C: all have
# written the same. When A and B need one block more each, in step 6, B gives way. A, the oldest, never does: two of three.
#
# </details>

# %% tags=["shows"]
three = [Request(name, (5,) * 8, SamplingParams(9)) for name in "ABC"]
tight = Engine(IterationScheduler(3, PagedMemory(6, 4), evict=Victim()), ScriptedExecutor()).run(three)
show(slots(tight, queue=False, width=8), alt(tight))
print(caption(tight))

# %% [markdown]
# ## 2. What does it cost?
#
# Two ways to give way. *Recompute*: K and V are thrown away, and computed again when the victim returns. *Swap*: they are moved to host
# memory and back, block by block. An operator who sees `num_preemptions` in a dashboard wants to know what one of them costs.
#
# What is there to lose? A sequence with a prompt of 8 tokens that has written 5 *knows* 13 tokens. Stored are the K and V of those that a step
# has computed. Is the token that it wrote last among them?


# %% answer="price"
def price(prompt, written, block_size, swap):
    """What one preemption costs: the pair (tokens computed again, blocks moved).

    The victim has a prompt of `prompt` tokens, all of it computed, and has written `written`
    tokens, at least one. With `swap` False it is recomputed; with True its blocks of `block_size`
    positions, those that hold anything, go to host memory and later come back, and each move
    counts. It is preempted between two steps.
    """
    ### BEGIN SOLUTION
    stored = prompt + written - 1  # the last token was drawn, and has not been fed back
    return (0, 2 * -(-stored // block_size)) if swap else (stored, 0)
    ### END SOLUTION


# %% check="recomputed" points=2
check_recomputed(price)

# %% check="swapped" points=1
check_swapped(price)

# %% [markdown]
# Ask the engine. In the run above C was preempted with 1 token written and B with 5. The same with swap:

# %% tags=["shows"]
host = PagedMemory(6, 4, host_blocks=6)
swapped = Engine(IterationScheduler(3, host, evict=Evict("newest", swap=True)), ScriptedExecutor()).run(three)
for name, trace, swap in (("recompute", tight, False), ("swap", swapped, True)):
    again, moved = (sum(costs) for costs in zip(price(8, 1, 4, swap), price(8, 5, 4, swap)))
    seen = recomputed_tokens(trace), sum(step.blocks_out + step.blocks_in for step in trace.steps)
    print(f"{name:9}: {again} tokens again and {moved} blocks moved by your price; {seen[0]} and {seen[1]} in the run")

# %% [markdown]
# The mistake to avoid is to count the prompt alone. A victim late in a long answer costs most, which is why SGLang takes the one that has
# written least. In vLLM V1 there is no swap; what a victim had stored may still be found in the prefix cache.
#
# ## 3. Whom should I not have let in?
#
# Preemption repairs what the door got wrong. Article 2 wants a request to fit "durante todo o seu tempo de vida", for its whole life; but
# nobody knows how long an answer will be. Ask for the prompt alone, and the pool overflows later. Ask for `max_new_tokens`, and most of the
# pool stays empty, because hardly anybody writes so much. In between there is an estimate: an answer is *expected* to have so many tokens.
#
# In the package a rule at the door is a **reserve policy**. Whenever a request is next in line it says what it claims, as
# `Claim(tokens, keep_free)`: blocks for so many *tokens* are taken at once, if `keep_free` *blocks* then remain free for later. Otherwise it
# waits, and everybody behind it. (If nobody runs, `keep_free` is not looked at; `tokens` always is.) The open door:

# %% tags=["shows"]
show_source(PromptOnly.claim)

# %% [markdown]
# Its successor keeps room for all who are in, and for the newcomer, until each has written what is expected of it. By hand: blocks of 4, answers
# of 9 tokens expected. A runs; its prompt has 8 tokens, it has written 2 and holds 3 blocks. At the end of its life it will have
# 8 + 9 - 1 = 16 positions, 4 blocks: one is missing. B wants to enter with a prompt of 8: two blocks now, two later. So B may
# enter if 5 blocks are free: 2 that it takes, and 3 that stay.
#
# How long is a life?
#
# * Nobody writes more than its own `max_new_tokens`, whatever is expected.
# * Whoever has written more than expected, against all hope, counts with what it has written: nothing is kept for it, and nothing
#   comes back from it either.
# * One that returns after a preemption brings its answer so far with it: `sequence.num_tokens` counts both.
#
# You may take everything at the door, or take little and keep the rest free. The checks look only at runs: where the estimate holds,
# nobody is preempted; and nobody waits for room that is not needed.


# %% answer="admission"
class Lifetime(Reserve):
    """Room for a whole life, as long as it is expected to be."""

    def __init__(self, expected):
        """`expected`: tokens of an answer."""
        self.expected = expected

    def claim(self, sequence, running, memory):
        """The `Claim` of `sequence`, which is next in line; `running` are those who hold a slot.

        A sequence has `num_tokens` (prompt and output so far), `output`, `request.prompt`,
        `request.sampling.max_new_tokens` and `block_table`, the list of blocks it holds now: a
        newcomer, none. `memory.blocks_for(tokens)` says how many blocks hold so many tokens. P
        tokens of prompt and N of answer need P + N - 1 positions.
        """
        ### BEGIN SOLUTION
        missing = sum(self.end(one, memory) - len(one.block_table) for one in (*running, sequence))
        return Claim(sequence.num_tokens, missing - memory.blocks_for(sequence.num_tokens))

    def end(self, sequence, memory):
        """Blocks at the end of its life; never fewer than it needs now."""
        answer = min(self.expected, sequence.request.sampling.max_new_tokens)
        positions = len(sequence.request.prompt) + answer - 1
        return max(memory.blocks_for(positions), memory.blocks_for(sequence.num_tokens), len(sequence.block_table))
        ### END SOLUTION


# %% check="room_kept" points=3
check_room_kept(Lifetime)

# %% check="room_used" points=3
check_room_used(Lifetime)

# %% check="estimates" points=1
check_estimates(Lifetime)

# %% [markdown]
# **Predict, then run.** The three requests on six blocks again, with your rule at the door and answers of 9 expected. How many preemptions
# now? And how many steps, where it was 21?
#
# <details><summary>Answer</summary>
#
# None; and 27 steps. Each has the pool to itself, for no two fit to the end, and 3 times 9 is 27. The run with two preemptions was
# *shorter*: for a while two or three ran side by side, and recomputing a short prompt took one step. The fewest preemptions are not the
# aim. A kept promise is.
#
# </details>

# %% tags=["shows"]
careful = Engine(IterationScheduler(3, PagedMemory(6, 4), reserve=Lifetime(9)), ScriptedExecutor()).run(three)
for name, trace in (("open door", tight), ("lifetime", careful)):
    print(f"{name}: {len(trace.steps)} steps, {sum(len(step.preempted) for step in trace.steps)} preemptions")

# %% [markdown]
# ## 4. Keep a promise
#
# A chat service on a simulated card with little memory. An H100 carries another model as well, and 12,800 K/V positions are left to
# your Llama-2-7B: 800 blocks of 16. The load is real: 120 of Azure's conversations of November 2023 (Splitwise, ISCA 2024), from
# request {FIRST} of the hour on, stretched to 3 a second on average, bursts and all. Prompts have about a thousand tokens on average. Every client
# allows 1,024 tokens of answer, and nobody says how many it will take.
#
# The promise, made by somebody else: **96 of 100 requests** have their first token within 5 s, and no pause above 0.2 s between two
# tokens. And no first token takes longer than 20 s, ever: a rule that lets long prompts wait for ever is no rule.
#
# Two plain parts do the rest: `run(compose, first)` serves the stretch, and `kept(trace)` counts.

# %% tags=["shows"]
show_source(kept)

# %% [markdown]
# **Predict, then run.** Two settings that you find on real servers: the open door, and room for every limit. Both compute prompts in
# chunks beside the decodes, 512 tokens a step. Which half of the promise does each break?


# %% tags=["shows"]
def told(name, trace):
    share, late, paused = kept(trace)
    preempted, live = sum(len(step.preempted) for step in trace.steps), sum(len(step.live) for step in trace.steps)
    said = f"{share:4.0%} kept, {late:4.0%} late, {paused:4.0%} paused, {preempted:3} preemptions"
    print(f"{name:24} {said}, {live / len(trace.steps):4.1f} at once")


told("open door", run(lambda memory: IterationScheduler(64, memory, mix=Chunked(512)), FIRST))
told(
    "room for every limit", run(lambda memory: IterationScheduler(64, memory, mix=Chunked(512), reserve="full"), FIRST)
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The open door breaks the second half: a victim's reader stares at half a sentence until it has come back. Room for every limit
# breaks the first: nobody is ever preempted, but so few run at once that the queue grows. Article 2, both ways: "subestimar causa falhas
# de falta de memória no meio da sequência; superestimar deixa a fila desnecessariamente faminta".
#
# </details>
#
# Yours is in between, and needs an estimate. What did answers look like *yesterday*, in the first thousand conversations of the trace?

# %% tags=["shows"]
yesterday = sorted(one.output_tokens for one in azure_trace("conv")[:1000])
quantiles = ", ".join(f"{share:.0%}: {yesterday[int(1000 * share)]}" for share in (0.25, 0.5, 0.75, 0.9, 0.99))
print(f"tokens of an answer, mean {sum(yesterday) / 1000:.0f}; quantiles {quantiles}")

# %% [markdown]
# Compose a scheduler. You have your two policies and whatever is in `minibatch.schedulers`: `join` (who may enter before whom), `mix` (what a
# step may hold), `reserve`, `evict`. One estimate holds for everybody here, so ask yourself: of those who run side by side, how many will
# be longer than it, how many shorter, and what does their *sum* do?
#
# The second check runs two stretches that you do not see. Whatever you tune to these 120 requests by hand will not help there; a rule
# with a reason will.


# %% answer="compose"
def compose(memory):
    """A new scheduler of at most 64 slots on this `memory`, a PagedMemory, that keeps the promise.

    The default that it has to beat: IterationScheduler(64, memory, mix=Chunked(512)).
    """
    ### BEGIN SOLUTION
    mean = 247  # of yesterday's answers: some write more, some less, and their sum is near that of as many means
    return IterationScheduler(64, memory, mix=Chunked(512), reserve=Lifetime(mean), evict=Victim())
    ### END SOLUTION


# %% check="promise" points=2
check_promise(compose, first=FIRST)

# %% check="other_days" points=2
check_other_days(compose, first=FIRST)

# %% [markdown]
# How wide is the road? The same composition with other estimates, on your stretch. Yesterday's median, mean and 90 % are among them:


# %% tags=["shows"]
def expecting(tokens):
    return lambda memory: IterationScheduler(64, memory, mix=Chunked(512), reserve=Lifetime(tokens))


for tokens in (50, 100, 203, 247, 300, 428, 600):
    told(f"{tokens} tokens expected", run(expecting(tokens), FIRST))

# %% [markdown]
# On the left pauses, on the right a queue, and between them a range in which both halves of the promise hold. The mean and the median of
# yesterday lie in it; the quantile 90 %, which sounds so careful, does not. That is what makes an estimate usable: it need not be exact
# for each, only for the sum.
#
# ## Your policies on a model
#
# Six chats, 24 tokens at most, on the course's embedded model. First a pool with room for all, then one of 30 blocks of 4 with the open
# door and your victim rule, then the same pool with your rule at the door.
#
# **Predict, then run.** A victim's tokens are computed again as one prefill, not one by one. Will any text differ?

# %% tags=["shows"]
model = load_model("tiny")
chats = [model.request(name, text, max_new_tokens=24) for name, text in chat_prompts("tiny")[:6]]


def on_the_model(num_blocks, **policies):
    memory = PagedMemory(num_blocks, block_size=4)
    return Engine(IterationScheduler(6, memory, evict=Victim(), **policies), model.executor(memory)).run(chats)


roomy = on_the_model(100)
runs = {"open door": on_the_model(30), "lifetime": on_the_model(30, reserve=Lifetime(24))}
for name, trace in runs.items():
    same = all(trace.requests[key].tokens == record.tokens for key, record in roomy.requests.items())
    gone = [f"{' '.join(step.preempted)} in step {step.step}" for step in trace.steps if step.preempted]
    print(f"{name}: preempted {', '.join(gone) or 'nobody'}; texts as with plenty of memory: {same}")
show(slots(runs), alt(runs))
print(caption(runs))

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. K and V of a token depend on the tokens before it, and not on how they were batched. (In float32, that is; notebook 03 has the hair's
# breadth at which it could, and in 16 bits it does now and then.)
#
# </details>
#
# ## What you saw
#
# * The victim rule decides who pays. The oldest never does, so everybody ends, in any pool that fits one request.
# * A preemption by recompute costs all that was stored, P + N - 1 tokens, prompt *and* answer so far; by swap, twice its blocks.
# * The open door breaks promises by pauses, full need by a queue. An estimate of the lives of *all* who are in stands between them.
# * A good estimate of the sum is enough: yesterday's mean kept the promise on three stretches of the trace, and the careful quantile did not.
# * A text survives its preemptions token for token.
#
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`: the victim is `self.running.pop()`, or the largest `(priority, arrival_time)` with
#   `--scheduling-policy priority`. It recomputes, and after a preemption it admits nobody in that step. Watch `vllm:num_preemptions_total`.
# * **SGLang**, `python/sglang/srt/managers/schedule_batch.py`: `retract_decode` picks the victims; `schedule_policy.py`, `PrefillAdder`, is
#   the rule at the door: your `Lifetime`, with a share of the limits (`new_token_ratio`) in place of one expected length.
#   `--schedule-conservativeness` moves it.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`: GUARANTEED_NO_EVICT keeps room for every limit, MAX_UTILIZATION
#   is the open door.
# * **TGI**, `backends/v3/src/queue.rs`: room for every limit, never a preemption.
# * **transformers**, `src/transformers/generation/continuous_batching/scheduler.py`: `safety_margin` is a watermark, a share of the
#   pool kept free for those who are in.
#
# Next: [Lab 6](lab6.ipynb)
