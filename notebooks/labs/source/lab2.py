# %% [markdown]
# # Lab 2: the batch that never closes
#
# About 60 minutes. No GPU needed. 20 points.
#
# You need [03](../03_iteration_level.ipynb). You write the heart of a serving engine, `schedule()`, and at the end a
# real model writes real answers under it. The question that you will be able to answer:
#
# > **What does a scheduler do between two steps, and what must never happen there?**
#
# A cell with a *check* is red until you have written the answer above it: NOT YET means that nothing is written, CHECK
# FAILED says what is wrong, with the smallest example that shows it and, where there was a run, its slot picture in
# letters. A check that says nothing has passed. Each gives its points by itself, so a part that is right counts.
#
# Previous: [Lab 1](lab1.ipynb) · Next: [Lab 3](lab3.ipynb)

# %%
from dataclasses import replace

from minibatch import Engine, Request, SamplingParams, load_model
from minibatch.checks.lab2 import (
    check_admitted,
    check_bound,
    check_memory,
    check_order,
    check_passing,
    check_prompts,
)
from minibatch.checks.lab2_plans import check_audit, check_by_hand, check_rows, check_scores
from minibatch.memory import ContiguousMemory
from minibatch.metrics import tokens_sha256
from minibatch.plot import alt, caption, show, show_source, slots, slots_text
from minibatch.schedulers import IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan
from minibatch.workload import chat_prompts

# %%
SLOTS = 2  # variant: 2 3
MAX_PASSES = 2  # variant: 2 1
COUNTED = "requests"  # variant: "requests" "steps"

# %% [markdown]
# ## 1. By hand (2 points)
#
# Before you write a scheduler, be one. The rules, as in notebook 03: between two steps whoever has finished has left,
# and whoever waits enters, first come, first served, while a slot is free. Everybody who holds a slot gets one token in
# each step.
#
# Article 3's example, A=2, B=4, C=2 tokens on two slots, looks like this, a column a step. C takes A's slot in step 3
# and ends in step 4:
#
#     slot 0   AACC
#     slot 1   BBBB
#
# Now you, on **{SLOTS} slots**:
#
# | request | tokens of its answer | comes |
# |---|---|---|
# | A | 2 | at the start |
# | B | 5 | at the start |
# | C | 2 | at the start |
# | D | 1 | at the start |
# | E | 3 | when 4 steps have gone by, so it may take part in step 5 |
#
# Return the rows of the picture, one string a slot, a dot where a slot is empty. Which free slot somebody gets does not
# matter. Use a pencil, no code.


# %% answer="by_hand"
def by_hand():
    """A list of SLOTS strings, such as ["AACC", "BBBB"]."""
    ### BEGIN SOLUTION
    if SLOTS == 2:
        return ["AACCD", "BBBBBEEE"]
    return ["AAD.EEE", "BBBBB", "CC"]
    ### END SOLUTION


# %% check="by_hand_picture" points=2
check_by_hand(by_hand, slots=SLOTS)

# %% [markdown]
# ## 2. Between two steps: `schedule()` (8 points)
#
# `Engine.step()` is three calls: `schedule()` decides, the executor computes, `update()` appends the new tokens and
# lets out whoever has ended. So when `schedule()` is called, **whoever finished has left already**: slot and memory are
# free again. What remains is yours: who enters, and what does each of those inside compute?
#
# You are given, all in `minibatch/schedulers/base.py`, `step.py` and `request.py`:
#
# | part | what it is |
# |---|---|
# | `self.waiting` | a deque of sequences; the head, `[0]`, came first |
# | `self.running` | a list of those who hold a slot, at most `self.max_num_seqs` |
# | `self.memory.admit(sequence)` | asks for its K/V memory. True: **it has it now**. False: there is none, and nothing has changed |
# | `self.seat(sequence, now)` | gives it a free slot (`sequence.slot`) and puts it into `running`. Taking it out of `waiting` is up to you |
# | `sequence.num_tokens` | tokens known: prompt, and what has been written so far |
# | `sequence.num_computed_tokens` | tokens whose K and V are stored; `update()` counts them |
# | `Chunk(sequence, slot, start, count)` | "compute its tokens [start, start + count)" |
# | `StepPlan(chunks=..., admitted=...)` | the decision: a tuple of chunks, and a tuple of the request ids that got their slot in this step |
#
# One sentence carries it all: `num_computed_tokens` chases `num_tokens`. By hand, for a prompt of 5 tokens: in its
# first step a sequence has stored 0 of 5, so it computes [0, 5), and the step yields one new token. In the next it has
# stored 5 of 6 and computes [5, 6). That was a prefill and a decode, and no `if` told them apart.
#
# For the form of the thing, here is the tray of notebook 02, which you are about to replace:

# %% tags=["shows"]
show_source(StaticBatcher.schedule)

# %% [markdown]
# **Predict.** Two slots and six K/V positions, all free. A needs four positions, B five, C two, and they came in this
# order. Who is in the first step?
#
# <details><summary>Answer</summary>
#
# A alone, and a slot stays empty. C would fit, but B stands before it. First come, first served means that the head of
# the line blocks: whoever cannot enter holds up those behind. That looks like waste, and question 4 does something
# about it. It is also the simplest rule under which nobody is ever forgotten, and so most servers start from it.
#
# </details>
#
# Write `schedule()`. About ten lines.


# %% answer="schedule"
class MyScheduler(Scheduler):
    """First come, first served, between any two steps."""

    name = "mine"
    admit = None  # the package's own; here you write it

    def schedule(self, now: float) -> StepPlan:
        """Who enters, then one step for everybody inside.

        * The head of `waiting` enters while there is a slot and memory for it; where it cannot, nobody behind it does.
        * Everybody who holds a slot computes all tokens that it lacks, newcomers in the step in which they enter.
        * `admitted` names those who entered in this step, and only those.
        * Nobody there: a plan without chunks.

        `now` is the time in seconds; seat() wants it.
        """
        ### BEGIN SOLUTION
        admitted = []
        while self.waiting and len(self.running) < self.max_num_seqs and self.memory.admit(self.waiting[0]):
            sequence = self.waiting.popleft()
            self.seat(sequence, now)
            admitted.append(sequence.request_id)
        chunks = []
        for sequence in self.running:
            start = sequence.num_computed_tokens
            chunks.append(Chunk(sequence, sequence.slot, start, sequence.num_tokens - start))
        return StepPlan(chunks=tuple(chunks), admitted=tuple(admitted))
        ### END SOLUTION


# %% [markdown]
# Four checks: the order and the slots; longer prompts, so that a prefill is computed beside decodes; memory that is
# short; and the names in `admitted`, which the pictures and the latencies are made from.

# %% check="schedule_order" points=3
check_order(MyScheduler)

# %% check="schedule_prompts" points=2
check_prompts(MyScheduler)

# %% check="schedule_memory" points=2
check_memory(MyScheduler)

# %% check="schedule_admitted" points=1
check_admitted(MyScheduler)

# %% [markdown]
# Were you a good scheduler in question 1? Your code, on your {SLOTS} slots; a step lasts a second here, so E comes at 4
# s:


# %% tags=["shows"]
def serve(scheduler, lengths, arrivals):
    """The trace of a run. `lengths`: request id to tokens of its answer; `arrivals`: to seconds, 0 if not there."""
    requests = [Request(name, (1,), SamplingParams(n), arrivals.get(name, 0)) for name, n in lengths.items()]
    return Engine(scheduler, ScriptedExecutor()).run(requests)


print(slots_text(serve(MyScheduler(SLOTS), {"A": 2, "B": 5, "C": 2, "D": 1, "E": 3}, {"E": 4})))

# %% [markdown]
# ## 3. What must never happen there (3 points)
#
# A plan is a promise to the GPU. If a chunk starts a token too late, the model reads K and V that were never computed.
# Too early, and work is done twice and counted twice. Two sequences in one slot, or one without memory, write over each
# other. And **nothing raises an error**: the answers are just wrong, now and then, under load. So engines look their
# own plans over; vLLM's `schedule()` ends in a row of assertions. Write such an auditor. Five rules:
#
# | name | the rule |
# |---|---|
# | `"slot"` | each chunk is in the slot that its sequence holds, and no slot is there twice |
# | `"start"` | each chunk starts where the stored tokens end |
# | `"count"` | each chunk has at least one token, and none that is not known yet |
# | `"memory"` | everybody who is computed holds memory: `scheduler.memory.holds(sequence)` |
# | `"pause"` | everybody in `scheduler.running` that has not ended (`sequence.is_finished`) is in the plan |
#
# The first four are laws. The last is our scheduler's promise, and others make another. By hand: A holds slot 0 and has
# stored 5 of 6 tokens, B holds slot 1 and has stored 0 of 3. The plan "A computes [0, 6) in slot 0, and that is all"
# breaks `"start"`, for five tokens are computed twice, and `"pause"`, for B is left out. "B computes [0, 2)" breaks
# nothing: a part of a prompt is a sound chunk (notebook 04).
#
# About twelve lines.


