# %% [markdown]
# # 00 Start here: the life of a request
#
# About 20 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need Python and, if you read Portuguese, article 1 (*O Lote Que Nunca Fecha*). You need not know what a KV cache is. At the end you
# can say
#
# * what a server does with your question, token by token: **prefill**, then **decode**;
# * what the **KV cache** holds and how many positions of it one request needs;
# * what ends an answer, and which times its reader feels: queue, TTFT, ITL, E2E;
# * where each section of the three articles stands in this course, and what each of their words is called in the code.
#
# Previous: [README](../README.md) · Next: [01 Why batch](01_why_batch.ipynb)
#
# Articles: all three; section 6 for 1, "o preço: a fornada tinha uma virtude". Words: [glossary](GLOSSARY.md).

# %%
from pprint import pprint

import matplotlib.pyplot as plt
import torch

from minibatch import Engine, Request, SamplingParams, Sequence, build_engine, load_model
from minibatch.checks.base import attempt
from minibatch.checks.nb00 import check_output_of, check_positions_needed, check_request_times
from minibatch.memory import ContiguousMemory
from minibatch.metrics import latency
from minibatch.model.kv_cache import PackedAttention
from minibatch.plot import Player, alt, caption, colour_of, show, show_source, slots
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan

# %% [markdown]
# ## 1. A question becomes numbers
#
# The model is real: SmolLM2-135M-Instruct, small enough for a laptop, fluent, and weak on facts.

# %%
model = load_model("smollm2")
request = model.request("A", "What is the capital of France?", max_new_tokens=20)
print(f"prompt, {len(request.prompt)} token ids:")
pprint(request.prompt, compact=True)


# %%
def piece(token):
    """One token as text, special ones too."""
    return model.tokenizer.rules.decode([token], skip_special_tokens=False)


pprint([piece(token) for token in request.prompt], compact=True)

# %% [markdown]
# These ids are all the model will ever see of you. The seven pieces of your question stand between the marks `<|im_start|>` and
# `<|im_end|>`, after a system message and before an opening for the answer: that frame is the model's *chat template*.
#
# A `Request` is what a client asks, and it never changes. The server's own notes about it are a `Sequence`. It knows some tokens
# (`num_tokens`: prompt and answer so far) and has *computed* some of them (`num_computed_tokens`). The second number chases the
# first, and that is a request's whole life. Here is the class, where it lives; skim it, its numbers come alive below.

# %%
show_source(Sequence)

# %% [markdown]
# ## 2. Prefill: the whole prompt in one pass
#
# The model turns each token into a row of numbers (`hidden`) and sends the rows through its layers. In every layer a token looks back at
# the tokens before it,
# through two vectors that each of them leaves behind: a **key** (K) and a **value** (V). They depend on nothing that comes later, so they
# are computed once and kept.
# The place where they are kept is the **KV cache**. We take 64 positions of it for our sequence:

# %%
memory = ContiguousMemory(num_positions=64, max_model_len=64)
executor = model.executor(memory)
sequence = Sequence(request)
memory.admit(sequence)
print("positions held:", sequence.region)
print("K is [layers, positions, kv heads, head size] =", list(executor.cache.k.shape))

# %% [markdown]
# A `Chunk` says "compute tokens [start, start + count) of this sequence". A chunk that is the whole prompt is called **prefill**:

# %%
chunk = Chunk(sequence, slot=0, start=0, count=len(request.prompt))
attend = PackedAttention(executor.cache, [chunk])
tokens = torch.tensor(request.prompt)
hidden = model.llama.forward(tokens, torch.arange(len(tokens)), attend)
print("token ids", list(tokens.shape), "-> hidden [total tokens, hidden size] =", list(hidden.shape))
print("positions of K that are filled now:", int(executor.cache.k[0].any(dim=(1, 2)).sum()))

# %% [markdown]
# **Predict, then run.** The pass gave 37 rows. How many of them are needed to choose the first token of the answer, and what were the
# others good for?
#
# <details><summary>Answer</summary>
#
# One: the last row, for it alone has seen the whole prompt. The others were computed for what they left behind: 37 keys and 37 values a
# layer, which every later token will read.
#
# </details>

