# %% [markdown]
# # Lab 1: the static batcher and its dead slots
#
# About an hour. No GPU needed. 19 points.
#
# You need [02 Static batching](../02_static_batching.ipynb). At the end you can answer what anyone who runs such a server is asked: **what
# does a batch that closes cost, and how do I count it?** You count it three times: from the lengths of the answers, with a batcher of
# your own, and from the record of a run, which is all that a running server leaves you.
#
# You write where it says `YOUR CODE HERE`; run that cell, then the checks below it. A check is red until you have answered: NOT YET
# means that nothing is written, CHECK FAILED says what is wrong, with the smallest example that shows it. No output means that it passes.
# Each check counts by itself, so a part that is right has its points.
#
# Previous: [02 Static batching](../02_static_batching.ipynb) · Next: [Lab 2](lab2.ipynb)

# %%
from typing import NamedTuple

import torch
import torch.nn.functional as F

from minibatch import load_model
from minibatch.checks.lab1 import check_door, check_positions, check_rows, check_useful, check_wasted
from minibatch.checks.lab1_batcher import check_batches, check_closing, check_dead_rows, check_lost, check_mean_live
from minibatch.checks.serving import requests_of, serve
from minibatch.memory import ContiguousMemory
from minibatch.metrics import latency
from minibatch.plot import alt, caption, show, show_source, slots, slots_text
from minibatch.schedulers import Scheduler
from minibatch.schedulers.base import next_chunk
from minibatch.step import Chunk, StepPlan
from minibatch.workload import azure_trace, chat_prompts

# %% [markdown]
# Four rules differ from server to server, and from class to class. These are yours; each question says what its rule means.

# %%
ROWS = "held"  # variant: "held" "all"
PAD_SIDE = "left"  # variant: "left" "right"
CLOSES = "oldest"  # variant: "oldest" "nobody"
MAX_WAIT = 2.0  # variant: 2.0 3.0 5.0

# %% [markdown]
# ## 1. The bill
#
# You are asked how many GPUs a service needs. The GPUs are busy all day, so a graph of their load does not tell. Count **slot-steps**
# instead: one slot for one step is what you pay for.
#
# * *Useful*: it brought a token that somebody wanted. The step that computes a prompt brings the first token of its answer, so an answer
#   of n tokens takes n steps.
# * *Dead*: its answer has ended, and the batch has not.
# * *Empty*: nobody holds the slot, because the last batch of the queue is not full.
#
# By hand, with answers of 2, 4 and 2 tokens on two slots: the first batch takes 4 steps, 8 slot-steps, of which 6 are useful and 2
# dead. The second takes 2 steps, with 2 slot-steps useful and 2 empty. Is an empty one wasted? That depends on the machine:
#
# | `ROWS` | a step computes | empty slots |
# |---|---|---|
# | `held` | one row for each slot that somebody holds, dead or not | cost nothing |
# | `all` | `num_slots` rows, always: a program compiled for one size of batch | are wasted, as dead ones are |
#
# In this lab: `ROWS` is **{ROWS}**.


# %% answer="bill"
def bill(lengths, num_slots):
    """Slot-steps of a static batcher: the pair (useful, wasted).

    `lengths`: tokens of each answer, in order of arrival; all are there at the start. `num_slots` of them make a
    batch, in that order; the last batch may have fewer. The next one starts in the step after the longest has ended.
    """
    ### BEGIN SOLUTION
    useful, wasted = sum(lengths), 0
    for first in range(0, len(lengths), num_slots):
        batch = lengths[first : first + num_slots]
        rows = num_slots if ROWS == "all" else len(batch)
        wasted += rows * max(batch) - sum(batch)
    return useful, wasted
    ### END SOLUTION


# %% check="useful" points=1
check_useful(bill)

# %% check="wasted" points=2
check_wasted(bill, rows=ROWS)

# %% [markdown]
# **Predict, then run.** Article 1's batch: one answer of 20 tokens, one of 900. What share of its slot-steps is wasted? And if the one of
# 900 shares its batch with *seven* of 20 tokens?
#
# <details><summary>Answer</summary>
#
# 880 of 1,800 slot-steps, 49 %; with seven short ones 6,160 of 7,200, 86 %. A larger batch does not make the long answer cheaper: it
# makes more neighbours wait for it.
#
# </details>