# %% answer="audit"
def audit(plan, scheduler):
    """The names of the rules that `plan.chunks` break, as a set; empty if the plan is sound.

    Called after schedule() and before the step is computed. Looks, and changes nothing.
    """
    ### BEGIN SOLUTION
    broken = set()
    for sequence, slot, start, count in plan.chunks:
        if slot != sequence.slot:
            broken.add("slot")
        if start != sequence.num_computed_tokens:
            broken.add("start")
        if count < 1 or start + count > sequence.num_tokens:
            broken.add("count")
        if not scheduler.memory.holds(sequence):
            broken.add("memory")
    if len({chunk.slot for chunk in plan.chunks}) < len(plan.chunks):
        broken.add("slot")
    planned = {chunk.sequence.request_id for chunk in plan.chunks}
    if any(s.request_id not in planned and not s.is_finished for s in scheduler.running):
        broken.add("pause")
    return broken
    ### END SOLUTION


# %% check="audit_plans" points=3
check_audit(audit)

# %% [markdown]
# Now set it on two schedulers. The first is yours. The second is yours with a change: if anybody has a prompt to
# compute, the step computes prompts and nothing else. **Predict, then run:** what does the auditor say of the second,
# and in which steps?


# %% tags=["shows"]
class PromptsFirst(MyScheduler):
    """A step of prefills, or a step of decodes, never both."""

    name = "prompts first"

    def schedule(self, now):
        plan = super().schedule(now)
        prefills = tuple(chunk for chunk in plan.chunks if chunk.start == 0)
        return replace(plan, chunks=prefills or plan.chunks)


def audited(scheduler, requests):
    """Serve the requests, print what the auditor says of each plan that breaks a rule, return the trace."""
    decide = scheduler.schedule

    def schedule(now):
        plan = decide(now)
        if broken := audit(plan, scheduler):
            print(f"{scheduler.name}: step {len(engine.trace.steps) + 1} breaks {', '.join(sorted(broken))}")
        return plan

    scheduler.schedule = schedule
    engine = Engine(scheduler, ScriptedExecutor())
    return engine.run(requests)


some = [Request(name, (1,) * 4, SamplingParams(n)) for name, n in {"A": 3, "B": 6, "C": 2, "D": 4}.items()]
two = [audited(scheduler(2), some) for scheduler in (MyScheduler, PromptsFirst)]
print(slots_text(two))

# %% [markdown]
# <details><summary>Answer</summary>
#
# `"pause"`, in each step in which somebody enters while another one is decoding: there B holds its slot and its memory
# and gets no token. It is no slip of a beginner. It was vLLM V0's default and is SGLang's today, and under a stream of
# new prompts those who decode wait and wait (notebook 04 measures the stall). A law of the engine and a policy of a
# server are two things, and an auditor should say which is which.
#
# </details>
#
# ## 4. Who may pass? (5 points)
#
# Six K/V positions are free of twelve. The head of the line, B, needs nine; C, D and E behind it need one each. With
# the rule of question 2 they all wait for B, beside free slots and free memory. Operators see that as a queue that does
# not move while the GPU is half empty, and ask: why not let the small ones pass?
#
# Because of B. If whoever fits may pass, a steady stream of small requests takes every position that falls free, and B
# waits *for ever*. It is no error that anybody sees: tokens keep flowing, and one client is gone. So passing needs a
# **bound**:
#
# * in order of arrival, whoever finds a slot and memory enters;
# * nobody is passed more often than `MAX_PASSES`, which is **{MAX_PASSES}**. Once somebody who waits has been passed so
#   often, nobody who came later enters before it;
# * passes are counted in **{COUNTED}**. In `"requests"`: each later request that enters while it waits is one, so three
#   that enter in one step are three. In `"steps"`: each step in which at least one later request enters is one, however
#   many enter in it, and it counts from the next step on.
#
# By hand, for 2 passes counted in requests: A holds its memory, B does not fit, and C, D, E wait behind it and do. C
# and D enter, and E waits although there is a slot and memory for it. Counted in steps, all three enter in this one
# step, and that was one pass.
#
# Everybody who stands before the one that enters is passed, not the head alone. And mind that `memory.admit()` is not a
# question without consequences: after a True the memory is taken.
#
# Copy your `schedule()` and change who enters. `sequence.times_passed` is there for you to count in; it starts at 0.
# About six lines more.


