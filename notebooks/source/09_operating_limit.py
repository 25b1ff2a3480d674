# %% [markdown]
# # 09 The operating limit: the same scheduler on a big GPU
#
# About 50 minutes. No GPU needed.
#
# You need [03](03_iteration_level.ipynb), [04](04_chunked_prefill.ipynb) and [07](07_preemption_and_admission.ipynb): iteration-level
# scheduling, the token budget, preemption. At the end you can say
#
# * how long a step of an 8B model lasts on an A100, by hand, and how far such a **cost model** is from a machine that was measured;
# * what vLLM, SGLang, TensorRT-LLM, TGI, transformers and llama.cpp really do differently, in four words each;
# * where "10 to 20 times" comes from, and when there is nothing to gain;
# * what load a deployment carries within its targets: its **operating limit**, in the four steps of article 3;
# * why two benchmarks that both say **goodput** mean different things;
# * what a fleet needs for a stated load, and which questions this simulator cannot answer.
#
# Previous: [08 Paged attention in CUDA](08_paged_attention_cuda.ipynb) · Next: [README](../README.md)
#
# Articles: 1, "o tamanho do ganho, e de onde ele vem"; 2; 3, "o que mudar na prática a partir de agora" and "onde as promessas passam do
# ponto". Lab: [5, preemption and admission](labs/lab5.ipynb). Words: [glossary](GLOSSARY.md).

# %%
import math
from collections import Counter
from dataclasses import replace
from textwrap import fill

import matplotlib.pyplot as plt

from minibatch import Engine
from minibatch.checks.base import attempt
from minibatch.checks.nb09 import check_chat_budget, check_my_scheduler, check_two_faced_load, check_workload
from minibatch.explorer import Explorer
from minibatch.explorer.points import ceiling
from minibatch.headlines import HEADLINES, committed
from minibatch.headlines.claims import claims
from minibatch.memory import PagedMemory
from minibatch.memory.arithmetic import MODELS
from minibatch.plot import show, show_source
from minibatch.plot.calibration import calibration, calibration_alt
from minibatch.plot.colours import PALETTE
from minibatch.plot.load import load_alt, load_curves
from minibatch.schedulers import IterationScheduler, join, mix, reserve
from minibatch.schedulers.systems import SYSTEMS, system
from minibatch.simulate import CARDS, Deployment, Roofline, SimulatedExecutor, StreamingTrace
from minibatch.simulate.calibration import compare, errors, stored_steps
from minibatch.simulate.limit import highest_rate_with, operating_limit
from minibatch.simulate.prefix_study import prefix_study, reuse_bound
from minibatch.simulate.result import attainment, goodput, summary
from minibatch.simulate.scenario import Scenario, simulate
from minibatch.workload import azure_trace, bare_requests, mooncake_trace

# %% [markdown]
# ## 1. A step in four lines
#
# You have no A100, and the scheduler does not care. It sees a plan go out and tokens and *seconds* come back. For the tokens it needs only
# their number. So everything that a GPU contributes to scheduling is one function: how long does this step take?
#
# Notebook 01 measured the answer on a laptop, and it had two parts. A step reads all weights once and the stored K and V of its sequences,
# and it computes two operations for each weight and token. It takes as long as the slower of the two, plus what a server does between
# steps. In numbers, Llama-3-8B on an A100 of 80 GB, with 80 % of the bandwidth and 55 % of the arithmetic that the data sheet names:

# %%
card, model = CARDS["A100-80"], MODELS["Llama-3-8B"]


def step_seconds(tokens, positions):
    """`tokens` computed in a step that reads `positions` of K and V."""
    reading = (model.weight_bytes + positions * model.kv_bytes_per_token) / (0.80 * card.bandwidth)
    computing = 2 * model.parameters * tokens / (0.55 * card.flops)
    return 4e-3 + max(reading, computing)


for what, tokens, positions in (
    ("1 decode at position 1,000", 1, 1_000),
    ("32 decodes at position 1,000", 32, 32_000),
    ("256 decodes at position 1,000", 256, 256_000),
    ("a prompt of 2,048 tokens", 2_048, 2_048),
):
    print(f"{what:30} {1e3 * step_seconds(tokens, positions):6.1f} ms")