# %% tags=["shows"]
for lengths in ([20, 900], [20] * 7 + [900]):
    useful, wasted = bill(lengths, len(lengths))
    print(f"{useful:,} slot-steps useful, {wasted:,} wasted: {wasted / (useful + wasted):.0%}")

# %% [markdown]
# Now an hour of two real services (Azure 2023 traces, Splitwise, ISCA 2024), eight at a time. The prompts of a batch are computed as
# a rectangle as wide as the longest one: the same sum over another list, so your function counts their padding too, in tokens.

# %% tags=["shows"]
for name in ("conv", "code"):
    for what in ("output_tokens", "prompt_tokens"):
        useful, wasted = bill([getattr(one, what) for one in azure_trace(name)], num_slots=8)
        print(f"Azure {name}, {what}: {wasted / (useful + wasted):.0%} wasted")

# %% [markdown]
# ## 2. The rectangle
#
# Padding costs work. Done wrong, it also changes what the model says, and nothing crashes: short prompts just get worse answers, and only
# in company. Three ways to do it wrong, each met in real libraries:
#
# * positions that count the padding. Two tokens padded on the left to a width of four stand in columns 2 and 3; their positions are
#   0 and 1;
# * the next token read off the wrong column. It is chosen from the row's last *real* token, which need not be in the last column;
# * real tokens told from padding by their id. Many models have no pad id of their own, so that of some other token is used, and then it may
#   well stand in a prompt.
#
# The prompts `[5, 6, 7]` and `[8]` with pad id 0 make the rows `[5, 6, 7]` and `[0, 0, 8]` if padding stands on the left, `[8, 0, 0]` if
# on the right. In this lab it stands on the **{PAD_SIDE}**.


# %%
class Rectangle(NamedTuple):
    """A batch of prompts, filled up to one length. Lists of rows, all equally long, in the order of the prompts."""

    tokens: list[list[int]]
    real: list[list[bool]]  # True where a prompt's token stands, False at padding
    positions: list[list[int]]  # of each real token in its own prompt, from 0; at padding any number from 0 on will do
    last: list[int]  # for each row, the column (from 0) of its last real token


# %% answer="rectangle"
def rectangle(prompts, pad_id):
    """The `Rectangle` of `prompts`, lists of token ids, none empty: as narrow as possible, filled up with `pad_id`."""
    ### BEGIN SOLUTION
    width = max(len(prompt) for prompt in prompts)
    result = Rectangle([], [], [], [])
    for prompt in prompts:
        size, rest = len(prompt), width - len(prompt)
        before, after = (rest, 0) if PAD_SIDE == "left" else (0, rest)
        result.tokens.append([pad_id] * before + list(prompt) + [pad_id] * after)
        result.real.append([False] * before + [True] * size + [False] * after)
        result.positions.append([0] * before + list(range(size)) + [0] * after)
        result.last.append(before + size - 1)
    return result
    ### END SOLUTION


# %% check="rows" points=2
check_rows(rectangle, pad_side=PAD_SIDE)

# %% check="positions" points=2
check_positions(rectangle, pad_side=PAD_SIDE)

# %% [markdown]
# Is it right? Ask a model. This sends your rectangle through the course's embedded one; a token looks backwards, and only at real tokens.

# %% tags=["shows"]
model = load_model("tiny")


@torch.inference_mode()
def next_scores(rectangle):
    """The model's scores of the next token, [rows, vocabulary]."""
    real, tokens, positions = (torch.tensor(part) for part in (rectangle.real, rectangle.tokens, rectangle.positions))
    count, width = tokens.shape
    seen = real[:, None] & torch.ones(width, width, dtype=torch.bool).tril()
    seen |= torch.eye(width, dtype=torch.bool)  # padding sees itself, or its softmax would have nothing to sum

    def attend(layer, q, k, v):
        q, k, v = (x.view(count, width, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], enable_gqa=True)
        return out.transpose(1, 2).reshape(count * width, -1)

    hidden = model.llama.forward(tokens.flatten(), positions.flatten(), attend).view(count, width, -1)
    return model.llama.logits(hidden[range(count), rectangle.last])