# %% answer="passing"
class PassingScheduler(Scheduler):
    """Whoever fits may pass, with a bound."""

    name = "passing"
    admit = None

    def schedule(self, now: float) -> StepPlan:
        """As MyScheduler, but for who enters: the rule above, with MAX_PASSES and COUNTED."""
        ### BEGIN SOLUTION
        admitted, ahead, passed = [], [], []  # ahead: cannot enter, and came before those we look at next
        for sequence in list(self.waiting):
            if len(self.running) == self.max_num_seqs or any(one.times_passed >= MAX_PASSES for one in ahead):
                break
            if not self.memory.admit(sequence):
                ahead.append(sequence)
                continue
            self.waiting.remove(sequence)
            self.seat(sequence, now)
            admitted.append(sequence.request_id)
            passed = list(ahead)
            if COUNTED == "requests":
                for one in passed:
                    one.times_passed += 1
        if COUNTED == "steps":
            for one in passed:
                one.times_passed += 1
        chunks = []
        for sequence in self.running:
            start = sequence.num_computed_tokens
            chunks.append(Chunk(sequence, sequence.slot, start, sequence.num_tokens - start))
        return StepPlan(chunks=tuple(chunks), admitted=tuple(admitted))
        ### END SOLUTION


# %% check="passing_fits" points=2
check_passing(PassingScheduler, max_passes=MAX_PASSES, counted=COUNTED)

# %% check="passing_bound" points=3
check_bound(PassingScheduler, max_passes=MAX_PASSES, counted=COUNTED)

# %% [markdown]
# What the bound is worth. A holds five of twelve K/V positions, BIG needs nine, and a small request of three comes
# every second, 24 of them. Three rules: yours of question 2, your bound, and the package's `whoever_fits`, which has
# none. **Predict:** in which step does BIG enter under the third?


# %% tags=["shows"]
lengths = {"A": 5, "BIG": 9} | {f"s{i}": 3 for i in range(1, 25)}
arrivals = {f"s{i}": i - 1 for i in range(1, 25)}


def tight():
    """Twelve K/V positions; each request takes as many as it will need."""
    return ContiguousMemory(num_positions=12, max_model_len=12, reserve="exact")


rules = {
    "head blocks": MyScheduler(5, tight()),
    "your bound": PassingScheduler(5, tight()),
    "no bound": IterationScheduler(5, tight(), join="whoever_fits"),
}
runs = {rule: serve(scheduler, lengths, arrivals) for rule, scheduler in rules.items()}
show(slots(runs, width=9), alt(runs))
for rule, run in runs.items():
    big = next(step.step for step in run.steps if "BIG" in step.admitted)
    first = [int(run.requests[f"s{i}"].first_scheduled) - i + 1 for i in range(1, 7)]
    print(f"{rule:11}  BIG enters in step {big:2}; the first six small ones wait {first} s")

# %% [markdown]
# Without a bound BIG enters when the stream has ended, and not before: with a stream that never ends, never. Under the
# two other rules the small ones pay for it. There is no rule that is kind to both; there is only one that you chose and
# can write down.
#
# ## 5. What a mixed step costs (2 points)
#
# In one step of your scheduler somebody computes a prompt of 37 tokens and three others one token each. Three numbers
# say what that costs:
#
# * **packed**: Orca's *selective batching* lays all tokens end to end in one matrix, `[total tokens, hidden]`, and that
#   goes through the weights: 40 rows.
# * **padded**: without it a batch is a rectangle, one line a sequence, each as long as the longest: 4 × 37 = 148 rows.
# * **scores**: in attention each sequence is alone. A token looks at all tokens of its sequence up to and including
#   itself, those computed in earlier steps too, and at none that comes later. Each such pair is a score.
#
# By hand: D computes [0, 3) and A computes [5, 6). Packed 4, padded 6. D's tokens look at 1, 2 and 3 tokens, A's at 6:
# 12 scores.
#
# About four lines. A step with nobody in it costs nothing.