# %% [markdown]
# **Predict, then run.** One decode costs about as much as 32. From how many tokens in a step on does computing take longer than reading the
# weights? Does the number depend on the model?

# %%
for name in ("Llama-3-8B", "Llama-2-7B", "OPT-13B"):
    weights = 1e3 * MODELS[name].weight_bytes / (0.80 * card.bandwidth)
    token = 1e3 * 2 * MODELS[name].parameters / (0.55 * card.flops)
    print(f"{name:12} {weights:5.1f} ms for the weights, {token:.3f} ms a token: {weights / token:.0f} tokens")

# %% [markdown]
# <details><summary>Answer</summary>
#
# From 105 on, whatever the model: two bytes are read and two operations computed for each weight, so it is a property of the *card*, its
# operations a second over its bytes a second. It is the ridge of a **roofline** (Williams et al., 2009). Decodes bring K and V to read as
# well: at position 1,000 they keep the two sides nearly level, and 256 of them still cost less than three single ones.
#
# </details>
#
# The package's cost model is this function with attention's own arithmetic, moves of blocks between GPU and host (notebook 07), and several
# cards that share a model. Its core:

# %%
show_source(Roofline.computing)

# %% [markdown]
# ## 2. How far is it from a machine?
#
# A cost model that nobody has held against a clock is an opinion. There is one machine at hand, the laptop-like one of this course: SmolLM2
# was measured on it, in two formats, over batches of 1 to 64, contexts of 16 to 2,000 and prompts of 16 to 1,024 tokens (`python -m
# minibatch bench steps`). The three free numbers (overhead, two shares) are fitted to every second measurement; the others it has never
# seen.

# %%
compared, where = compare(), stored_steps().where_and_when
roof = [row for row in errors(compared) if row["way"] == "roofline"]
show(calibration(compared, where, ways=("roofline",)), calibration_alt(roof, where), dpi=75)
for row in errors(compared):
    if row["kind"] == "all":
        off = f"{row['median']:4.0%} in the median, {row['worst']:4.0%} at worst"
        print(f"{row['dtype']:9} {row['way']:10} off by {off}, of {row['n']} unseen")

# %% [markdown]
# About a fifth off in the median, up to a half at worst. That is the size of the error *on this machine*, where the model leaves out much:
#
# * **Taking turns.** The longer of the two assumes that all reading overlaps all computing. Here a step reads, then computes, and their sum
#   ("in turn") predicts better.
# * **Small shapes.** One sequence's attention reaches a hundredth of the bandwidth that 64 reach together; the model has one share for all.
# * **The rest**: norms, activation functions, sampling, Python. Servers on a GPU fuse and hide most of it.
#
# So read what follows as a comparison of *policies* under one and the same clock, not as a forecast of milliseconds. Where a published
# figure exists, ours stands beside it.
#
# ## 3. An hour of production, in seconds
#
# `SimulatedExecutor` stands where the model stood. The engine, the scheduler and the memory are those of notebooks 02 to 07, not a second
# implementation. Nothing sleeps: the clock is a number the engine carries.

# %%
show_source(SimulatedExecutor.execute)

# %% [markdown]
# The load is one hour of Azure's conversations of November 2023 (Splitwise, ISCA 2024): real arrivals, real lengths of prompts and answers.
# Put together by hand:

# %%
deployment = Deployment("A100-80", "Llama-3-8B")
scheduler = system("vllm-v1").build(deployment.kv_tokens, max_model_len=16_384)
trace = StreamingTrace.of(scheduler)
Engine(scheduler, SimulatedExecutor(Roofline(deployment)), trace=trace).run(bare_requests(azure_trace("conv")[:2000]))
hour = summary(trace)
print(f"room for {deployment.kv_tokens:,} positions of K and V")
print(
    f"{hour.n:,} requests in {hour.seconds:.0f} s, {hour.steps:,} steps, {hour.tokens_per_second:,.0f} output tokens/s"
)
print(f"TTFT p50 {hour.ttft_p50:.2f} s, p95 {hour.ttft_p95:.2f} s (n={hour.n:,})")

# %% [markdown]
# These are the first 2,000 requests, seven minutes; the whole 19,366 take about ten times as long and fit the same memory, for a
# `StreamingTrace` keeps sums, one row a request, and whole steps only where you ask (`window`). What the server looked like meanwhile:

# %%
samples = trace.samples[::3]
fig, ax = plt.subplots(figsize=(8, 2.6), layout="constrained")
ax.plot([s.time for s in samples], [s.running for s in samples], color=PALETTE[1], lw=0.8, label="requests running")
ax.plot([s.time for s in samples], [100 * s.kv_used for s in samples], color=PALETTE[3], lw=1.6, label="K/V in use, %")
ax.plot([s.time for s in samples], [s.waiting for s in samples], color=PALETTE[0], lw=0.8, label="requests waiting")
ax.set(xlabel="seconds", ylim=(0, None))
ax.legend(frameon=False, fontsize=8, loc="upper left")
ax.spines[["top", "right"]].set_visible(False)
most, fullest = max(s.running for s in samples), max(s.kv_used for s in samples)
words = f"Over seven minutes up to {most} requests run at once, in waves; hardly anybody waits; "
show(fig, words + f"of the K/V memory never more than {fullest:.0%} is in use.", dpi=80)
print(f"at most {hour.peak_running} running and {hour.peak_waiting} waiting; {hour.preemptions} preemptions")

# %% [markdown]
# The load comes in waves, as real ones do, and this card is not even half full: memory is not its limit with this model and these
# lengths. What is, comes in section 7. The pictures of this course work as they did; section 10 has a window for them.
#
# A system on a card under a load is a `Scenario`, one value, and `simulate` is one call:

# %%
small = Scenario(system="vllm-v1", card="A100-80", model="Llama-3-8B", trace="azure-conv", requests=300, rate=4.0)
print(f"{summary(simulate(small)).tokens_per_second:.0f} output tokens/s")

# %% [markdown]
# ## 4. The systems, in four words each
#
# Article 3: "Os quatro servidores abaixo documentam suporte a continuous batching … Essa capacidade em comum não torna equivalentes seus
# escalonadores, orçamentos de memória ou modelos compatíveis." So what differs? Every one of them answers the four questions of notebooks
# 03 to 07: who may **join** and when, what one step may **mix**, what memory is **reserved** at the door, who gives way when it runs out
# (**evict**).

# %%
for row in SYSTEMS.values():
    print(f"{row.label}  [{row.name}]")
    for axis in ("join", "mix", "reserve", "evict"):
        print(f"    {axis:8} {getattr(row, axis)}")

# %% [markdown]
# Each row is composed from the policies you have read, carries its source and its date, and each of its rules is a test. Defaults change;
# the rules change slowly. (`python -m minibatch systems` prints the same as a table.) Here is a whole one:

# %%
show_source(SYSTEMS["vllm-v1"].make)

# %% [markdown]
# The knobs have as many names as there are systems. Two of them in all dialects, with their defaults (None: it follows from the model or the
# memory; `python -m minibatch systems --knobs NAME` says how):

# %%
for name, meaning in (("token_budget", "tokens a step may compute"), ("max_num_seqs", "sequences at once")):
    print(f"{name}: {meaning}")
    for row in SYSTEMS.values():
        for knob in row.knobs:
            if knob.name == name:
                print(f"    {row.label:34} {knob.theirs:34} {knob.default}")

# %% [markdown]
# ## 5. Where do they differ?
#
# ### What a step may hold
#
# **Predict, then run.** The same 300 requests at 4 a second on the same card. vLLM V0 and SGLang compute prompts *first* and by themselves;
# V1 and TGI mix them with decodes. Which of the numbers will tell them apart: tokens a second, TTFT, the median gap, the longest?

