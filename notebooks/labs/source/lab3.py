# %% [markdown]
# # Lab 3: a long prompt in small pieces
#
# About 55 minutes. No GPU needed. 17 points.
#
# You need [04](../04_chunked_prefill.ipynb). A service has promised that no reader waits longer than a tenth of a
# second between two tokens, and somebody sends a prompt of 2,000 tokens. At the end you have written a scheduler that
# keeps the promise, and can answer the one question that goes with it: **how large may the token budget be if no gap
# between two tokens may exceed a target, and what does the newcomer pay?**
#
# A cell with a *check* is red until you have written the answer above it: NOT YET means that nothing is written,
# CHECK FAILED says what is wrong, with the smallest example that shows it and, where there was a run, its slot
# picture in letters. A check that says nothing has passed. Each gives its points by itself, so a part that is right
# counts.
#
# Previous: [Lab 2](lab2.ipynb) · Next: [Lab 4](lab4.ipynb)

# %%
import math
from dataclasses import replace

from minibatch import Engine, Request, SamplingParams, load_model
from minibatch.checks.lab3 import (
    check_budget,
    check_cap,
    check_gap,
    check_largest_budget,
    check_order,
    check_sizes,
    check_ttft,
)
from minibatch.memory import ContiguousMemory
from minibatch.metrics import latency, percentile, summarise, tokens_sha256
from minibatch.plot import alt, caption, show, slots
from minibatch.plot.gaps import gaps, gaps_alt
from minibatch.plot.tokens import step_tokens, step_tokens_alt
from minibatch.schedulers import Scheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan
from minibatch.workload import azure_trace, chat_prompts, to_requests

# %% [markdown]
# ## The rules of this lab
#
# Three things differ from one service to another. These are yours, the sections below explain them, and the checks
# hold you to them:

# %%
CHUNKS = "any length"  # variant: "any length" "whole blocks"
ARRIVES = "just after a step has begun"  # variant: "just after a step has begun" "just before a step begins"
TARGET_ON = "longest gap"  # variant: "longest gap" "p99"
BLOCK = 4  # tokens

# %% [markdown]
# ## 1. The pieces of one prompt (2 points)
#
# "When will this prompt be in?" is the first thing that a long prompt makes people ask. Each step has a **token
# budget**. Everyone who writes takes one token of it, and a prompt gets what is left, in as many steps as it needs.
# By hand: A and B write, C brings 10 tokens, the budget is 6. Four tokens are left for C in each step.
#
# | step | A | B | C computes | sum | what comes out |
# |---|---|---|---|---|---|
# | 1 | 1 | 1 | [0, 4) | 6 | a token of A, one of B |
# | 2 | 1 | 1 | [4, 8) | 6 | the same |
# | 3 | 1 | 1 | [8, 10) | 4 | the same, and **C's first token** |
#
# Only the chunk that reaches the end of the prompt yields a token, and it does so at once: there is no extra step for
# it.
#
# May a chunk be of any length? In vLLM it may. TensorRT-LLM cuts at the borders of its KV blocks. For a chunk that is
# not the last of its prompt,
#
# * "any length" means what it says: it takes all that is left;
# * "whole blocks" means the largest whole number of blocks of 4 tokens; what is left of the budget beyond that stays
#   unused. The last chunk is as long as the rest of the prompt.
#
# If A alone were writing, 5 tokens would be left for C, and its chunks would be 5, 5 with any length and 4, 4, 2 in
# whole blocks.
#
# The rule here: **{CHUNKS}**.


# %% answer="chunk_sizes"
def chunk_sizes(prompt, budget, decodes):
    """The chunks of a prompt of `prompt` tokens while `decodes` others write, in order: a list of numbers of tokens.

    Each chunk is as large as the `budget` of a step and the rule CHUNKS allow. If the budget leaves nothing that a
    chunk could be made of, the list is empty.
    """
    ### BEGIN SOLUTION
    left, sizes = budget - decodes, []
    while prompt > 0:
        size = min(prompt, left)
        if CHUNKS == "whole blocks" and size < prompt:
            size -= size % BLOCK
        if size <= 0:
            return []
        sizes.append(size)
        prompt -= size
    return sizes
    ### END SOLUTION


# %% check="chunk_sizes_right" points=2
check_sizes(chunk_sizes, chunks=CHUNKS)

