# %% [markdown]
# # 01 Why batch: one trip through the weights
#
# About 20 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [00](00_start_here.ipynb): what a decode step is. Article 1 says why batches exist in one sentence (*por que existe lote, em
# uma linha*): to generate a token is to read all the weights of the model from memory, and that reading costs the same for one request
# or for thirty. At the end you can say
#
# * how many bytes and how many operations one decode step takes, and why the bytes hardly depend on the batch;
# * what the **roofline** of a machine is, and how to measure both of its roofs;
# * how far a real model on a real CPU stays below it, and where the rest of the time goes;
# * when a larger batch stops helping: the **ridge**, and the K and V that every sequence brings along.
#
# Previous: [00 Start here](00_start_here.ipynb) · Next: [02 Static batching](02_static_batching.ipynb)
#
# Articles: 1, "por que existe lote, em uma linha"; 3, "por que o throughput aumenta". Words: [glossary](GLOSSARY.md).

# %%
from functools import partial
from math import prod
from pathlib import Path

import torch
import torch.nn.functional as F

import minibatch.model
from minibatch import load_model
from minibatch.bench import format_table, stored_report
from minibatch.bench.machine import best_seconds, measure_bandwidth, measure_flops
from minibatch.bench.model import bench_model, decode_plan
from minibatch.checks.base import attempt
from minibatch.checks.nb01 import check_balance_batch, check_bytes_per_step, check_roofline_tokens_per_s
from minibatch.cuda.errors import BuildError, KernelUnavailable
from minibatch.model.linear import Linear
from minibatch.model.native import NativeLinear, load_library
from minibatch.model.pages import use_huge_pages
from minibatch.plot import show, show_source
from minibatch.plot.bench import parts_alt, step_parts, throughput, throughput_alt

# %% [markdown]
# First, while the memory is still free, a number that section 3 will need: how many bytes a second your machine reads.

# %% tags=["local"]
bandwidth_here = measure_bandwidth()
print(f"{bandwidth_here / 1e9:.1f} GB/s")

# %% [markdown]
# ## 1. Count: what one decode step must read
#
# A decode step computes one new token for each sequence of the batch (notebook 00). Every matrix of the model takes part
# in that, and every number in a matrix. Here they all are:

# %%
model = load_model("smollm2")
config = model.config
sizes = {name: prod(shape) for name, shape in config.shapes().items()}
layer = sum(size for name, size in sizes.items() if ".layers.0." in name)
print(f"one layer            {layer:12,}")
print(f"{config.num_layers} layers            {config.num_layers * layer:12,}")
print(f"embedding = head     {sizes['model.embed_tokens.weight']:12,}")
print(f"all parameters       {sum(sizes.values()):12,}")

# %% [markdown]
# The embedding serves twice: at the bottom a token looks up one row of it, at the top the whole matrix scores the next
# token. So a step reads all of it once.
#
# A parameter takes 4 bytes in float32 and 2 in bfloat16. And it does little: it is multiplied with one number and added to
# a sum, 2 floating-point operations (FLOPs) for each token. That is all the arithmetic there is to set against the bytes:

# %%
parameters = sum(sizes.values())
flops_per_token = 2 * parameters
for dtype, item_bytes in (("float32", 4), ("bfloat16", 2)):
    read = parameters * item_bytes
    print(f"{dtype}: {read / 1e6:.0f} MB a step for {flops_per_token / 1e6:.0f} MFLOP a token")
    for batch in (1, 8):
        print(f"   batch {batch}: {batch * flops_per_token / read:g} FLOP per byte")

# %% [markdown]
# FLOP per byte is called **arithmetic intensity**. With 2-byte weights it is just the batch size: at batch 1, one
# operation for each byte fetched. A processor can do far more than one operation in the time that a byte takes to arrive, so at
# batch 1 it mostly waits.
#
# Why do the weights not stay inside the processor, in its caches, from one step to the next? Those of most models are
# larger than any cache: when the last layer has been read, the first has been pushed out, and the next step
# begins with the first. (If yours fit, the measurement below will show it: a share of the bandwidth above 100 %.)
#
# The batch comes in because the weights do not care whose token it is. A matrix of the model times one column of numbers, or
# times eight, is read once. Here is the plan of a step for eight sequences, and all that its products see of them:

