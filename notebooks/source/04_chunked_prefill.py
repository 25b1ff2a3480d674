# %% [markdown]
# # 04 The newcomer who kicks the door: chunked prefill
#
# About 30 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [03](03_iteration_level.ipynb): a batch that never closes, and a step that holds a prefill and decodes. At the end you can say
#
# * why the answers of others stall when somebody enters, and by how much;
# * what a step may contain: whole prompts, prompts first, or a **token budget**;
# * which bound a budget puts on the gap between two tokens, and what it costs in time to the first one;
# * why a dashboard that plots load does not explain the stalls.
#
# Previous: [03 Iteration-level scheduling](03_iteration_level.ipynb) · Next: [05 KV memory](05_kv_memory.ipynb)
#
# Articles: 1, "o preço: a fornada tinha uma virtude"; 2, "pré-preenchimento fragmentado"; 3, "o que acontece com a latência?". Lab: [3, a
# token budget](labs/lab3.ipynb). Words: [glossary](GLOSSARY.md).

# %%
from statistics import correlation, linear_regression, mean

import matplotlib.pyplot as plt

from minibatch import Engine, Request, SamplingParams, build_engine, load_model
from minibatch.bench import stored_report
from minibatch.checks.base import attempt
from minibatch.checks.nb04 import check_budget_for, check_largest_gap, check_split_budget
from minibatch.memory import ContiguousMemory
from minibatch.metrics import latency, percentile, summarise, tokens_sha256
from minibatch.plot import alt, caption, show, show_source, slots
from minibatch.plot.colours import PALETTE
from minibatch.plot.gaps import gaps, gaps_alt, gaps_of
from minibatch.plot.tokens import step_tokens, step_tokens_alt
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.mix import Chunked, PrefillFirst, WholePrefills
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import azure_trace, chat_prompts, to_requests

# %% [markdown]
# ## 1. The bill of the batch that never closes
#
# | where | what it says | here |
# |---|---|---|
# | article 1, "o preço: a fornada tinha uma virtude" | whoever enters brings a prefill, and everyone who was writing feels an *engasgo*, a stall | sections 2 to 4 |
# | the same | the static batch did not have this: all prompts first, then a clean decode | section 4 |
# | the same | the peaks follow admissions, not the total load | section 6 |
# | the same, and article 2, "Pré-preenchimento fragmentado" | *prefill fatiado*: cut the prompt into pieces, and pay for an admission in instalments | sections 2 and 4 |
# | article 3, "O que acontece com a latência?" | a small budget of tokens a step favours the gap between tokens, a large one the time to the first: choose it for your load | section 7 |
#
# The *engasgo* sits in a line of article 1's second listing that looks harmless: `Sequencia.Iniciar(nova)`. It hides a whole prefill.
#
# ## 2. What may one step contain?
#
# `IterationScheduler` of notebook 03 takes this decision as a parameter, `mix`. A mix policy fills a *draft* of the next step with two
# calls: `compute` gives a sequence that holds a slot its next chunk, `admit` lets in the next of the queue with its first chunk.

# %%
show_source(Draft)

# %% [markdown]
# There is no word "prefill" in it. Each sequence has `num_computed_tokens`, which chases `num_tokens`; a *chunk* is all or part of what is
# missing. A whole prompt, a part of one, and the one token of a decode are the same thing, cut at different lengths. (The loop with
# `choose_victim` is for memory that runs out: notebook 07.)
#
# The policy you know is the first one. Exit is in `leave()`, as before; here are admission and step of the article's loop:

# %%
show_source(WholePrefills)

# %% [markdown]
# The other way to schedule whole prompts keeps them apart from the decodes, as vLLM did at first and SGLang does unless told otherwise:

# %%
show_source(PrefillFirst)

# %% [markdown]
# And the third is the first again, under a budget. The loop is inherited: what cuts the prompt is the `min` in `Draft.compute`.

# %%
show_source(Chunked)

# %% [markdown]
# **Predict, then run.** A and B are writing. Before step 4, C arrives with a prompt of 10 tokens. The chunked scheduler has a budget of 4
# tokens a step. Under each of the three: in which step does C get its first token, and do A and B get one in every step?