# %% [markdown]
# ## 2. A step under a budget (8 points)
#
# Now the scheduler. In lab 2 a newcomer brought its whole prompt to the step in which it entered. Here a step has a
# budget, and the question is who gets how much of it.
#
# Everybody stands in **one line**:
#
# 1. those who write (their prompt is computed; each lacks one token),
# 2. those whose prompt has begun, in the order in which they entered,
# 3. the queue, in order of arrival.
#
# Go down the line. Each gets all that it lacks, but no more than what is left of the budget, no more than the cap,
# and the rule for chunks (**{CHUNKS}**) holds. **The line ends at the first who can get nothing**: nobody is served
# past it. Whoever stands in the queue enters with its first chunk and not before, because from then on it holds a
# slot and memory.
#
# So whoever writes is in every step, and no step is longer than one of `token_budget` tokens: there is the promise.
# And whoever is in front gets on, so nobody starves.
#
# What you have to work with:
#
# | part | what it is |
# |---|---|
# | `self.running` | a list of those who hold a slot, in the order in which they entered |
# | `self.waiting` | the queue, in order of arrival; `self.waiting[0]` is its head |
# | `self.enter(now)` | gives the head of the queue a slot and memory and returns it; None if that cannot be |
# | `sequence.num_tokens` | tokens of its prompt and of its output so far |
# | `sequence.num_computed_tokens` | how many of those are computed; it lacks the difference |
# | `sequence.output` | the tokens that it has written, a list; empty until its prompt is computed |
# | `Chunk(sequence, slot, start, count)` | "compute its tokens [start, start + count)", in `sequence.slot` |
#
# The cap is the most that one sequence may get in one step. With a budget of 16 and a cap of 8, a prompt of 3 tokens
# behind one of 2,000 enters at once instead of waiting for the end of the long one.
#
# About fifteen lines.


# %% answer="schedule"
class BudgetScheduler(Scheduler):
    """Iteration-level scheduling in which no step computes more than `token_budget` tokens."""

    name = "budget"

    def __init__(self, max_num_seqs=8, token_budget=256, chunk_cap=None, memory=None):
        super().__init__(max_num_seqs, memory)
        self.token_budget = token_budget
        self.chunk_cap = chunk_cap or token_budget  # no cap: one sequence may have all of it

    def enter(self, now):
        """Give the head of the queue a slot and memory, and return it; None if that cannot be."""
        if not self.waiting or not self._free_slots or not self.memory.admit(self.waiting[0]):
            return None
        sequence = self.waiting.popleft()
        self.seat(sequence, now)
        return sequence

    def schedule(self, now):
        """The next step, as `StepPlan(chunks=(chunk, ...), admitted=(request_id, ...))`.

        `chunks` has one Chunk for each who is in this step, `admitted` the ids of those who enter with it. The line
        of section 2 says who gets how much. Nobody is in the step with 0 tokens.
        """
        ### BEGIN SOLUTION
        chunks, admitted, left = [], [], self.token_budget
        writing = [sequence for sequence in self.running if sequence.output]
        line = writing + [sequence for sequence in self.running if not sequence.output]
        while line or self.waiting:
            sequence = line[0] if line else self.waiting[0]
            lacks = sequence.num_tokens - sequence.num_computed_tokens
            count = min(lacks, self.chunk_cap, left)
            if CHUNKS == "whole blocks" and count < lacks:
                count -= count % BLOCK
            if not count:
                break
            if line:
                line.pop(0)
            elif self.enter(now):
                admitted.append(sequence.request_id)
            else:
                break
            chunks.append(Chunk(sequence, sequence.slot, sequence.num_computed_tokens, count))
            left -= count
        return StepPlan(tuple(chunks), admitted=tuple(admitted))
        ### END SOLUTION


# %% [markdown]
# Three checks. The first asks for no more than the promise: the budget is kept, and whoever writes is in every step.

# %% check="schedule_budget" points=3
check_budget(BudgetScheduler)

# %% [markdown]
# The second wants the line as it is, without a cap:

# %% check="schedule_order" points=3
check_order(BudgetScheduler, chunks=CHUNKS)

# %% [markdown]
# And the third with one:

# %% check="schedule_cap" points=2
check_cap(BudgetScheduler, chunks=CHUNKS)

# %% [markdown]
# Look at it. A and B are writing when C comes with 10 tokens and D right behind it with 2. `whole` is your scheduler
# with a budget that nobody reaches.
#
# **Predict, then run.** The budget is 6. In which step does C get its first token, under either? In which D?