# %%
plan = decode_plan(batch=8, context=128)
print(f"{len(plan.chunks)} sequences, {plan.num_tokens} tokens in this step")
x = torch.zeros(plan.num_tokens, config.hidden_size)
product = model.llama.head
print("x [tokens, hidden]", list(x.shape), "times the head", list(product.shape))
print("-> scores [tokens, vocabulary]", list(product(x).shape))

# %% [markdown]
# ## 2. Measure: one step, batch 1 to 64
#
# **Predict, then run.** A step for 8 sequences computes 8 tokens. Does it take about 1, 3 or 8 times as long as a step for
# one? And a step for 64?
#
# <details><summary>Answer</summary>
#
# If reading the weights were all, 1 time for both. If arithmetic were all, 8 and 64 times. The truth lies between, and where
# depends on the machine: see the column "step" below, once for a machine on record and once for yours.
#
# </details>
#
# Times belong to a machine, so the committed output of this notebook shows a **stored measurement** and says where and when it was
# made. The sentences around it hold for any machine; the numbers are in the outputs. `python -m minibatch bench model` is
# how such a measurement is made.

# %%
report = stored_report()
print(report.where_and_when)
for dtype in ("float32", "bfloat16"):
    print(f"\n{dtype}\nbatch   ms a step   step, times batch 1   tokens/s, times batch 1")
    first = report.of(dtype)[0]
    for row in report.of(dtype):
        longer, more = row.step_ms / first.step_ms, row.tokens_per_s / first.tokens_per_s
        print(f"{row.batch:5}   {row.step_ms:9.1f}   {longer:19.2f}   {more:23.2f}")

# %% [markdown]
# Read the last two columns together: what a step costs more, and what it brings more. Their quotient is the batch size. As
# long as the last column grows, a larger batch is worth its price.
#
# The price is paid by the requests: a step is the time between two tokens of *each* of them (its ITL). Who shares a batch of 64
# waits longer for the next token than who is alone; the server as a whole writes many more.
#
# Now yours. The next cell measures this model on your machine, in float32, through the very executor that serves requests; its
# output is not kept when the notebook is committed. It takes about half a minute.

# %% tags=["local"]
here = bench_model([model], batches=(1, 2, 4, 8, 16), repeats=3, bandwidth=bandwidth_here)
print(format_table(here))

# %% [markdown]
# ## 3. The roofline
#
# How good is that? Two numbers of the machine answer it, and both can be measured:
#
# * **bandwidth**: bytes a second, by reading an array too large for any cache;
# * **arithmetic**: FLOPs a second, by one large matrix product, in which every number fetched is used thousands of times.

# %%
show_source(measure_bandwidth)

# %%
show_source(measure_flops)

# %% [markdown]
# A step takes at least as long as its bytes need, and at least as long as its FLOPs need. So it takes at least the longer of the two:
#
# > tokens/s ≤ batch / max( bytes ÷ bandwidth, FLOPs ÷ arithmetic )
#
# Drawn over the batch size this is a slope and a flat roof: the **roofline** (Williams, Waterman, Patterson, CACM 2009). On the
# slope each additional sequence is free; on the flat, two sequences take twice as long as one.

# %%
show(throughput(report), throughput_alt(report))
for dtype in ("float32", "bfloat16"):
    rows = report.of(dtype)
    best = max(rows, key=lambda row: row.tokens_per_s)
    under = [row.tokens_per_s / report.ceiling(dtype, row.batch) for row in rows]
    print(f"{dtype}: at best {best.tokens_per_s:.0f} tokens/s, at batch {best.batch};", end=" ")
    print(f"between {min(under):.0%} and {max(under):.0%} of the roof")