# %%
scores = model.llama.logits(hidden[-1:])
probabilities, ids = scores.softmax(dim=-1)[0].topk(5)
print("scores [rows, tokens in the vocabulary] =", list(scores.shape))
for probability, token in zip(probabilities, ids):
    print(f"{probability:.2f}  {piece(token)!r}")

# %% [markdown]
# The model's output is a score for every token it knows; `softmax` makes probabilities of them. Taking the most likely token each time is
# called *greedy*, and is the default here.

# %% [markdown]
# ## 3. Decode: one token a step
#
# The token just chosen is known but not computed, so the next chunk has one token in it. That is **decode**: feed the newest token, get
# the next one, again and again. `executor.execute` does for any chunk what we did by hand, and chooses the token.
#
# The loop below starts over with a fresh `Sequence`. It does not say "prefill" or "decode" anywhere: each step computes what is missing.

# %%
memory.release(sequence)
sequence, reason = Sequence(request), None
memory.admit(sequence)
print("step  computes   num_computed_tokens  num_tokens  new token")
for step in range(1, 21):
    start, count = sequence.num_computed_tokens, sequence.num_tokens - sequence.num_computed_tokens
    result = executor.execute(StepPlan(chunks=(Chunk(sequence, 0, start, count),)))
    sequence.num_computed_tokens += count
    reason = sequence.append(result.tokens[0], now=0.0)
    span = f"[{start}, {start + count})"
    new = repr(piece(result.tokens[0]))
    print(f"{step:4}  {span:9}  {sequence.num_computed_tokens:19}  {sequence.num_tokens:10}  {new}")
    if reason:
        break
print("ended by:", reason.value)

# %% [markdown]
# Step 1 computes 37 tokens, every other step a single one. The pass that reads `' Paris'` yields `'.'`, and the one that reads `'.'`
# yields `<|im_end|>`: the model itself says that it is done.
# This token is called EOS, end of sequence. It is one of the request's `stop_token_ids`, so the sequence ends by `stop`; an answer that
# reaches `max_new_tokens` first ends by `length`.
#
# **Predict, then run.** The prompt has P = 37 tokens and the answer N = 8, EOS included. How many positions of the KV cache are filled at
# the end?
#
# <details><summary>Answer</summary>
#
# P + N − 1 = 44. The last token is known but never fed back, so nobody computes its K and V. This is `Request.kv_need` where the answer
# runs to `max_new_tokens`.
#
# </details>

# %%
prompt_tokens, new_tokens = len(request.prompt), len(sequence.output)
print("positions filled:", int(executor.cache.k[0].any(dim=(1, 2)).sum()))
print("tokens computed, with the cache:   ", sequence.num_computed_tokens)
print("tokens computed, if nothing is kept:", sum(prompt_tokens + i for i in range(new_tokens)))

# %% [markdown]
# The last line is what the same answer would cost without a cache: each of the 8 steps would compute everything before it again. The
# cache trades memory for work, and that memory becomes the bottleneck in the end (article 1, "a memória virou o palco").

# %% [markdown]
# ## 4. The same through the engine
#
# An `Engine` is that loop with a scheduler that decides which sequences take part in a step. `stream` hands out the tokens as they come:

# %%
engine = build_engine(model, max_num_seqs=1)
streamed = []
for token in engine.stream(request):
    streamed.append(token)
    print(model.tokenizer.decode([token]), end="|")
print("\nthe tokens of the loop above:", streamed == sequence.output)

# %% [markdown]
# EOS is kept in the token list and leaves no trace in the text: it is the empty piece at the end.
#
# Greedy always takes the top of the list. With a **temperature** above 0 the next token is drawn: at 1 by the probabilities you saw in
# section 2. The draw depends on the request's **seed** and on the place of the token in the answer, nothing else:

# %%
for temperature, seed in [(0, 1), (0, 2), (1, 1), (1, 1), (1, 2)]:
    drawn = model.request("A", "What is 2 + 2?", max_new_tokens=12, temperature=temperature, seed=seed)
    text = model.tokenizer.decode(list(build_engine(model, max_num_seqs=1).stream(drawn)))
    print(f"temperature {temperature}, seed {seed}: {text!r}")