# %% [markdown]
# **Predict, then run.** "count to 33" shares a batch with a prompt of three times its length. Below are your rectangle and the three mistakes, the
# third one carried as far as it goes: all padding is taken for real. Which of them change its scores, with padding on the {PAD_SIDE}?
#
# <details><summary>Answer</summary>
#
# On the left, the padding that is taken for real: it stands *before* the prompt, every token sees it, and the model starts to count with a
# letter. On the right no token looks that way; there it is the last column that is wrong. Positions that count padding do no harm
# here: on the right there is none to count before a token, and on the left all tokens of a row are moved alike, and this model (RoPE)
# sees only distances. That is luck. A model with learned positions would notice, and so would this one as soon as decode went on
# counting from the true length.
#
# </details>

# %% tags=["shows"]
texts = ("count to 33", "tell a story in 6 lines about a sailor")
prompts = [model.tokenizer.chat(text) for text in texts]
alone = next_scores(rectangle(prompts[:1], pad_id=0))[0]
together = Rectangle(*rectangle(prompts, pad_id=0))
width = len(together.tokens[0])
mistakes = {
    "your rectangle": {},
    "positions count padding": {"positions": [list(range(width))] * 2},
    "last column": {"last": [width - 1] * 2},
    "padding taken for real": {"real": [[True] * width] * 2},
}
for name, change in mistakes.items():
    scores = next_scores(together._replace(**change))[0]
    said = model.tokenizer.decode([scores.argmax().item()])
    print(f"{name:23}: scores change by {(scores - alone).abs().max():5.2f} at most; next token {said!r}")

# %% [markdown]
# ## 3. When the door closes
#
# No batch is running and somebody waits: start now, or hope for company? Starting early computes half-empty batches; waiting is paid for by
# whoever came first. A batch starts when it is full, or else by one of two rules:
#
# | `CLOSES` | a batch that is not full starts | who does so |
# |---|---|---|
# | `oldest` | when its oldest request has waited `MAX_WAIT` seconds or more | a server, which cannot know who is yet to come |
# | `nobody` | when nobody else is coming (`more_coming` is False), and not before | an offline job over a file of prompts |
#
# In this lab: `CLOSES` is **{CLOSES}** and `MAX_WAIT` is {MAX_WAIT} seconds. By hand, two slots: A comes at 0 s, B at 1 s. With either rule
# they start at 1 s, for then the batch is full. If A comes alone, `oldest` lets A start at {MAX_WAIT} s, and `nobody` at 0 s.
#
# The mistake to avoid: a clock that each arrival starts again. Requests that trickle in then hold the door open for one another, and the first
# waits far longer than `MAX_WAIT`. The clock belongs to the oldest.


# %% answer="ready"
def ready(arrivals, now, num_slots, more_coming):
    """True if a batch may start now. No batch is running.

    `arrivals`: when those who wait came, in seconds, oldest first; if nobody waits, either answer will do, but give
    one. `now` in seconds. `more_coming`: does anybody know of requests that are yet to come?
    """
    ### BEGIN SOLUTION
    if len(arrivals) >= num_slots:
        return True
    if CLOSES == "nobody":
        return not more_coming
    return bool(arrivals) and now - arrivals[0] >= MAX_WAIT
    ### END SOLUTION


# %% check="door" points=2
check_door(ready, closes=CLOSES, max_wait=MAX_WAIT)

# %% [markdown]
# ## 4. The batcher
#
# An engine asks its scheduler for one step at a time: `schedule(now)` answers with a `StepPlan`, an executor computes it, and those
# who ended are handed to `leave(done)`. The base class has the queue and the slots. This is what you can use of it; by default, who
# has finished leaves at once:

# %% tags=["shows"]
show_source(Scheduler.admit)
show_source(Scheduler.leave)
show_source(next_chunk)