# %% tags=["shows"]
def request(name, prompt, output, arrival=0.0):
    """A request known by its lengths, in tokens, and its arrival in seconds."""
    return Request(name, (1,) * prompt, SamplingParams(output), arrival)


def serve(scheduler, requests, seconds_per_step=1.0):
    """The trace of a run without a model."""
    return Engine(scheduler, ScriptedExecutor(seconds_per_step=seconds_per_step)).run(requests)


scene = [request("A", 2, 11), request("B", 2, 10), request("C", 10, 4, 2.5), request("D", 2, 5, 2.5)]
runs = {name: serve(BudgetScheduler(4, budget), scene) for name, budget in (("whole", 1000), ("budget 6", 6))}
show(slots(runs), alt(runs))
print(caption(runs))

# %% tags=["shows"]
show(step_tokens(runs, {"budget 6": 6}), step_tokens_alt(runs, {"budget 6": 6}))
for name, run in runs.items():
    first = {who: next(s.step for s in run.steps if s.end == run.requests[who].token_times[0]) for who in "CD"}
    largest = max(sum(work.count for work in step.live) for step in run.steps)
    print(f"{name:9} first token of C in step {first['C']}, of D in step {first['D']}; largest step {largest} tokens")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Whole: both in step 4, the one in which they enter, and that step computes 14 tokens. Budget 6: A and B leave 4
# tokens for prompts, so C is through in its third chunk, in step 6, and D enters in the same step on what C's last
# chunk leaves.
#
# </details>
#
# ## 3. The bill (4 points)
#
# Counted in steps, the budget looks like a loss. In seconds it is a trade, and you can write the bill without running
# anything. All you need is a rule for how long a step takes. The one below has round figures for Llama-3.1-8B in 16
# bits on an A100: 8 ms to read the weights, and 0.1 ms for each token that the step computes (notebook 04, section 9,
# has 7.9 ms and 51.5 µs from the data sheet; real kernels reach about half of that peak).


# %%
def step_seconds(tokens):
    """How long a step takes that computes so many tokens."""
    return 0.008 + 0.0001 * tokens


for tokens in (3, 256, 2003):
    print(f"{tokens:5} tokens: {1e3 * step_seconds(tokens):6.1f} ms")

# %% [markdown]
# `decodes` others write when a newcomer arrives, and they go on for a long time. The newcomer arrives **{ARRIVES}**,
# and its prompt is computed in the given `chunks`, one a step. TTFT counts from the arrival, so if a step is under
# way, the newcomer waits for its end.
#
# By hand, with chunks of 4 and 2 beside 2 decodes, and steps of `1 + 0.5 * tokens` seconds: a step without the
# newcomer takes 2 s, one with the first chunk 4 s, one with the second 3 s.


# %% answer="bill"
def bill(chunks, decodes, seconds):
    """What the others pay and what the newcomer pays: (longest gap of the others, TTFT of the newcomer), in seconds.

    `seconds(tokens)` is the length of a step that computes so many tokens, whatever they are; it may be any rule
    that grows with the tokens. `decodes` is at least 1. If `chunks` is empty the newcomer never gets on: its TTFT
    is math.inf, and the others go on as before.
    """
    ### BEGIN SOLUTION
    if not chunks:
        return seconds(decodes), math.inf
    steps = [seconds(decodes + size) for size in chunks]
    wait = seconds(decodes) if ARRIVES == "just after a step has begun" else 0
    return max(steps), wait + sum(steps)
    ### END SOLUTION


# %% check="bill_gap" points=2
check_gap(bill)

# %% check="bill_ttft" points=2
check_ttft(bill, arrives=ARRIVES)

# %% [markdown]
# **Predict, then run.** Three write, a prompt of 2,000 tokens comes. From a budget of 512 to one of 256 the longest
# gap almost halves. How much later is the first token of the newcomer: by a tenth, or by a half? And from 32 to 16?

# %% tags=["shows"]
print("budget   chunks   longest gap of the others   TTFT of the newcomer")
for budget in (16, 32, 64, 128, 256, 512, 1024, 2048):
    pieces = chunk_sizes(2000, budget, 3)
    gap, ttft = bill(pieces, 3, step_seconds)
    print(f"{budget:6}   {len(pieces):6}   {1e3 * gap:22.1f} ms   {1e3 * ttft:17.0f} ms")