# %%
def request(name, prompt, output, arrival=0.0):
    """A request known by its lengths, in tokens, and its arrival in seconds."""
    return Request(name, prompt=(1,) * prompt, sampling=SamplingParams(output), arrival=arrival)


def serve(scheduler, requests, seconds_per_step=1.0):
    """The trace of a run without a model."""
    return Engine(scheduler, ScriptedExecutor(seconds_per_step=seconds_per_step)).run(requests)


toy = [request("A", 2, 12), request("B", 2, 11), request("C", 10, 4, arrival=2.5)]
mixes = {"whole": WholePrefills(), "prefill_first": PrefillFirst(), "chunked": Chunked(token_budget=4)}
runs = {name: serve(IterationScheduler(3, mix=mix), toy) for name, mix in mixes.items()}
show(slots(runs), alt(runs))
print(caption(runs))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Whole: in step 4, the step in which C enters, and A and B get theirs in it too. Prefill first: also in step 4, but A and B are not in that
# step at all. Chunked: A and B take 2 of the 4 tokens in every step, C's prompt gets the other 2, so it needs steps 4 to 8.
#
# </details>
#
# Counted in steps, whole prefills look best and chunks look slow. That is because a step of this picture has the same width whatever it
# computes. Look at what is in them:

# %%
show(step_tokens(runs, {"chunked": 4}), step_tokens_alt(runs, {"chunked": 4}))
for name, run in runs.items():
    largest = max(sum(work.count for work in step.live) for step in run.steps)
    first = next(step.step for step in run.steps if step.end == run.requests["C"].token_times[0])
    print(f"{name:13} C's first token in step {first}; the largest step computes {largest} tokens")

# %% [markdown]
# Step 4 of the first run computes 12 tokens for A and B to get one each. Under the budget no step is larger than 4, and A and B are in all
# of them.
#
# What does a prompt in chunks look like from inside? The same prompt of 10 tokens, alone, under the same budget:

# %%
for step in serve(IterationScheduler(1, mix=Chunked(4)), [request("C", 10, 3)]).steps:
    work = step.live[0]
    token = "a new token" if work.start + work.count >= 10 else "nothing to say yet"
    print(f"step {step.step}: computes [{work.start}, {work.start + work.count}) -> {token}")

# %% [markdown]
# Each chunk writes its K and V and looks back at those of the chunks before it, so the last one computes what a whole prefill would have
# computed. Only the chunk that reaches the end of the prompt has a next token to choose.
#
# ## 3. What a step costs
#
# Notebook 01 measured it: a step has to read all the weights, whatever it computes, and then works for each token. A straight line
# through the measured steps of 1 to 64 tokens (float32, the machine on record) makes a rule out of that:

# %%
report = stored_report()
rows = report.of("float32")
PER_TOKEN, CONSTANT = linear_regression([row.batch for row in rows], [row.step_ms / 1e3 for row in rows])
print(f"{report.where_and_when}\n{report.command}")
print(f"a step takes {1e3 * CONSTANT:.0f} ms, and {1e3 * PER_TOKEN:.2f} ms for each token that it computes")


def step_seconds(tokens):
    """The rule of this notebook: seconds of a step that computes so many tokens."""
    return CONSTANT + PER_TOKEN * tokens


for tokens in (3, 256, 2003):
    print(f"{tokens:5} tokens: {step_seconds(tokens):5.2f} s")

# %% [markdown]
# A rule, not the truth: it goes on in a straight line far beyond 64 tokens, and it does not know that a token with much context costs more than
# one with little. It is good enough to see the shape of things, it is the same on every machine, and section 4 has the real model beside
# it. From here on simulated seconds come from this rule.
#
# ## 4. The stall
#
# A, B and C are writing when D comes with a prompt of 2,000 tokens.
#
# **Predict, then run.** One decode step takes about 0.07 s. How long is the longest gap in A's answer under whole prefills? Under a
# budget of 256? And when does A's answer end, in each?


# %%
def timed(scheduler, requests):
    """A run in which a step takes as long as the rule says."""
    return serve(scheduler, requests, seconds_per_step=lambda plan: step_seconds(plan.num_tokens))