# %% [markdown]
# Greedy ignores the seed; the same seed writes the same text; another seed, another text. Most of this course runs greedy, because then
# there is a sharp test: a request must get the very same tokens whatever else is in the batch.

# %% [markdown]
# ## 5. Two requests in one engine
#
# An engine with `max_num_seqs=2` has two **slots**, places for a sequence in a step. A starts alone. After three steps B arrives.
#
# **Predict, then run.** In which step is B's prompt computed, and does A have to wait for it?
#
# <details><summary>Answer</summary>
#
# In step 4, the first that begins after B has come. A is in the same step with one token, beside B's 34: one pass of the model over 35
# packed tokens. A does not skip a step. How long that step *takes* is another matter: section 6.
#
# </details>

# %%
engine = build_engine(model, max_num_seqs=2)
engine.submit(request)
for _ in range(3):
    engine.step()
engine.submit(model.request("B", "Name a fruit.", max_new_tokens=20, arrival=engine.now))
while engine.step():
    pass
for record in engine.trace.steps[2:6]:
    chunks = (f"{work.request_id} [{work.start}, {work.start + work.count})" for work in record.live)
    print(f"step {record.step}:", *chunks)

# %% [markdown]
# Everything the engine did is in `engine.trace`, and all pictures and numbers of this course are read off such a trace. The **slot
# picture** has a row for each slot and a column for each step:

# %%
show(slots(engine.trace), alt(engine.trace))
print(caption(engine.trace))
for record in engine.trace.finished:
    print(record.request_id, record.finish_reason, repr(model.tokenizer.decode(record.tokens)))

# %% [markdown]
# Hatched is prefill, plain is decode. A's slot is empty from the step after its last token, so it can be given to someone else at once.
#
# With more requests than slots somebody waits. Below are four requests on two slots, with the same scheduler; a `ScriptedExecutor` stands
# in for the model, so that the lengths are ours to choose. Run the cell for the slider and the play button; arrow keys move the slider.

# %%
lengths = {"A": 3, "B": 9, "C": 4, "D": 5}
requests = [Request(name, (1, 2, 3), SamplingParams(max_new_tokens=n)) for name, n in lengths.items()]
four = Engine(IterationScheduler(max_num_seqs=2), ScriptedExecutor()).run(requests)
print(caption(four))
Player(four, start=4)

# %% [markdown]
# A's last token comes in step 3, and in step 4 C computes its prompt in A's slot. D, last in the queue, follows C in step 8.
#
# ## 6. A request's clock
#
# The reader of an answer does not count steps but seconds. Real seconds differ from machine to machine, so here they are simulated: a
# step lasts 20 ms and 1 ms more for each token computed in it. A and B are as long as before; B arrives at 100 ms.

# %%
executor = ScriptedExecutor(seconds_per_step=lambda plan: 0.020 + 0.001 * plan.num_tokens)
requests = [
    Request("A", range(37), SamplingParams(max_new_tokens=8)),
    Request("B", range(34), SamplingParams(max_new_tokens=10), arrival=0.100),
]
trace = Engine(IterationScheduler(max_num_seqs=2), executor).run(requests)
for record in trace.finished:
    times = latency(record)
    gaps = " ".join(f"{1000 * gap:.0f}" for gap in times.itl)
    queue, ttft, e2e = (round(1000 * seconds) for seconds in (times.queue, times.ttft, times.e2e))
    print(f"{record.request_id}: queue {queue}, TTFT {ttft}, E2E {e2e}, ITL {gaps} (all in ms)")