# %% [markdown]
# <details><summary>Answer</summary>
#
# By little more than a tenth; from 32 to 16 it almost doubles. Each step reads the weights once more, for 8 ms.
# Beside 512 tokens of work that is little, beside 16 it is nearly everything. So the gap has a floor and the TTFT has
# none: below some budget you give much and get nothing.
#
# </details>
#
# Does the engine agree? Your scheduler under this rule, the newcomer D arriving in the middle of a step:

# %% tags=["shows"]
scene = [request("A", 30, 60), request("B", 30, 50), request("C", 30, 55), request("D", 2000, 20, arrival=0.104)]
bounds = {"budget 256": step_seconds(256)}
runs = {}
for name, budget in (("whole", 4096), ("budget 256", 256)):
    scheduler = BudgetScheduler(4, budget, memory=ContiguousMemory(4 * 2100, 2100))
    runs[name] = serve(scheduler, scene, lambda plan: step_seconds(plan.num_tokens))
show(gaps(runs, bounds), gaps_alt(runs, bounds))
for name, budget in (("whole", 4096), ("budget 256", 256)):
    times = {who: latency(record) for who, record in runs[name].requests.items()}
    gap, ttft = bill(chunk_sizes(2000, budget, 3), 3, step_seconds)
    print(f"{name:10}  longest gap of A {1e3 * max(times['A'].itl):3.0f} ms, TTFT of D {1e3 * times['D'].ttft:3.0f} ms")
    print(f"  by your bill              {1e3 * gap:3.0f} ms           {1e3 * ttft:3.0f} ms")

# %% [markdown]
# The gap is what the bill says. The TTFT is the bill's to within one short step of three tokens: D comes in the
# middle of one.
#
# ## 4. The largest budget that keeps the target (3 points)
#
# A bill for one newcomer is not a service. In real traffic several prompts come at once, they share the budget, and
# some of them wait for each other. So measure: serve the traffic under each budget, look at the gaps, choose.
#
# * A **gap** (ITL) lies between two consecutive tokens of one request. The wait for the first token is no gap.
# * The gaps of all requests are pooled. The target is on the **{TARGET_ON}**. With "longest gap" none of them may be
#   longer than the target; with "p99" their 99th percentile (nearest rank: `percentile(values, 99)`) may not.
# * Exactly as long as the target is still good.
#
# `latency(record)` of a finished request (`trace.finished` lists them) has its `ttft` and its gaps, `itl`.


# %% answer="largest_budget"
def largest_budget(target, budgets, run):
    """The largest of the `budgets` under which the gaps keep the `target`, in seconds, by TARGET_ON; 0 if none does.

    `budgets` is a list, in any order. `run(budget)` serves the traffic under a budget and returns the trace.
    """
    ### BEGIN SOLUTION
    best = 0
    for budget in budgets:
        waits = [gap for record in run(budget).finished for gap in latency(record).itl]
        worst = percentile(waits, 99) if TARGET_ON == "p99" else max(waits)
        if worst <= target:
            best = max(best, budget)
    return best
    ### END SOLUTION


# %% check="largest_budget_right" points=3
check_largest_budget(largest_budget, target_on=TARGET_ON)

# %% [markdown]
# Now for real traffic: the first 200 requests of Azure's conversation trace of 2023, at the speed at which they came,
# 64 slots, your scheduler and the rule of section 3.

# %% tags=["shows"]
traffic = to_requests(azure_trace("conv")[:200], vocab_size=1000)
budgets = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
azure = {}
for budget in budgets:
    scheduler = BudgetScheduler(64, budget, memory=ContiguousMemory(64 * 8192, 8192))
    azure[budget] = serve(scheduler, traffic, lambda plan: step_seconds(plan.num_tokens))
print("budget   longest gap        p99    TTFT p50    TTFT p95")
for budget, run in azure.items():
    row, longest = summarise(run), max(gap for record in run.finished for gap in latency(record).itl)
    gap_columns = f"{1e3 * longest:8.0f} ms  {1e3 * row.itl_p99:6.0f} ms"
    print(f"{budget:6}   {gap_columns}   {row.ttft_p50:7.2f} s   {row.ttft_p95:7.2f} s")

# %% tags=["shows"]
for target in (0.01, 0.1, 0.5):
    print(f"target {target:4} s: budget {largest_budget(target, budgets, azure.get)}")