scene = [request("A", 30, 60), request("B", 30, 50), request("C", 30, 55), request("D", 2000, 20, arrival=1.0)]
mixes = {"whole": WholePrefills(), "prefill_first": PrefillFirst(), "chunked, budget 256": Chunked(256)}
runs = {"static": timed(StaticBatcher(4, ContiguousMemory(4 * 2100, 2100)), scene)}
for name, mix in mixes.items():
    runs[name] = timed(IterationScheduler(4, ContiguousMemory(4 * 2100, 2100), mix=mix), scene)
bounds = {"chunked, budget 256": step_seconds(256)}
show(gaps(runs, bounds), gaps_alt(runs, bounds))

# %%
print("                     longest gap of A   A ends   D's TTFT")
for name, run in runs.items():
    a, d = latency(run.requests["A"]), latency(run.requests["D"])
    print(f"{name:20}  {max(a.itl):14.2f} s  {a.e2e:5.1f} s  {d.ttft:7.1f} s")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 7.2 s under whole prefills: one token takes a hundred times as long as the one before it. Under the budget no gap passes 0.97 s, the
# length of a step of 256 tokens. And A ends at the same moment in both, to within the rounding: the work is the same.
#
# </details>
#
# Read the panels from top to bottom.
#
# * **static**: the virtue of the *fornada*. All prompts are computed together at the start and then nothing disturbs the decode. It is
#   bought with the wait: A has to wait for D, whom it does not know.
# * **whole**: A, B and C fall silent for as long as D's prompt takes.
# * **prefill_first**: the same silence and then one step more, because their next token is not in the step that computes the prompt. D has its
#   first token one step before the others go on.
# * **chunked**: paid in instalments. Eight gaps of a second instead of one of seven.
#
# The bound is not a measurement, it is a promise: **a step computes at most `token_budget` tokens, and everyone who runs is in every
# step; so no gap is longer than a step of that many tokens**. It holds for any prompt, however long.
#
# It costs something too: D's first token comes half a second later. Three tokens of each step's 256 are not D's, and the weights
# are read eight times where once would do.
#
# Now the real model: three chat requests that write, and a prompt of 2,000 tokens after half a second. (It can hold 8,192 positions.) The numbers
# are of your machine and are not kept. It takes about 20 seconds.

# %%
model = load_model("smollm2")
prompts = chat_prompts("smollm2")
print("positions the model can hold:", model.config.max_position_embeddings)
text = " ".join(text for _, text in prompts)
long_prompt = tuple(model.tokenizer.chat(12 * text))[:2000]
writing = [model.request(name, text, max_new_tokens=16, stop_token_ids=()) for name, text in prompts[:3]]
newcomer = Request("long", long_prompt, SamplingParams(max_new_tokens=4), arrival=0.5)

# %% tags=["local"]
for mix in (WholePrefills(), Chunked(256)):
    engine = build_engine(model, max_num_seqs=4, max_model_len=2100, reserve="exact", num_positions=2300, mix=mix)
    run = engine.run([*writing, newcomer])
    waits = sorted(gap.seconds for gap in gaps_of(run) if gap.request_id != "long")
    print(f"{mix}: median gap {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s;", end=" ")
    print(f"TTFT of the long prompt {latency(run.requests['long']).ttft:.1f} s")
    work = [(sum(work.count for work in step.live), step.end - step.start) for step in run.steps]
    print("   tokens and seconds of the large steps:", *(f"{n}: {s:.2f}" for n, s in work if n > 100))

# %% [markdown]
# The same shape. Look at the last line: chunks of the same size take longer and longer (on a machine that does nothing else), since each looks back at all that came before it.
# So with a real model the bound holds for a step of so many tokens *and so much context*.
#
# ## 5. The same text
#
# A prompt in three pieces must give what the prompt in one piece gives. Eight chat requests on four slots, four ways to mix them:

# %%
chat = [model.request(name, text, max_new_tokens=12) for name, text in prompts[:8]]
mixes = [WholePrefills(), PrefillFirst(), Chunked(32), Chunked(32, chunk_cap=12)]
real = [build_engine(model, max_num_seqs=4, max_model_len=128, mix=mix).run(chat) for mix in mixes]
for mix, run in zip(mixes, real):
    print(f"{tokens_sha256(run)[:16]}  {len(run.steps):3} steps  {mix}")

# %% [markdown]
# ## 6. Admissions, not load
#
# Article 1 says that the peaks on the dashboard have no correlation with the total load, but with admissions. Real traffic, then:
# the first 300 requests of Azure's conversation trace (2023), 32 slots, whole prefills. The trace is that of a service of many GPUs, so its
# clock is slowed down until our one CPU, by the rule, is busy four fifths of the time.

# %%
SLOWER = 27
planned = [one._replace(arrival=SLOWER * one.arrival) for one in azure_trace("conv")[:300]]
traffic = to_requests(planned, vocab_size=1000)
sizes = [one.prompt_tokens for one in planned]
print(
    f"prompts: {mean(sizes):.0f} tokens on average, {max(sizes):,} at most; {sum(n > 2000 for n in sizes)} above 2,000"
)


def azure(mix):
    """The traffic under a mix policy."""
    return timed(IterationScheduler(32, ContiguousMemory(32 * 8192, max_model_len=8192), mix=mix), traffic)


whole = azure(WholePrefills())
busy = sum(step.end - step.start for step in whole.steps) / whole.steps[-1].end
print(f"{len(whole.steps):,} steps, busy {busy:.0%} of the time")

# %% [markdown]
# Under whole prefills everyone who runs is in every step, so the step *is* the gap of all who decode in it. For each step: its length, how
# many decode (the load inside), how many wait (the load outside), and the prompt tokens that came in.
#
# **Predict, then run.** Which of the three goes along with the length?


# %%
def stalls(run):
    """Lists over the steps in which somebody decodes: seconds, how many decode, how many wait, prompt tokens."""
    steps = [step for step in run.steps if not all(work.prefill for work in step.live)]
    seconds = [step.end - step.start for step in steps]
    decoding = [sum(not work.prefill for work in step.live) for step in steps]
    admitted = [sum(work.count for work in step.live if work.prefill) for step in steps]
    return seconds, decoding, [step.waiting for step in steps], admitted


seconds, decoding, waiting, admitted = stalls(whole)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
style = {"s": 8, "color": PALETTE[1], "alpha": 0.4, "linewidths": 0}
left.scatter(decoding, seconds, **style)
right.scatter(admitted, seconds, **style)
left.set(yscale="log", ylabel="gap, s", xlabel="requests that decode in the step")
right.set(xlabel="prompt tokens admitted in the step")
left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
show(
    fig,
    "Length of the gap against the number of requests that decode, and against the prompt tokens admitted in the "
    "step. Left: short and long gaps at every load. Right: a single line, rising with the prompt tokens.",
)

# %%
print("correlation of the length of a gap with")
for name, values in (("requests that decode", decoding), ("requests that wait", waiting), ("prompt tokens", admitted)):
    print(f"   {name:21}{correlation(seconds, values):6.2f}")
print(f"an admission is in {mean(n > 0 for n in admitted):.1%} of all steps,", end=" ")
longest = sorted(range(len(seconds)), key=seconds.__getitem__)[-100:]
print(f"and in {mean(admitted[i] > 0 for i in longest):.0%} of the 100 longest")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The prompt tokens. The load, inside or outside, says next to nothing.
#
# </details>
#
# A correlation is a blunt tool, and load and admissions are not strangers: a burst of arrivals brings both. So look at the gaps of each
# level of load apart, without an admission and with one:

# %%
print("decoding   no admission: median gap   longest   with admission: median gap   longest")
for low, high in ((1, 5), (6, 10), (11, 20), (21, 32)):
    here = [i for i, n in enumerate(decoding) if low <= n <= high]
    quiet = [seconds[i] for i in here if not admitted[i]]
    entered = [seconds[i] for i in here if admitted[i]]
    apart = [f"{percentile(some, 50):{width}.2f} s {max(some):7.2f} s" for some, width in ((quiet, 24), (entered, 26))]
    print(f"{low:3} to {high:2}", *apart)