# %% [markdown]
# The dashed line is the weights alone, the dotted one the arithmetic alone; the solid roof also counts K and V, which bend it
# before the corner (section 5). And yours:

# %% tags=["local"]
show(throughput(here), throughput_alt(here))

# %% [markdown]
# The corner, where reading and computing take equally long, is the **ridge**: arithmetic ÷ bandwidth, in FLOP per byte. With 2-byte
# weights it is at the same time a batch size; with 4-byte weights the batch is twice that, for each byte then carries half
# the operations. A GPU that serves one request at a time uses one part in some hundreds of its arithmetic:

# %%
CARDS = {  # name: bytes/s, FLOP/s (dense BF16), from the data sheets
    "A100 80 GB": (2.039e12, 312e12),
    "H100 SXM": (3.35e12, 989e12),
    "H200 SXM": (4.8e12, 989e12),
}
measured = {"the CPU on record": (report.bandwidth, report.arithmetic["bfloat16"])}
print("16-bit weights          GB/s   TFLOP/s   ridge = batch")
for name, (bandwidth, arithmetic) in (CARDS | measured).items():
    ridge = arithmetic / bandwidth
    print(f"{name:20} {bandwidth / 1e9:7.0f} {arithmetic / 1e12:9.2f} {ridge:15.0f}")

# %% [markdown]
# The GPU rows are what the makers promise (NVIDIA's data sheets, dense BF16), the CPU row is measured: promises are the kinder
# kind of number.

# %% [markdown]
# ## 4. Below the roof
#
# A roof is a bound, not a forecast. A step is 121 products with weights (4 in each of 30 layers, and the head), and between them
# hundreds of small operations that each have to be called. The table says what share of the step was spent inside the products, inside
# attention, and in the rest: norms, rotation, sampling, Python.

# %%
print(format_table(report))

# %%
show(step_parts(report), parts_alt(report))

# %% [markdown]
# The bars are the column "step ms", cut in three by the shares beside it.
#
# "of bandwidth" is the weights read a second, over the measured bandwidth: 100 % at batch 1 would mean that the sentence of
# the article is the whole truth on this machine. What is missing has two places. Attention and the rest take time in which
# no weight is read: that is in the picture. And while they run, the products read at some speed of their own:

# %%
for dtype in ("float32", "bfloat16"):
    row = report.of(dtype)[0]
    whole = report.bandwidth_share(row)
    print(f"{dtype}, batch 1: the step reads weights at {whole:.0%} of the bandwidth,", end=" ")
    print(f"its products while they run at {whole / row.linear_share:.0%}")

# %% [markdown]
# So the sentence is exact about bytes and only a bound about time. On a GPU the shares differ, but the picture has the same three
# colours; CUDA graphs and fused kernels are there to shrink the last.
#
# ### The fast part, explained: a weight is laid out once
#
# The products are where the weights are read, so a trick there may pay. In `F.linear` a weight lies in memory row after row. The
# fast kernels want it in small blocks, side by side in the order in which the processor's registers take them in. Handed plain rows, a library
# either copies them into that order at every call (the weight is then read, written and read again) or takes a slower path that works on
# rows. The weights never change, so `Linear` has them copied once, when the model is loaded:

# %%
show_source(Linear)

# %% [markdown]
# No operation is saved by this and no number changes beyond rounding: only trips through memory. How much it gives depends on your
# processor and torch; where torch has no packed product, `Linear` is `F.linear`. For the largest matrix of the model:

# %% tags=["local"]
weight, packed = model.llama.embedding, model.llama.head  # one matrix, plain and laid out
print("packed:", packed.packed, "| ms for one product of", list(weight.shape))
for batch in (1, 8, 64):
    x = torch.ones(batch, weight.shape[1])
    plain_ms = 1e3 * best_seconds(partial(F.linear, x, weight), 0.3)
    packed_ms = 1e3 * best_seconds(partial(packed, x), 0.3)
    print(f"batch {batch:2}: F.linear {plain_ms:6.2f}   Linear {packed_ms:6.2f}")