# %%
print("                    tokens/s  TTFT p50  TTFT p95  ITL p50  ITL p99  longest ITL, s (n=300)")
for name in ("vllm-v0", "sglang", "tgi", "vllm-v1"):
    one = summary(simulate(replace(small, system=name)))
    times = f"{one.ttft_p50:8.2f}  {one.ttft_p95:8.2f}  {one.itl_p50:7.3f}  {one.itl_p99:7.3f}  {one.itl_max:11.2f}"
    print(f"{system(name).label:18}  {one.tokens_per_second:8.0f}  {times}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The longest gap, by far; then ITL p99. Tokens a second and the medians are the same for all. With prompts first, a burst of arrivals stops
# everybody for as long as its prompts take, 1.7 s here. With one budget for both, no gap is longer than a step of 2,048 tokens, 0.2 s. TGI
# mixes too, but its budget is the longest request it accepts. This is notebook 04 on a big card: a bound on *one step* is a bound on a
# pause.
#
# </details>
#
# ### What is reserved at the door
#
# A tighter place: OPT-13B on 40 GB, room for 12,565 positions, and conversations with the lengths of ShareGPT, 2 a second. *K/V used* counts
# while somebody waits. (The static batch is left out here; section 6 has it.)

# %%
tight = Scenario(card="A100-40", model="OPT-13B", trace="sharegpt", requests=200, rate=2.0)
print("                                  running  K/V   preempted  tokens  tokens/s  TTFT p95  longest")
print("                                  (mean)   used             again             (n=200)   ITL, s")
for name in ("orca-max", "orca-pow2", "trtllm-no-evict", "transformers", "sglang", "trtllm-max-utilization", "vllm-v1"):
    one = summary(simulate(replace(tight, system=name)))
    memory = f"{one.mean_running:7.1f}  {one.kv_use:4.0%}  {one.preemptions:9}  {one.recomputed_tokens:6,}"
    print(f"{system(name).label:32}  {memory}  {one.tokens_per_second:8.0f}  {one.ttft_p95:7.1f}  {one.itl_max:8.2f}")

# %% [markdown]
# The rows stand in the order of how much they promise. Orca (Max) keeps 2,048 positions for each and fills a quarter of the memory.
# TensorRT-LLM's default and TGI keep what the *limit* of a request says; a replayed trace knows the true length, so here that is a perfect
# estimate, and it is still too much, for nobody needs all of it from the start. Those who promise least fill the pool and throw somebody
# out now and then: more tokens, a shorter queue, and for the victim a pause of seconds. SGLang's estimate gets most of it without a victim.
#
# ### What is found again
#
# Those runs share no prefix: lengths alone say nothing of what prompts have in common. Mooncake's trace does (FAST 2025): each prompt
# comes with a name for every 512 tokens of it, equal where everything up to there is equal. vLLM keeps a table of hashes over a queue of
# free blocks, SGLang a radix tree that loses its least recently used leaf. Both stand on the same allocator here (notebook 06), and SGLang
# can also reorder the queue, longest stored prefix first. How many of all prompt blocks are found stored?
#
# **Predict, then run.** What matters more: the cache, the order, or the size?

# %%
chats = mooncake_trace()
print("blocks   GiB of K/V (8B)   hash, fcfs   radix, fcfs   hash, longest first   radix, longest first")
for blocks in (1_000, 4_000, 16_000):
    study = {(row.order, row.cache): row for row in prefix_study(chats, sizes=[blocks])}
    shares = [study[order, cache].hit_share for order in ("fcfs", "longest_prefix") for cache in ("hash", "radix")]
    gib = study["fcfs", "hash"].gib
    print(f"{blocks:6,}   {gib:15,.0f}   {shares[0]:10.1%}   {shares[1]:11.1%}   {shares[2]:19.1%}   {shares[3]:20.1%}")
print(f"seen before at all: {reuse_bound(chats)[0]:.1%} of the blocks of {len(chats):,} prompts")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The size, by far. One card's memory finds little of what is there, because thousands of other blocks come in between; that is why such a
# cache moves to host memory and to disks. The two caches differ by less than a point. Where memory is short the order helps: who shares a
# prefix is served while it is still there.
#
# </details>
#
# A caution with all such tables, this one included: "mantendo o modelo e o hardware fixos ao comparar configurações" (article 3). And the
# load, and the lengths.
#
# ## 6. Where does "10 to 20 times" come from?
#
# Article 1 says that public benchmarks are "tipicamente na casa de 10 a 20 vezes", and that the gain "vem inteiro de eliminar espera".
# Article 3 answers that the papers "não isolam um ganho universal". Both are right, and the parts can be told apart. The experiments of
# this section take minutes; their results are committed (`python -m minibatch figures` computes them again), and read here.
#
# **First part: dead slots.** How many times the steps it needs does a static batch run? This is a closed form, the mean of the longest of a
# batch over the mean (notebook 02), on four distributions of answers:
#
# ![Steps that a static batch runs over those it needs, against the number of slots: Orca's lengths stay below 2, Azure's code goes beyond 10 at 64 slots.](../figures/dead_slots.png)

# %%
print(fill(committed("dead_slots").sentence, 100))

# %% [markdown]
# **Predict, then run.** So much in steps. How much of that is left in *seconds*, where both servers also compute prompts? And what is left
# if all answers are equally long?

# %%
print(fill(committed("gain_by_variance").sentence, 100))

# %% [markdown]
# ![Gain of iteration-level over static batching, in steps and in time, for eight distributions of answers: 1 where all are equal, most for Azure's code, where time gains less than steps.](../figures/gain_by_variance.png)
#
# <details><summary>Answer</summary>
#
# With equal requests, nothing is left: there are no dead slots to refill. And where the answers are most unequal, in the code trace, most
# of the time goes into prompts of 2,000 tokens, which a static batch computes just as fast.
#
# </details>
#
# **Second part: the memory that comes free** (section 5). **Third part: the bound on latency.** Nobody may run a server at saturation; it
# is run where clients still get what they were promised, and a static batch must stay much further below its best. Orca's 36.9 times is
# such a comparison:

# %%
print(fill(committed("orca_latency_bound").sentence, 100))

# %% [markdown]
# All three on one chart. Each workload begins at 1, a static batch on the same card and memory, and every bar multiplies.

# %%
print(fill(committed("decomposition").sentence, 100))

# %% [markdown]
# ![The gain over a static batch as a product of three factors, slots refilled, memory freed and latency bound, for four workloads: chat reaches 10 to 20 times, code completions about 2.](../figures/decomposition.png)
#
# So: "10 to 20 times" is a fair figure for chat, at a latency bound, against a static batch that reserves for the worst case. It is not a
# property of continuous batching. The part that is *scheduling* alone is smaller, and it depends on your answers as article 1 says, on
# their variance.
#
# ## 7. The operating limit, in four steps
#
# Article 3 ends with a recipe. Every step of it is an argument of one function.
#
# **1. "Defina a experiência antes de aumentar a simultaneidade."** "Registre os limites aceitáveis de tempo até o primeiro token,
# intervalos de streaming …" For an assistant: 95 of 100 first tokens within 2 s, 99 of 100 gaps within 0.2 s.

# %%
experience = "ttft_p95=2,itl_p99=0.2"

# %% [markdown]
# **2. "Reproduza um conjunto representativo de requisições."** "Preserve padrões realistas de chegada …" A `Scenario`: model, card, lengths
# and arrivals stay; only the time between arrivals is stretched to change the load, so bursts stay bursts.
#
# **3. "Registre o throughput junto com a fila e a latência."** Each run is a row with all of it.
#
# **4. "Fique com a maior carga que ainda atende às metas."** "Pare de aumentar … quando os limites de latência forem ultrapassados ou a
# pressão sobre a memória causar recálculos repetidos." Bisection, and the reason why not more.

# %%
endpoint = replace(tight, requests=150, rate=None)
limits = {
    system(name).label: operating_limit(replace(endpoint, system=name), experience, low=0.25, precision=0.1)
    for name in ("vllm-v1", "vllm-v0", "orca-max")
}
rows = {label: limit.rows for label, limit in limits.items()}
rates = {label: limit.rate for label, limit in limits.items()}
show(load_curves(rows, rates, experience), load_alt(rows, rates, experience), dpi=90)
for label, limit in limits.items():
    print(f"{label}: {limit.rate:.2f} requests/s, with {limit.at['tokens_per_second']:.0f} tokens/s; {limit.reason}")

# %% [markdown]
# Read the three panels together. Throughput goes on rising beyond every ring: "Um gráfico de throughput sem uma meta de latência não revela
# quantos clientes o servidor consegue atender com uma boa experiência." And look at the thin line, the median of TTFT: it stays low when
# p95 has left the target long behind. "Acompanhe o p95, o percentil 95, além da mediana."
#
# "Altere um controle de escalonamento ou memória por vez." One knob, three values, for Azure's conversations on the larger card. Article 3:
# "valores menores podem preservar a latência entre tokens, enquanto valores maiores permitem processar mais prefill e melhorar o TTFT."

# %%
print("vLLM V1, token budget   limit, requests/s   why not more")
for budget in (128, 1024, 4096):
    turned = replace(small, requests=150, rate=None, knobs=(("token_budget", budget),))
    found = operating_limit(turned, "ttft_p95=1,itl_p99=0.15", low=1.0, precision=0.15)
    print(f"{budget:21}  {found.rate:18.2f}   {found.reason}")

# %% [markdown]
# With too small a budget a prompt takes too many steps, and first tokens are late; with too large a one, a step takes too long for those
# who read. In between the same card carries half as much again, or twice as much. Nobody can read this off the card; it comes from the
# lengths and the targets.
#
# Some targets no load can meet. The search ends with that answer:

# %%
print(operating_limit(replace(endpoint, requests=60), "itl_p99=0.01").reason)

# %% [markdown]
# ## 8. Goodput, both ways
#
# Two measures go by the name of **goodput**. vLLM's and GenAI-Perf's benchmarks count the requests a second that met *all* targets, at
# *this* load. DistServe (OSDI 2024) asks for the *highest load* at which 90 % of the requests meet them.
#
# **Predict, then run.** Beyond the operating limit the load goes on growing. Does the first kind of goodput fall, stay, or rise?

# %%
TTFT, TPOT = 1.0, 0.06
print(f"load   served/s   TTFT <= {TTFT:g} s and TPOT <= {TPOT:g} s: share   goodput at this load (n=150)")
for rate in (0.5, 1.0, 1.5, 2.0, 3.0):
    run = simulate(replace(endpoint, rate=rate))
    good, share = goodput(run, ttft=TTFT, tpot=TPOT), attainment(run, ttft=TTFT, tpot=TPOT)
    print(f"{rate:4.1f}   {summary(run).requests_per_second:8.2f}   {share:41.0%}   {good:8.2f} requests/s")
best = highest_rate_with(endpoint, 0.9, ttft=TTFT, tpot=TPOT, low=1.0, precision=0.1)
print(f"highest with 90 %: {best.rate:.2f} requests/s; {best.reason}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It rises with the load up to the limit, then falls: beyond its capacity a server that is first come, first served makes nearly *everybody*
# late, and at 3 requests a second fewer clients are satisfied than at 1. Served a second, the other column, goes on rising. DistServe's
# figure is the load you can promise. A report that says "goodput" must say which of the two, at which load, and with which targets.
#
# </details>
#
# ## 9. Every published figure, beside ours
#
# Where ours is more than 25 % off, the line below says why. We look for the shape and the causes; nobody's cluster is in a laptop. Each has
# a picture in [figures](../figures).

# %%
for name in HEADLINES:
    print(committed(name).question)
    print(committed(name).table(), end="\n\n")

# %% [markdown]
# ## 10. The explorer
#
# Choose a system, a card, a model, a trace, one knob and the targets, and see the limit, and why; then look into any window of the run that
# was too much, slot by slot and block by block. Beside the curves of your choice stand those of the one before. A change takes about a
# second, for the runs are short: 100 requests. By keyboard, Tab goes from control to control, Space opens a list, arrow keys and
# Enter choose, and arrow keys move a slider. Without a kernel you see a still: an A100 of 40 GB with OPT-13B, Azure's conversations, vLLM V1.

# %%
Explorer(Scenario(card="A100-40", model="OPT-13B"), slo="ttft_p95=2,itl_p99=0.2")

# %% [markdown]
# Things to try: `token_budget` 256 and 8192. SGLang, then static. Llama-2-70B on this card (a model that does not fit is refused, with the
# arithmetic). The code trace: why is its limit so low on *every* system? (Exercise 4 is about that.)
#
# ## 11. What a fleet needs
#
# Say your product must carry 60 conversations a second at its daily peak, within the targets of section 7, on H100s with Llama-3-8B. How
# many? By these figures, and on paper:

# %%
replica = Scenario(card="H100", model="Llama-3-8B", trace="azure-conv", requests=1000)
alone = operating_limit(replica, experience, low=16.0, precision=0.1)
most, peak, share = ceiling(replica), 60.0, 0.8
print(f"one replica: {alone.rate:.1f} requests/s within the targets ({alone.reason})")
print(f"arithmetic alone, memory always full: {most:.1f} requests/s")
print(f"loaded to {share:.0%} of the limit: {math.ceil(peak / (share * alone.rate))} replicas; one may fail: one more")

# %% [markdown]
# * **Replicas** = peak load over the limit of one, not over its throughput. The arithmetic of `ceiling` (how many fit, how long a step, how
#   many answers end in it) is a check of the order of magnitude, and no promise: it knows no burst and no target.
# * **Head-room.** The limit above holds for *this* trace's bursts. Load a replica to 70 or 80 % of it, or the first Monday is an incident.
#   And at least one replica more than needed, for the one that is restarting.
# * **Router.** Sending each request to a replica in turn is fair in requests, not in tokens: one gets three long prompts. By the fewest
#   *tokens* waiting is better; "join the shorter of two at random" is nearly as good and needs no global state. If prompts share prefixes,
#   the router decides the hit rate of the prefix cache (notebook 06): the same client to the same replica, until its queue is too long.
# * **Back-pressure.** Beyond the limit everybody is late (section 8). A bound on open requests (`max_open`, TGI's
#   `--max-concurrent-requests`) refuses a few at once and keeps the promise to the others.
# * **One large or several small?** A card with more memory carries more sequences per reading of the weights. The explorer answers for your
#   lengths.
#
# ### What this simulator cannot say
#
# * Milliseconds of your server. Section 2 is its error on one machine; on yours it is unknown until you measure. The *ratio* of two
#   policies suffers less, for an error of the clock falls on both.
# * Anything that is not a step: tokenisers, HTTP, networks, Python's lock, a driver update.
# * What traffic will do. A trace is one hour of one service; its users would behave otherwise if answers were slower (they retry, they
#   leave).
# * Answers end where the trace says. A real model writes more or less when its format, its prompt or its quantisation changes.
# * Speculative decoding, disaggregated prefill, mixture-of-experts, LoRA, multi-modal prompts: not modelled.
#
# Article 3 ends: "O resultado deve ser um limite operacional medido: a carga que seu endpoint consegue sustentar". *Medido*, measured.
# Simulate to know what to try; measure before you promise.
#
# ## 12. The three articles, claim by claim
#
# This is the end of the course, so here is its account: what the articles claim, whether it held, and where that can be seen. *Confirmed*;
# *bounded*: true within limits that the article does not name; *corrected*. The reasons, with their numbers, stand in
# [figures/claims.md](../figures/claims.md).

# %%
account = claims()
print(*(f"{count} {verdict}" for verdict, count in Counter(claim.verdict for claim in account).items()), sep=", ")
for claim in account:
    row = f"{claim.article}  {claim.verdict:9}  {claim.claim} [{claim.where}]"
    print(fill(row, 100, subsequent_indent=" " * 14))

# %% [markdown]
# ## What you saw
#
# * A step is overhead plus the longer of reading and computing; on an A100 computing takes over at 105 tokens, whatever the model.
# * On the machine of this course that is off by a fifth in the median. Policies are compared under one clock; milliseconds are not
#   forecast.
# * Thirteen systems, four axes. What a step may hold decides the longest pause (1.7 s or 0.2 s at the same throughput); what is reserved
#   decides how many run.
# * "10 to 20 times" is slots refilled, times memory freed, times a latency bound. With equal answers the first is 1.
# * An operating limit has a load, targets, a trace, and a reason why not more. Throughput beyond it is nobody's experience.
# * Goodput at a load and the highest load with 90 % are two numbers.
#
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The checks run the simulator; there is more than one right answer to
# each. Solutions: `notebooks/solutions/09_operating_limit.py`.
#
# **1.** Pick the budget. Llama-3-8B on an A100 of 80 GB under vLLM V1 gets the first 200 conversations of Azure at 4 requests a second. The
# experience: TTFT p95 within 1 s, ITL p99 within 75 ms. Return a `token_budget` that meets both. The default does not. Reckon first: how
# long may a step be, and how many tokens fit in it (section 1)? Then try: `simulate(replace(small, requests=200, knobs=(("token_budget",
# 1024),)))`.


# %%
def chat_budget():
    return None


# %%
attempt(check_chat_budget, chat_budget)

# %% [markdown]
# **2.** Find a load that looks fine. OPT-13B on 40 GB, vLLM V1, the first 150 conversations of Azure: at which requests a second is the
# *median* TTFT at most 0.5 s, and p95 above 5 s? Such a server has a green dashboard and angry users. Then say which property of the
# arrivals does it.


# %%
def two_faced_load():
    return None


# %%
attempt(check_two_faced_load, two_faced_load)

# %% [markdown]
# **3.** Design two workloads for 32 slots, all requests there from the start. `workload(False)`: a static batch loses nothing against one
# that never closes. `workload(True)`: it takes at least **ten times** as long. Return a list of `(prompt_tokens, output_tokens)`: 64 to 400
# requests, prompts of 1 to 512, answers of 1 to 400 tokens. The order is yours, and it matters.


# %%
def workload(tenfold):
    return None


# %%
attempt(check_workload, workload)

# %% [markdown]
# **4.** A policy of your own. Azure's code trace comes in bursts of long prompts with short answers; here are its first 400 requests at 1.2
# a second, for Llama-3-8B on an A100 of 80 GB. vLLM V1, first come, first served, serves 0.30 requests a second with TTFT within 2 s and
# TPOT within 0.25 s. Write `my_scheduler(num_positions, max_model_len)`, which returns a scheduler with at least **1.5 times** that
# goodput. All requests must be served, and no more memory used than the card has. A server knows the length of a prompt when it comes; it
# does not know that of an answer, so leave `max_new_tokens` alone. Begin with V1 and change one axis. A `join` policy, for one, says in
# which order requests wait (`rank`) and who may pass whom:


# %%
def vllm_v1(num_positions, max_model_len):
    """As the table composes it."""
    memory = PagedMemory(num_positions // 16, block_size=16)
    axes = {"join": join.FirstComeFirstServed(), "mix": mix.Chunked(2048), "reserve": reserve.NextChunk()}
    return IterationScheduler(256, memory, **axes)


show_source(join.FirstComeFirstServed)

# %% [markdown]
# Which axis makes them late here? And who pays for your gain?


# %%
def my_scheduler(num_positions, max_model_len):
    return None


# %%
attempt(check_my_scheduler, my_scheduler)

# %% [markdown]
# To see it in the table, make it a row, and every tool of this notebook takes it by its name (`Scenario(system="mine")`, the explorer,
# `sweep`):
#
#     SYSTEMS["mine"] = replace(system("vllm-v1"), name="mine", label="mine", knobs=(), join="…",
#                               make=lambda pool, knobs: my_scheduler(pool.num_positions, pool.max_model_len))

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM**: `vllm bench serve` replays arrivals (`--request-rate`, `--burstiness`) and counts `--goodput ttft:2000 tpot:60` at that load.
#   In production: `vllm:num_requests_waiting`, `vllm:time_to_first_token_seconds`, `vllm:inter_token_latency_seconds`,
#   `vllm:num_preemptions_total`, `vllm:kv_cache_usage_perc`: the columns of section 7. `docs/configuration/optimization.md` is article 3's
#   "orientações de ajuste".
# * **SGLang**: `python -m sglang.bench_serving`; `docs/advanced_features/hyperparameter_tuning.md` turns one knob at a time, by
#   `token_usage` and the queue. `sglang:num_queue_reqs`, `sglang:token_usage`.
# * **TensorRT-LLM**: `trtllm-bench throughput` and `latency`; `docs/source/features/paged-attention-ifb-scheduler.md` has the example whose
#   four requests and twelve tokens are a test of our row.
# * **GenAI-Perf / AIPerf** (NVIDIA): goodput at a load; its ITL is our TPOT (systems differ in what they call what: compare definitions
#   first). **MLPerf** inference, server scenario: the highest Poisson load whose p99 keeps TTFT and TPOT, an operating limit by contract.
# * **Simulators** of the same kind: Vidur (Microsoft, MLSys 2024) predicts step times with models fitted to profiles, and searches
#   configurations; Splitwise's simulator came with the traces you used.
#
# End of the course. Back to [00 Start here](00_start_here.ipynb) or the [README](../README.md).