# %% [markdown]
# Down a column the load grows tenfold, and the gaps without an admission by a tenth of a second: 3.6 ms for each decode more. Across a row
# only the admission differs, and the gap is twenty times as long and more. It is the rare admission that makes the peaks on the dashboard,
# one step in fifty; a mean hides them, a p99 shows them.
#
# The correlation of 1.00 is built into the rule, in which a step's tokens are all that counts. On the real model nothing is built in. Its eight
# chat requests of section 5, with short prompts (on your machine, not kept; a negative number means that those who are being admitted do
# not decode yet):

# %% tags=["local"]
seconds_here, decoding_here, _, admitted_here = stalls(real[0])
print(f"measured, {len(seconds_here)} steps: correlation of the length of a gap with")
print(f"   requests that decode {correlation(seconds_here, decoding_here):6.2f}")
print(f"   prompt tokens        {correlation(seconds_here, admitted_here):6.2f}")

# %% [markdown]
# ## 7. The trade
#
# A smaller budget is a tighter bound. What does it cost? The same traffic with budgets from 64 to 4,096.
#
# **Predict, then run.** From 4,096 to 64 the bound on a gap falls from 15 s to 0.3 s. Does the median time to first token rise by a tenth, or
# many times?

# %%
budgets = [64, 128, 256, 512, 1024, 2048, 4096]
sweep = {f"{budget:,}": azure(Chunked(budget)) for budget in budgets}
sweep |= {"prefill first": azure(PrefillFirst()), "whole": whole}
print("                  ITL                      TTFT                               E2E")
print("budget            p50    p99  longest      p50     p95   p50 of long prompts  p50")
for name, run in sweep.items():
    row, longest_gap = summarise(run), max(gap.seconds for gap in gaps_of(run))
    ttft_long = percentile([latency(one).ttft for one in run.finished if one.prompt_tokens > 2000], 50)
    itl = f"{row.itl_p50:6.2f} {row.itl_p99:6.2f} {longest_gap:8.2f}"
    print(f"{name:14} {itl} {row.ttft_p50:8.1f} {row.ttft_p95:7.1f} {ttft_long:21.1f} {row.e2e_p50:4.0f}")

# %%
points = {name: (summarise(run).itl_p99, summarise(run).ttft_p50) for name, run in sweep.items()}
fig, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.plot(*zip(*list(points.values())[: len(budgets)]), "o-", color=PALETTE[1], ms=5)
shifts = {"1,024": (-10, 7), "2,048": (7, 3), "4,096": (-32, -12), "prefill first": (-28, 13), "whole": (4, -12)}
for (name, (x, y)), marker in zip(points.items(), "o" * len(budgets) + "s^"):
    ax.plot([x], [y], marker, color=PALETTE[1 if marker == "o" else 0], ms=6)
    ax.annotate(name, (x, y), xytext=shifts.get(name, (5, 5)), textcoords="offset points", fontsize=8.5)