# %% [markdown]
# A static batch differs in two places. The door: nobody is admitted while a batch runs. The way out: nobody leaves before all have ended.
# Who has ended is computed all the same, as a *dead row*. What is there to compute for it? Say A has a prompt of 1 token and an answer
# of 2. After step 2 it has 3 tokens, at positions 0 to 2, of which 0 and 1 are stored; the last token of an answer is never fed back. Its
# dead row is the last stored position over again, in its own slot: `Chunk(sequence, slot, start=1, count=1)`. Nothing new is stored by it.
#
# (If you have skipped question 3, let `ready` say `return len(arrivals) >= num_slots` for the time being.)


# %% answer="batcher"
class Batcher(Scheduler):
    """Fill the batch, close the door, open it when ALL have ended.

    From the base class: `self.waiting`, the queue; `self.running`, the list of those who hold a slot, finished or not;
    `self.admit(now)`, which fills free slots from the head of the queue and returns the list of those who got in.
    A sequence knows its `request_id`, `slot`, `num_computed_tokens` (tokens stored) and whether it `is_finished`.
    """

    name = "static"
    padded = True

    def may_start(self, now: float) -> bool:
        """Given: asks your ready()."""
        arrivals = [sequence.request.arrival for sequence in self.waiting]
        return ready(arrivals, now, self.max_num_seqs, self.more_coming)

    def wake_at(self) -> float | None:
        """Given: the engine should ask again then, even if nobody arrives."""
        return self.waiting[0].request.arrival + MAX_WAIT if self.waiting and CLOSES == "oldest" else None

    def schedule(self, now: float) -> StepPlan:
        """One step: a new batch if none is running and one may start; then everybody who holds a slot.

        StepPlan(chunks, dead, admitted, padded): `chunks`, a tuple with the next_chunk() of each who has not finished;
        `dead`, a tuple with the row of each who has, as described above; `admitted`, a tuple of the request ids of
        those who got in just now; `padded`, True. No chunks at all means: nothing to do now.
        """
        ### BEGIN SOLUTION
        admitted = self.admit(now) if not self.running and self.may_start(now) else []
        live = [sequence for sequence in self.running if not sequence.is_finished]
        dead = [sequence for sequence in self.running if sequence.is_finished]
        return StepPlan(
            chunks=tuple(next_chunk(sequence) for sequence in live),
            dead=tuple(Chunk(sequence, sequence.slot, sequence.num_computed_tokens - 1, 1) for sequence in dead),
            admitted=tuple(sequence.request_id for sequence in admitted),
            padded=True,
        )
        ### END SOLUTION

    def leave(self, done: list) -> None:
        """`done` have just finished. When all of the batch have, all give back slot and memory, as the base class does."""
        ### BEGIN SOLUTION
        if all(sequence.is_finished for sequence in self.running):
            super().leave(list(self.running))
        ### END SOLUTION


# %% check="batches" points=3
check_batches(Batcher)

# %% check="dead_rows" points=3
check_dead_rows(Batcher)

# %% check="closing" points=1
check_closing(Batcher, closes=CLOSES, max_wait=MAX_WAIT)


# %% [markdown]
# Article 3's example on the engine, steps of one second. `serve` runs your batcher and looks over every plan. A is dead (`░`) while C waits:

# %% tags=["shows"]
print(slots_text(serve(Batcher(max_num_seqs=2), requests_of([2, 4, 2]))))

# %% [markdown]
# **Predict, then run.** A and B need 20 and 900 steps and are there at 0 s. C wants a single token and comes at 1 s, one step too late.
# What is its time to first token? What would it have been with a batcher that gives a slot away as soon as its answer has ended?
#
# <details><summary>Answer</summary>
#
# 900 s: it waits from second 1 to second 900, and its own step takes one. A's slot was dead from step 21 on: with it C would have had
# its token at second 21, after 20 s. Lab 2 writes that batcher.
#
# </details>

# %% tags=["shows"]
late = serve(Batcher(max_num_seqs=2), requests_of([20, 900, 1], arrivals=[0, 0, 1]))
print(f"C: time to first token {latency(late.requests['C']).ttft:.0f} s")