# %%
def measure(ax, left, right, y, label):
    """An arrow with a label above it."""
    ax.annotate("", (left, y), (right, y), arrowprops={"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0})
    ax.text((left + right) / 2, y - 0.03, label, ha="center", va="bottom", fontsize=8)


# %%
fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
for y, record in enumerate(trace.finished):
    ms, colour = [1000 * time for time in record.token_times], colour_of(record.request_id, trace)
    arrival, admitted = 1000 * record.arrival, 1000 * record.first_scheduled
    ax.barh(y, admitted - arrival, left=arrival, height=0.2, color="#C4C4C4")
    ax.barh(y, ms[0] - admitted, left=admitted, height=0.2, color="w", hatch="////", edgecolor=colour)
    ax.plot(ms, [y] * len(ms), "o-", color=colour)
    measure(ax, arrival, ms[0], y - 0.2, f"TTFT {ms[0] - arrival:.0f}")
    measure(ax, ms[3], ms[4], y - 0.2, f"ITL {ms[4] - ms[3]:.0f}")
    measure(ax, arrival, ms[-1], y - 0.42, f"E2E {ms[-1] - arrival:.0f}")
ax.axvspan(1000 * trace.steps[4].start, 1000 * trace.steps[4].end, color="#EEEEEE", zorder=0)
ax.set(yticks=[0, 1], yticklabels=["A", "B"], ylim=(1.3, -0.65))
ax.set(xlim=(-3, 375), xlabel="milliseconds, simulated")
words = "Tokens of A and B as dots on a time axis. A's gap of 55 ms is the step in which B's prompt is computed."
show(fig, words)

# %% [markdown]
# Each dot is a token; the shaded band is step 5, in which B's prompt is computed.
#
# * **Queue time**, from arrival until first scheduled: the grey bar. B comes in the middle of a step and waits 20 ms for it to end.
# * **TTFT**, time to first token, counts from arrival: the queue, and then the prefill (hatched).
# * **ITL**, inter-token latency, is every gap between two dots. One of A's is 55 ms among gaps of 21 and 22: that step was longer, for it
#   held B's 34 prompt tokens too. Article 1 calls this an *engasgo*; cutting the prefill into pieces (notebook 04) shortens it.
# * **E2E**, end to end: from arrival to the last token.

# %% [markdown]
# ## 7. The words
#
# One word for one thing. The [glossary](GLOSSARY.md) says each in a sentence.
#
# | in this course | in the articles | in the code | notebook |
# |---|---|---|---|
# | request | requisição, solicitação | `Request` | 00 |
# | sequence | sequência | `Sequence` | 00 |
# | token, EOS | token, token de fim de sequência | `SamplingParams.stop_token_ids`, `FinishReason.STOP` | 00 |
# | prefill | prefill, pré-preenchimento; `Sequencia.Iniciar` hides one | a `Chunk` of the prompt, or of a part of it | 00, 04 |
# | decode | decode, decodificação | a `Chunk` of one token | 00 |
# | step, iteration | passo, iteração, etapa; `ExecutarUmPassoDeDecode` | `Engine.step`, `StepPlan` | 00, 02 |
# | KV cache | KV cache, cache de valor-chave | `KVCache` (the tensors), `ContiguousMemory`, `PagedMemory` (who may use what) | 00, 05, 06 |
# | batch | lote | `StepPlan.chunks` | 01 |
# | static batch | fornada, lote estático, grupo fixo | `StaticBatcher` | 02 |
# | dynamic batch, window | batching dinâmico, janela; `prazoEstourou` | `DynamicBatcher.max_wait` | 02 |
# | continuous batching, iteration-level scheduling | lote fluido, lote que nunca fecha, agendamento por iteração, lote contínuo | `IterationScheduler` | 03 |
# | scheduler | agendador, escalonador | `Scheduler.schedule` | 02 |
# | slot; free slot | slot, posição; vaga, slot vago; `SlotsMaximos` | `max_num_seqs`, `Sequence.slot` | 00 |
# | dead slot | slot morto, lugar morto | `StepPlan.dead`, `Summary.dead_slot_steps` | 02 |
# | waiting queue | fila; `fila.TryReceber` | `Scheduler.waiting` | 02 |
# | admit, admission control | admissão, entrada, controle de admissão; `MemoriaLivreParaKvCache` | `IterationScheduler.admit_one`, `ContiguousMemory.admit` | 02, 03, 07 |
# | finish, leave | saída; `s.Terminou`, `EntregarAsync` | `Sequence.is_finished`, `Scheduler.leave`, `Engine.stream` | 00, 02 |
# | reserve | reserva, reserva não usada | `ContiguousMemory.reserve`, `MemoryUse`, `schedulers/reserve.py` | 02, 05, 07 |
# | stall (a long ITL at an admission) | engasgo, interferência de admissão | `Latency.itl` | 00, 04 |
# | chunked prefill, token budget | prefill fatiado, pré-preenchimento fragmentado, chunked prefill, orçamento de tokens | `Chunked.token_budget` | 04 |
# | block, block table | bloco, página, mapa de blocos | `PagedMemory`, `Sequence.block_table` | 06 |
# | prefix hit, copy-on-write | compartilhamento de prefixo | `PrefixIndex`, `PagedMemory.fork` | 06 |
# | preempt: recompute or swap | preempção: recálculo ou troca (swap) | `Evict`, `Status.PREEMPTED` | 07 |
# | selective batching | selective batching | `Llama.forward`, `PackedAttention` | 03 |
# | queue time, TTFT | tempo na fila, tempo até o primeiro token | `Latency.queue`, `Latency.ttft` | 00 |
# | ITL | latência entre tokens, intervalos de streaming | `Latency.itl` | 00 |
# | E2E | latência de ponta a ponta | `Latency.e2e` | 00 |
# | throughput | throughput, vazão, rendimento | `Summary.tokens_per_second` | 01 |
# | percentile | p95, percentil | `percentile` | 02 |
# | operating limit | limite operacional, carga que ainda atende às metas | `operating_limit` | 09 |

# %% [markdown]
# ## 8. The map
#
# | notebook | question it answers | lab |
# |---|---|---|
# | 00 Start here | What happens to one request? | |
# | [01 Why batch](01_why_batch.ipynb) | Why does a decode step cost nearly the same for one request or for eight? | |
# | [02 Static batching](02_static_batching.ipynb) | What does a batch that closes waste? | [1](labs/lab1.ipynb) |
# | [03 Iteration level](03_iteration_level.ipynb) | What changes when the batch never closes? | [2](labs/lab2.ipynb) |
# | [04 Chunked prefill](04_chunked_prefill.ipynb) | How does a long prompt enter without a stall? | [3](labs/lab3.ipynb) |
# | [05 KV memory](05_kv_memory.ipynb) | How many sequences fit, and what is reserved in vain? | |
# | [06 Paged KV cache](06_paged_kv_cache.ipynb) | What do blocks and block tables change? | [4](labs/lab4.ipynb) |
# | [07 Preemption and admission](07_preemption_and_admission.ipynb) | What happens when memory runs out? | [5](labs/lab5.ipynb) |
# | [08 Paged attention in CUDA](08_paged_attention_cuda.ipynb) | How does a kernel read a block table? | [6](labs/lab6.ipynb) |
# | [09 The operating limit](09_operating_limit.ipynb) | What load can a big GPU carry within its targets? | |
#
# **Article 1, *O Lote Que Nunca Fecha***
#
# | section | notebook | code |
# |---|---|---|
# | por que existe lote, em uma linha | 01 | `model/linear.py`, `model/llama.py` |
# | o jeito antigo: o lote como fornada | 02 | `schedulers/static.py` |
# | a observação que mudou tudo | 03 | `schedulers/iteration.py`, `model/llama.py` |
# | o tamanho do ganho, e de onde ele vem | 02, 03; 09 | `metrics.py` (`dead_slot_factor`), `workload/` |
# | o diagrama: fornada contra fluxo | 02, 03 | `plot/figure.py` (`slots`) |
# | o código que denuncia o servidor antigo | 02, 03 | `schedulers/static.py`, `schedulers/iteration.py`, `engine.py` |
# | o preço: a fornada tinha uma virtude | 00 (section 6), 04 | `schedulers/mix.py`, `metrics.py` (`latency`) |
# | a consequência que ninguém anuncia: a memória virou o palco | 05, 06, 07 | `memory/`, `schedulers/reserve.py`, `schedulers/evict.py` |
# | Insights & Takeaways | "What you saw" at the end of each notebook | |
#
# **Article 2, *Lotes Contínuos a partir dos Primeiros Princípios***
#
# | section | notebook | code |
# |---|---|---|
# | O que exatamente é lote contínuo e por que o lote estático falhou? | 02, 03 | `schedulers/` |
# | Como o cache KV interage com lotes contínuos no nível do sistema? | 00, 05, 06 | `memory/`, `model/kv_cache.py` |
# | Principais mecanismos: política de preempção | 07 | `schedulers/evict.py`, `memory/paged.py` |
# | Principais mecanismos: controle de admissão | 07 | `schedulers/reserve.py`, `schedulers/join.py` |
# | Principais mecanismos: pré-preenchimento fragmentado | 04 | `schedulers/mix.py` |
#
# **Article 3, *Continuous batching: mais capacidade para servir LLMs***
#
# | section | notebook | code |
# |---|---|---|
# | Como funciona o continuous batching | 00, 03 | `engine.py`, `schedulers/iteration.py` |
# | Qual foi a contribuição do artigo sobre o Orca? | 03 | `schedulers/iteration.py`, `model/kv_cache.py` |
# | Batching estático, dinâmico e contínuo: o que muda? | 02, 03 | `schedulers/` |
# | Batching dinâmico no vLLM: confira quando o lote pode mudar | 02, 03 | `schedulers/dynamic.py`; streaming: `engine.py`, `async_engine.py` |
# | Um exemplo de escalonamento | 03 | `simulate/scripted.py` |
# | Por que o throughput aumenta e onde o KV cache impõe limites | 01, 05 | `model/linear.py`, `memory/` |
# | PagedAttention aproveita melhor a memória | 06, 08 | `memory/paged.py`, `cuda/kernels/` |
# | O que acontece com a latência? | 00 (section 6), 04 | `metrics.py`, `schedulers/mix.py` |
# | Batching contínuo em LLMs com pouca e muita demanda | 09 | `workload/` |
# | Servidores de LLM com batching contínuo: suporte e limites | last cell of each notebook; 09 | `schedulers/systems.py` |
# | Onde as promessas passam do ponto | 03; 09 | `metrics.py` |
# | O que mudar na prática a partir de agora | 09 | `simulate/limit.py` (`operating_limit`) |

# %% [markdown]
# ## What you saw
#
# * A request is token ids in and token ids out. One number, `num_computed_tokens`, chases another, `num_tokens`.
# * Prefill computes the whole prompt in one step and leaves K and V behind; decode computes one token a step and reads them all.
# * P prompt tokens and N answer tokens fill P + N − 1 positions. EOS ends the answer when the model chooses, `max_new_tokens` otherwise.
# * Two sequences went through one step together, one in prefill and one in decode, and shared nothing but the step.
# * The queue and the prefill make the TTFT; somebody else's prefill can make one ITL long.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it says
# "NOT YET". Solutions: `notebooks/solutions/00_start_here.py`.
#
# **1.** How many K/V positions has a request stored when its answer ends? One line.


# %%
def positions_needed(prompt_tokens, new_tokens):
    return None


# %%
attempt(check_positions_needed, positions_needed)

# %% [markdown]
# **2.** `script` is what a model would write, token after token, if nobody stopped it. Return the tokens that the client gets, as a list with
# the token that ends it, and the reason, `"stop"` or `"length"`. Where both are true, `"stop"` wins. About seven lines.


# %%
def output_of(script, stop_token_ids, max_new_tokens):
    return None


# %%
attempt(check_output_of, output_of)

# %% [markdown]
# **3.** From the arrival of a request and the times of its tokens, in seconds, compute its TTFT and the list of its inter-token
# latencies, as a pair. About two lines.


# %%
def request_times(arrival, token_times):
    return None


# %%
attempt(check_request_times, request_times)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**, `vllm/v1/core/sched/scheduler.py`: the note that opens `schedule()` says that there is no prefill or decode phase, only
#   `num_computed_tokens` catching up. `vllm/v1/request.py` is our `Request` and `Sequence` in one.
#   Its metrics: `vllm:request_queue_time_seconds`, `vllm:time_to_first_token_seconds`, `vllm:inter_token_latency_seconds`,
# `vllm:e2e_request_latency_seconds`.
# * **nano-vllm**, `nanovllm/engine/sequence.py` and `llm_engine.py`: the same step of three calls in under 200 lines.
# * **mini-sglang**, `minisgl/core.py`: `Req` and `Batch`; `cached_len` is our `num_computed_tokens`.
# * **transformers**, `src/transformers/generation/continuous_batching/requests.py`: `RequestState`, with `position_offset` in that role,
#   and explicit PREFILLING and DECODING states to compare with.
#
# Next: [01 Why batch](01_why_batch.ipynb)