ax.set(xscale="log", yscale="log", xlabel="ITL p99, s", ylabel="TTFT p50, s", xlim=(0.22, 8), ylim=(6, 42))
ax.set_xticks([0.3, 1, 3], ["0.3", "1", "3"])
ax.set_yticks([8, 16, 32], ["8", "16", "32"])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
show(
    fig,
    "ITL p99 against median TTFT, both logarithmic, for token budgets of 64 to 4,096, whole prefills and prefill "
    "first: from 4,096 down to 128 the ITL falls about tenfold while the TTFT rises by half; at 64 the TTFT leaps up.",
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# By less than a tenth down to 512, by a fifth at 256, by half at 128, and more than four times at 64. The budget is shared: what the decodes
# take is not there for prompts. At 64 tokens a step the prompts' part is not enough for the bursts of this traffic, they queue behind
# each other, and the queue is in the TTFT.
#
# </details>
#
# More to read in the table:
#
# * **Total work is not saved.** The median gap *rises* as the budget falls: the prompt is spread over more steps, and more gaps are
#   somewhat longer, so that none is very long.
# * **prefill first** has about the p99 of whole prefills and by far the longest gap: when prompts come one after the other, those who decode wait for
#   all of them. On these figures nobody would choose it; it has its reasons on a GPU, where a step of decodes alone can be replayed as one
#   recorded program (CUDA graph).
# * **A p99 can look fine and the service be awful**: compare the columns p99 and longest. Up to a budget of 1,024 the two are one.
# * Above 1,024 the budget is larger than most prompts and cuts only the few very long steps. Whole prefills even have a lower p99 than a
#   budget of 2,048: a step of 20 seconds has become three of seven, so more gaps are long, and none is very long. A budget is a bound on
#   the longest gap; it does not promise to shorten every percentile.
#
# That is the choice that article 3 speaks of: small for the gaps, large for the first token, and neither blindly at its maximum. If you can
# name the gap that your readers accept, the rule gives you the budget (exercise 3).
#
# ## 8. One long prompt and those behind it
#
# Within a budget, prompts are still served in the order in which they came. A prompt of 3,000 tokens takes all that the budget leaves for many
# steps, and a short one right behind it waits. `chunk_cap` limits what one sequence may take of a step. A is writing; the long prompt
# arrives, and the short one a moment later:

# %%
behind = [request("A", 30, 80), request("long", 3000, 10, arrival=0.5), request("short", 60, 10, arrival=0.6)]
print("budget 256          TTFT of long   TTFT of short   longest gap")
for cap in (None, 192, 128, 64):
    run = timed(IterationScheduler(4, ContiguousMemory(4 * 4096, 4096), mix=Chunked(256, chunk_cap=cap)), behind)
    ttft = {name: latency(record).ttft for name, record in run.requests.items()}
    longest_gap = max(gap.seconds for gap in gaps_of(run))
    print(
        f"{'no cap' if cap is None else f'cap {cap}':18}  {ttft['long']:10.1f} s  {ttft['short']:12.1f} s  {longest_gap:10.2f} s"
    )

# %% [markdown]
# With a cap of 192 the short prompt enters in the step after it came, beside the long one, and its answer begins ten seconds earlier. The
# long one hardly pays. With a cap of 64 it pays two seconds: once the short one is through, most of the budget stays unused. A cap helps the
# many who are short against the few who are long, and costs something whenever there is nobody to help.
#
# ## 9. On a GPU
#
# The line of section 3 has two numbers, and on a GPU both are smaller, not by the same factor. Llama-3.1-8B in 16 bits on an A100
# (80 GB), by its data sheet: 7.9 ms to read the weights, and 51.5 µs for each token, if all arithmetic ran at its peak. (Real kernels stay
# below it: at 55 % of the peak, 4,096 tokens take about 380 ms.)

# %%
print("tokens in a step    A100, 8B, data sheet    CPU of section 3, SmolLM2")
for tokens in (1, 256, 512, 2048, 4096):
    print(f"{tokens:16}    {7.9 + 0.0515 * tokens:17.0f} ms    {1e3 * step_seconds(tokens):22.0f} ms")

# %% [markdown]
# (The line adds the two. A roofline would take the larger of them, since reading and computing overlap; notebook 01.)
#
# On the A100 the constant is worth 150 tokens of arithmetic, on this CPU 16. So on a GPU small budgets waste more, and useful ones
# are larger. The paper that introduced all this is **Sarathi-Serve** (Agrawal et al., OSDI 2024). Some of its figures, taken from notes on the
# paper, each with what it is:
#
# | figure | what it is |
# |---|---|
# | up to 28.3 times | a step with a whole prefill in it, against one of decodes alone |
# | budget 512, or 2,048 | chosen for a gap of at most 0.1 s, or 0.5 s, at p99 (5 and 25 times a decode step; Mistral-7B on one A100) |
# | 2.6, 3.7, 5.6 times | requests per second within such a bound, against vLLM as it was then, prefill first: Mistral-7B, Yi-34B, Falcon-180B. At a bound, as in notebook 03: not tokens/s at saturation |
# | at most about 25 % | what prefill in chunks of 512 costs more than whole: later chunks read the K and V of earlier ones again |
# | 32 % | what a chunk of 257 tokens costs more than one of 256: a GPU computes in tiles, so budgets are round numbers |
# | TTFT p50 / gap p99 of 0.53 / 0.68 s, 1.04 / 0.17 s, 0.76 / 0.14 s | Yi-34B with mixed steps only; with chunks only; with both, which is Chunked. Each half alone buys one side of the trade |
#
# ## What you saw
#
# * A step is not a unit of time. One that holds a prompt of 2,000 tokens lasts a hundred times as long as one of decodes.
# * Whole prefills stall everyone who writes; prefill first stalls them one step longer, or several prompts longer. Static batching does not
#   stall, it makes everyone wait at the start.
# * A token budget bounds every gap by the length of one step, whatever arrives. The loop is the same as before.
# * In real traffic the stalls go along with the prompt tokens of the step, not with how many are served.
# * The work is the same, spread differently: down to some budget the first token hardly comes later, below it prompts queue.
# * A cap on the chunk lets short prompts pass beside a long one.
# * The texts do not change.
#
# One thing we have not asked: the newcomer's K and V. Each chunk writes some, for 2,000 tokens or for 100,000, and so far there was always room.
# How much is there, and who decides? That is notebook 05.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it says
# "NOT YET". Solutions: `notebooks/solutions/04_chunked_prefill.py`.
#
# **1.** Split one step's budget. `running` lists, in order of admission, how many tokens each sequence lacks that holds a slot (1 for one
# that decodes); `waiting` lists the prompts of those in the queue. Whoever runs comes first; then the queue enters in order while there is a
# slot of the `free_slots` and budget. Nobody gets more than `cap`. Return the number of tokens of everyone who takes part in the step: those who
# run, then those who enter. About eight lines.


# %%
def split_budget(running, waiting, free_slots, budget, cap):
    return None


# %%
attempt(check_split_budget, split_budget)

# %% [markdown]
# **2.** `running` requests decode, and one newcomer enters with a prompt of `prompt` tokens; then all go on. A step takes `constant +
# per_token * tokens`. How long is the longest gap of one who was decoding? `mix` is "whole", "prefill_first" (the whole prompt in one step) or
# "chunked" with this `budget`, which is larger than `running`. About six lines.


# %%
def largest_gap(mix, running, prompt, budget, constant, per_token):
    return None


# %%
attempt(check_largest_gap, largest_gap)

# %% [markdown]
# **3.** Choose a budget: the largest for which no gap is longer than `target`, with the same rule for a step. If that many tokens leave
# nothing for prompts beside `running` decodes, there is no such budget: return 0. About three lines.


# %%
def budget_for(target, running, constant, per_token):
    return None


# %%
attempt(check_budget_for, budget_for)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`, `schedule()`: one `token_budget` (`max_num_batched_tokens`), spent first on
#   `self.running`, then on `self.waiting`. `long_prefill_token_threshold` is our `chunk_cap` (0, off, by default).
#   `enable_chunked_prefill` is on by default. Defaults for the budget from 2,048 to 16,384, by card and by use.
# * **vLLM V0**, `vllm/core/scheduler.py`: prefill first. Its chunked mode came with a budget of 512, chosen for the gap on an A100.
# * **SGLang**, `python/sglang/srt/managers/schedule_policy.py`, `PrefillAdder`: prefill first; `--chunked-prefill-size` cuts long prompts
#   (2,048 to 16,384 by card, -1 is off), and `--enable-mixed-chunk` (off by default) puts the decodes into the same step.
# * **TensorRT-LLM**, `cpp/tensorrt_llm/batch_manager/microBatchScheduler.cpp`: `max_num_tokens` (8,192) is the budget,
#   `enable_chunked_context` allows cutting. `context_chunking_policy` says for whom: first come, first served, or equal progress for all.
# * **TGI**, `backends/v3/src/queue.rs`, `next_batch`: `max_batch_prefill_tokens`; with chunking, less what the running batch takes.
# * **llama.cpp**, `update_slots` in `tools/server`: the tokens of all who write first, then prompts until `n_batch` (2,048) is full.
#
# As of the versions read for this course; defaults change. Next: [05 KV memory](05_kv_memory.ipynb).