# %% answer="cost"
def step_cost(work):
    """(packed, padded, scores) of a step. `work` is a list of (start, count), one a sequence, perhaps empty."""
    ### BEGIN SOLUTION
    counts = [count for _, count in work]
    scores = sum(position + 1 for start, count in work for position in range(start, start + count))
    return sum(counts), len(counts) * max(counts, default=0), scores
    ### END SOLUTION


# %% check="cost_rows" points=1
check_rows(step_cost)

# %% check="cost_scores" points=1
check_scores(step_cost)

# %% [markdown]
# ## 6. Your scheduler on a real model
#
# The embedded model is small and trained on a handful of subjects, but it is a real one: it ends its answers when it
# chooses to. Twelve prompts on four slots, under the static batcher and under yours. **Predict:** which picture has
# grey in it, and do the answers change?

# %% tags=["shows"]
model = load_model("tiny")
requests = [model.request(name, text, max_new_tokens=40) for name, text in chat_prompts("tiny")[8:20]]


def on_the_model(scheduler_class):
    """Serve the requests for real."""
    memory = ContiguousMemory(num_positions=4 * 128, max_model_len=128)
    return Engine(scheduler_class(4, memory), model.executor(memory)).run(requests)


static, mine = on_the_model(StaticBatcher), on_the_model(MyScheduler)
show(slots([static, mine]), alt([static, mine]))
print(caption([static, mine]))

# %% tags=["shows"]
for run in (static, mine):
    print(f"{run.scheduler:6}  {len(run.steps)} steps, tokens {tokens_sha256(run)[:16]}")
print("R18:", dict(chat_prompts("tiny"))["R18"], "->", model.tokenizer.decode(mine.requests["R18"].tokens))
costs = [step_cost([(work.start, work.count) for work in step.live]) for step in mine.steps]
packed, padded, scores = map(sum, zip(*costs))
print(f"your scheduler, all steps: {packed} rows packed, {padded} as padded rectangles; {scores} scores")
mixed = max(costs, key=lambda cost: cost[1] / cost[0])
print(f"its most uneven step: {mixed[0]} rows packed, {mixed[1]} padded, {mixed[2]} scores")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The static batcher's: a grey slot is a dead one, held by an answer that has ended. And no, the answers do not change:
# the fingerprint of all tokens is the same. Sequences of a batch share nothing but the moment, so a scheduler decides
# *when* a token is computed and never *which*. If a change of yours ever changes a greedy float32 text, look for a
# broken law of question 3.
#
# </details>
#
# ## What you saw
#
# * Between two steps: whoever finished has left, whoever waits enters while there is a slot *and* memory, everybody
#   inside computes what it lacks. Prefill and decode are one thing, `num_computed_tokens` chasing `num_tokens`.
# * What must never happen: a slot or a memory shared by mistake, a token computed twice, skipped, or before it is
#   known. On a GPU none of these raises an error by itself.
# * The head of the line blocks, or small ones pass with a bound. Passing without one starves the large.
# * A step of two kinds puts as many rows through the weights as it has tokens, if it is packed; attention is paid by
#   each sequence for its own context.
#
# **And the answer in one breath**, for the next colleague who asks: *between two steps the scheduler lets out, lets in,
# and says what each one computes; and it never gives one place to two, and never lets anybody wait without a bound.*
#
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`: `schedule()` walks `self.running`, then `self.waiting`; where the
#   head finds no memory the loop breaks: it blocks.
# * **Orca** (Yu et al., OSDI 2022), Algorithm 1: `Select` walks the pool in order of arrival and stops at the first
#   request for which no slots are left. (Its "slot" is the K/V of one token.)
# * **SGLang**, `python/sglang/srt/managers/schedule_policy.py`, `PrefillAdder`: the first refusal ends the scan.
# * **transformers**, `src/transformers/generation/continuous_batching/scheduler.py`, `FIFOScheduler`: skips one that
#   finds no blocks and goes on to the next while any block is free: passing, without a bound.
# * In this package: `minibatch/schedulers/iteration.py` (`admit_one`), `join.py` (`SmallOnesPass`, `WhoeverFits`);
#   notebook 07, section 7, measures them.
#
# Next: [Lab 3](lab3.ipynb): a long prompt in small pieces.