# %% [markdown]
# ## 5. The bill of a run that you did not plan
#
# Question 1 took the lengths for granted; of a running server you have a record. A `Trace` has `steps`; each says who was `live` and who was
# `dead` in it (tuples, an entry a slot) and how many were `waiting` in the queue meanwhile.
#
# Two numbers tell most of the story. The **mean of live slots** says how large your batch really is, whatever the configuration says. And of
# the dead slot-steps, count as **lost** only those that somebody could have used: with three slots dead and one request in the queue,
# one is lost; with an empty queue, none is. If little is lost, you need more traffic, not another scheduler.
#
# By hand, article 3's trace above: 2, 2, 1, 1, 1 and 1 slots are live in its six steps, 8/6 on average, and 2 slot-steps are lost.


# %% answer="read_trace"
def read_trace(trace):
    """The pair (mean of live slots over the steps, dead slot-steps that somebody in the queue could have used)."""
    ### BEGIN SOLUTION
    live = sum(len(step.live) for step in trace.steps)
    lost = sum(min(len(step.dead), step.waiting) for step in trace.steps)
    return live / len(trace.steps), lost
    ### END SOLUTION


# %% check="mean_live" points=1
check_mean_live(read_trace)

# %% check="lost" points=2
check_lost(read_trace)

# %% [markdown]
# ## Your batcher on a model
#
# Twelve chat requests, all there at the start, four slots. The model ends its answers when it chooses to.
#
# **Predict, then run.** Three batches. The first holds "count to 33" (R1), "list 8 months" (R2), "count down from 10" (R3) and "tell a story
# in 6 lines about a sailor" (R4). Whose slot will be dead for most of it? And in the *last* batch, are the dead slots lost?
#
# <details><summary>Answer</summary>
#
# R3's: it ends after 21 tokens, and R4 runs to 128. In the last batch the queue is empty: its slots die all the same, and nothing is
# lost by it.
#
# </details>

# %% tags=["shows"]
requests = [model.request(name, text, max_new_tokens=128) for name, text in chat_prompts("tiny")[:12]]
memory = ContiguousMemory(num_positions=4 * 256, max_model_len=256)
real = serve(Batcher(max_num_seqs=4, memory=memory), requests, model.executor(memory))
show(slots(real), alt(real))
print(caption(real))

# %% tags=["shows"]
mean_live, lost = read_trace(real)
dead = sum(len(step.dead) for step in real.steps)
useful, wasted = bill([len(record.tokens) for record in real.requests.values()], num_slots=4)
print(f"{mean_live:.1f} of 4 slots live on average; {dead} slot-steps dead, of which {lost} lost")
print(f"your bill for these lengths: {useful} useful, {wasted} wasted")

# %% [markdown]
# Nearly half of the slot-steps were for nobody, and somebody in the queue could have had most of those. Your bill, made from the lengths
# alone, agrees with what the run recorded.

# %% [markdown]
# ## What you saw
#
# * A batch that closes costs its longest answer times its rows. {20, 900}: 880 slot-steps of 1,800 for nobody. Eight at a time, an hour of
#   Azure's code service wastes 73 % of its slot-steps, and 62 % of the prompt tokens it computes, by the same sum.
# * Padding done right changes nothing. Which mistake shows depends on the side of the padding, and on the model.
# * The rule of the door decides who waits for company. It does nothing about dead slots.
# * One step too late costs a whole batch: a request for a single token waited 900 steps.
# * Of dead slot-steps, those count that the queue could have used: 390 of 510 in your run on the model.
#
# ## Where to read this in vLLM and friends
#
# * **transformers**, `src/transformers/generation/utils.py`: `generate()` with a list of prompts is question 4. `unfinished_sequences` is the
#   list of who is live; the others are computed to the end.
# * **Triton**, `src/dynamic_batch_scheduler.cc` of the `core` repository: question 3 with `max_queue_delay_microseconds`.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`: the policy `STATIC_BATCH` looks at waiting requests only when
#   nothing is scheduled. Its documentation calls it legacy.
# * **minibatch**, `schedulers/static.py` and `schedulers/dynamic.py`: both rules of question 3, in the package.
#
# Next: [Lab 2](lab2.ipynb): the batch that never closes.