# %% [markdown]
# The other trick is about *finding* the weights. A processor translates every address, and remembers the translations of some thousand
# pages of memory. In pages of 4 KiB the weights are far more than that, so it looks them up over and over, a hidden traffic
# beside the bytes. `use_huge_pages` asks Linux to put what was loaded into pages of 2 MiB. Other systems do without.

# %%
show_source(use_huge_pages)

# %% [markdown]
# Two more stand in `model/llama.py`: products that share an input are one product (q, k and v; gate and up), and the sum
# with the residual is made in the pass of the product. Both mean fewer calls and fewer trips.
#
# ### A product in plain sight
#
# What happens inside a product need not stay with the library. `model/native.cpp` has one in C++, and its inner loop is this notebook in
# a few lines:

# %%
show_source(Path(minibatch.model.__file__).with_name("native.cpp"), "Lanes sums[M]", "sums[m][o] += x[m]")

# %% [markdown]
# Each turn of the outer loop loads `OUTS` registers of weights, front to back as they lie in memory: these are the bytes of section 1.
# Each register is then multiplied with a number of each of the `M` rows of x: these are the FLOPs. So the batch, up to the rows of a tile,
# is how often a weight is used each time it is loaded. The sums stay in registers to the end, and `__builtin_prefetch` asks for weights some time
# before their turn, because memory is slow to answer.
#
# `load_model("smollm2", native=True)` puts this product (in float32; in bfloat16 the library has the processor's matrix units, where there
# are any) and a norm and a rotation of one pass each in the place of torch's operations. On the command line it is `--native`, of `compare`
# and `bench model`. It needs Linux and g++, and is compiled here, for your CPU. The largest matrix once more:

# %% tags=["local"]
try:
    native = NativeLinear(load_library(), weight)
except (KernelUnavailable, BuildError) as error:
    print(error)
else:
    for batch in (1, 8, 64):
        x = torch.ones(batch, weight.shape[1])
        packed_ms, native_ms = (1e3 * best_seconds(partial(product, x), 0.3) for product in (packed, native))
        print(f"batch {batch:2}: Linear {packed_ms:6.2f}   NativeLinear {native_ms:6.2f}")

# %% [markdown]
# ## 5. When more stops helping
#
# The weights are shared by the batch. K and V are not: every sequence reads its own, in every step, all of its context.

# %%
print(f"K and V of one token: {config.kv_bytes_per_token:,} bytes in float32, all layers")
weights = 4 * parameters
for context in (128, 1024, 8192):
    for batch in (1, 8, 64):
        kv = batch * context * config.kv_bytes_per_token
        print(f"context {context:4}, batch {batch:2}: weights {weights / 1e6:.0f} MB", end=" ")
        print(f"and K and V {kv / 1e6:6,.0f} MB")

# %% [markdown]
# **Predict, then run.** At context 1,024, from which batch size on does a step of SmolLM2 read more bytes of K and V than of weights?
#
# <details><summary>Answer</summary>
#
# 538 MB ÷ (1,024 × 46,080 bytes) = 11.4, so from 12 on. In bfloat16 both halve and the batch is the same.
#
# </details>

# %%
for context in (128, 1024, 8192):
    batch = weights / (context * config.kv_bytes_per_token)
    print(f"context {context:4}: K and V equal the weights at batch {batch:.1f}")

# %% [markdown]
# So the intensity does not grow with the batch forever. Per sequence it is at most
#
# > FLOPs of one token ÷ bytes of K and V of one context
#
# Where that bound is below the ridge, *no* batch makes the products' arithmetic the bottleneck: the larger it gets, the more of the
# traffic is K and V, which nobody shares. An 8-billion model of today (Llama-3.1-8B: 16.06 GB of 16-bit weights, 128 KiB of K and V a
# token) against an A100's ridge of 153:

# %%
weights_8b, kv_8b = 16.06e9, 128 * 1024
batches = (1, 16, 64, 256)
print("FLOP per byte", *(f"batch {batch:<4}" for batch in batches), "at most")
for context in (128, 2048, 8192):
    kv = context * kv_8b
    found = [batch * weights_8b / (weights_8b + batch * kv) for batch in batches]  # 2 FLOPs, 2 bytes
    print(f"context {context:5}", *(f"{value:10.0f}" for value in found), f"{weights_8b / kv:7.0f}")

# %% [markdown]
# (Attention's own arithmetic is left out: a number of K or V meets the 4 query heads of its group, 8 FLOPs for 2 bytes, far below a
# GPU's ridge.) At short contexts a batch of some hundreds reaches the ridge. At 2,048 tokens each, none does.
#
# So three things end the growth, and which comes first depends on the machine and the contexts:
#
# 1. **arithmetic**, at the ridge: the roof is flat;
# 2. **reading K and V**, which grows with batch × context: the roof bends early;
# 3. **room for K and V**: the batch no longer fits. That is article 1's "a memória virou o palco", and
#    [notebook 05](05_kv_memory.ipynb).
#
# A fourth sets the pace before all of them on a server that batches badly: sequences that are not there. A batch of 8 in which 5 have
# finished still reads all the weights, for 3. How a batch opens and closes is the next notebook.

# %% [markdown]
# ## What you saw
#
# * A decode step reads every weight once, whatever the batch: 538 MB for SmolLM2 in float32, 269 in bfloat16.
# * With 2-byte weights the arithmetic intensity of decode is the batch size. The ridge of the machine is the batch at which computing
#   takes as long as reading.
# * The roofline is a bound. A real step stays below it, and a profile says why: products, attention, the rest.
# * A larger batch gives more tokens a second together and longer gaps to each.
# * Weights are shared, K and V are not. With long contexts they, not arithmetic, are the end of the growth.

# %% [markdown]
# ## Exercises
#
# Replace `return None` and run the cell, then the check below it. The check says what is wrong; until you have written something it
# says "NOT YET". Solutions: `notebooks/solutions/01_why_batch.py`.
#
# **1.** How many bytes does one decode step read? `contexts` is a list with the context of each sequence in the batch, in tokens. One line.


# %%
def bytes_per_step(weight_bytes, kv_bytes_per_token, contexts):
    return None


# %%
attempt(check_bytes_per_step, bytes_per_step)

# %% [markdown]
# **2.** The roof over the tokens/s at a batch size, counting the weights and not K and V. `bandwidth` is in bytes/s, `arithmetic` in
# FLOP/s. One to three lines.


# %%
def roofline_tokens_per_s(batch, weight_bytes, flops_per_token, bandwidth, arithmetic):
    return None


# %%
attempt(check_roofline_tokens_per_s, roofline_tokens_per_s)

# %% [markdown]
# **3.** The batch size at which computing takes exactly as long as reading the weights (not a whole number, as a rule).
# `item_bytes` is the size of one parameter. One or two lines. Does the size of the model matter?


# %%
def balance_batch(parameters, item_bytes, bandwidth, arithmetic):
    return None


# %%
attempt(check_balance_batch, balance_batch)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM**, `vllm/model_executor/layers/utils.py`: `dispatch_cpu_unquantized_gemm` lays the weights of its CPU backend out once, as
#   `Linear` does. `vllm/config/scheduler.py`: `max_num_seqs`, the largest batch it will form. `vllm bench latency` times a batch size.
# * **llama.cpp**, `tools/batched-bench`: tokens/s for a list of batch sizes and contexts, the table of section 2 in C++.
#   `ggml/src/ggml-cpu/llamafile/sgemm.cpp`: products in tiles of registers, as in `native.cpp`, for many CPUs and types of weights.
# * **torch**, `torch/_inductor/fx_passes/mkldnn_fusion.py`: where `torch.compile` packs weights for oneDNN with the operation used here.
# * **nano-vllm**, `nanovllm/engine/model_runner.py`: CUDA graphs captured for batch sizes 1, 2, 4, 8, 16, 32 and so on: the answer to
#   the third colour of section 4 on a GPU.
#
# Next: [02 Static batching](02_static_batching.ipynb)