# %% [markdown]
# There is the answer to the question. A tenth of a second between two tokens allows a budget of 512, and half of the
# newcomers then have their first token within two tenths of a second; with 16 times the budget it would be a little
# earlier. A budget of 64 makes the gaps four times shorter still, and half of the newcomers wait two seconds or more:
# their prompts queue behind each other. 10 ms cannot be had at any of these budgets, since reading the weights takes
# 8 of them.
#
# Sarathi-Serve (OSDI 2024), the paper behind all this, names the same two targets, 0.1 s and 0.5 s (on the p99 gap,
# Mistral-7B on one A100), and takes budgets of 512 and 2,048 for them.
#
# Compare the columns "longest gap" and "p99" at the bottom. Up to 2,048 they are one: under a budget the promise is
# for every gap. Above it a full step is rare, and the p99 no longer sees the worst. With budgets from 4,096 to 8,192
# it even falls while the longest gap grows by half.
#
# ## 5. On the real engine
#
# Your scheduler runs a model. Three short requests are writing when a long prompt comes, and one more short request
# behind it. The embedded model is small and knows little, but it computes every token of every chunk.

# %% tags=["shows"]
model = load_model("tiny")
asked = dict(chat_prompts("tiny"))
short = [model.request(name, asked[name], max_new_tokens=24, stop_token_ids=()) for name in ("R1", "R2", "R5")]
long = model.request("long", "; ".join(asked.values())[:200], max_new_tokens=8, stop_token_ids=())
late = model.request("R9", asked["R9"], max_new_tokens=8, stop_token_ids=())


def serve_model(budget, cap=None):
    """The trace of the three, and after 8 steps the two that come later."""
    memory = ContiguousMemory(5 * 256, max_model_len=256)
    engine = Engine(BudgetScheduler(5, budget, cap, memory), model.executor(memory))
    for one in short:
        engine.submit(one)
    for _ in range(8):
        engine.step()
    for one in (long, late):
        engine.submit(replace(one, arrival=engine.now))
    while engine.step():
        pass
    return engine.trace


runs = {"whole": serve_model(4096), "budget 32": serve_model(32), "budget 32, cap 16": serve_model(32, 16)}
show(slots(runs), alt(runs))
print(caption(runs))

# %% tags=["shows"]
limits = {"budget 32": 32, "budget 32, cap 16": 32}
show(step_tokens(runs, limits), step_tokens_alt(runs, limits))
for name, run in runs.items():
    largest = max(sum(work.count for work in step.live) for step in run.steps)
    print(f"{name:18} largest step {largest:3} tokens, texts {tokens_sha256(run)[:16]}")

# %% [markdown]
# The slot pictures differ and the fingerprints of the texts do not: a prompt in pieces is the same prompt. In the
# third picture R9 enters beside the long prompt instead of behind it.
#
# ## What you saw
#
# * A chunk is what a step's budget leaves, and only the last one of a prompt yields a token.
# * One line and one budget: who writes, whose prompt has begun, who waits. Whoever writes is in every step, so a gap
#   is at most one step of `token_budget` tokens, whatever prompt arrives.
# * The newcomer pays with steps: each chunk reads the weights once more. Down to some budget that is cheap, below it
#   is not.
# * In traffic the first to pay are the prompts behind a prompt: with a small budget they queue.
# * A cap lets short prompts pass beside a long one, within the same bound.
# * A target on a percentile can be kept by a budget that breaks it for the longest gap.
#
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`, `schedule()`: one `token_budget` (`max_num_batched_tokens`), first
#   for `self.running`, then for `self.waiting`. It goes through `running` in the order of admission; why does that
#   come to the same as your line? `long_prefill_token_threshold` is the cap.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/microBatchScheduler.cpp`: `max_num_tokens` is the budget, and a
#   chunk that is not the last is a multiple of the KV block. `context_chunking_policy` says whether prompts are
#   served in order or by turns.
# * **SGLang**, `python/sglang/srt/managers/schedule_policy.py`, `PrefillAdder`: prompts go first, in steps of their
#   own, and at most one of them is cut; `--enable-mixed-chunk` (off by default) puts the decodes into the same step.
# * **llama.cpp**, `update_slots` in `tools/server`: the tokens of all who write, then prompts until `n_batch` is
#   full.
# * In this package: `minibatch/schedulers/mix.py`, `Chunked`, and `minibatch/schedulers/mix_cut.py`, `BlockChunks`.
#
# As of the versions read for this course; defaults change. Next: [Lab 4](lab4.ipynb): the memory behind all this.
