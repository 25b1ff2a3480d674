# %% [markdown]
# # 06 The paged KV cache
#
# About 45 minutes. No GPU needed. Needs SmolLM2 (93 MB, fetched once by the first cell that loads it).
#
# You need [03](03_iteration_level.ipynb), and [05](05_kv_memory.ipynb): what a contiguous KV cache wastes. At the end you can say
#
# * what a block table is, and where the K and V of position 37 lie;
# * how attention reads a sequence whose blocks are scattered, and why the text stays the same;
# * how many more sequences fit on the same memory, and what is still wasted: (b − 1) / 2 positions each;
# * how sequences share blocks, when one must be copied first, and when a block may be found by others at all.
#
# Previous: [05 KV memory](05_kv_memory.ipynb) · Next: [07 Preemption and admission](07_preemption_and_admission.ipynb)
#
# Articles: 1, "a memória virou o palco"; 2, "como o cache KV interage com lotes contínuos"; 3, "PagedAttention aproveita melhor a
# memória". Lab: [4, the block allocator](labs/lab4.ipynb). Words: [glossary](GLOSSARY.md).

# %%
from collections import deque
from copy import deepcopy
from dataclasses import replace
from unittest.mock import patch

from minibatch import Engine, Request, SamplingParams, build_engine, load_model, plot
from minibatch.checks.base import attempt
from minibatch.checks.nb06 import check_newcomers_table, check_slot_mapping, check_where_to_write
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.memory.blocks import BlockPool
from minibatch.memory.prefix import PrefixIndex
from minibatch.metrics import tokens_sha256
from minibatch.model import paged_kv
from minibatch.model.kv_cache import PackedAttention
from minibatch.plot import show, show_source
from minibatch.request import Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.simulate import ScriptedExecutor
from minibatch.workload import Planned, azure_trace, chat_prompts, poisson, synthetic, to_requests, uniform

# %% [markdown]
# ## 1. An idea of the sixties
#
# Article 1 ends on a question ("a consequência que ninguém anuncia: a memória virou o palco"): a sequence's memory grows token by token,
# nobody knows how far, and reserving the most for everyone suffocates the server "de uma memória que está livre, só que presa". The answer,
# it says, was stolen from your operating system. Article 2 names it ("como o cache KV interage com lotes contínuos"): blocks of equal size
# that need not lie side by side. Article 3 adds the second half ("PagedAttention aproveita melhor a memória"): a map of blocks keeps the logical
# order, and what is *duplicated without need* is stored once. All of it is the vLLM paper (Kwon et al., SOSP 2023).
#
# | operating system | here |
# |---|---|
# | page of memory | **block**: K and V of `block_size` positions, in every layer |
# | page table of a process | **block table** of a sequence: which block holds its positions 0 to 15, which 16 to 31, … |
# | virtual address → physical address | position → **slot** `block_table[p // block_size] * block_size + p % block_size` |
# | a page is given when first touched | a block is taken when the first token falls into it |
# | processes that share a page, copy-on-write | sequences that share a block, copy-on-write |
# | swap file | host memory (notebook 07) |
#
# ## 2. A paged allocator in one cell
#
# A free list and tables. That is all of it.


# %%
class Paging:
    """`num_blocks` blocks of `block_size` positions."""

    def __init__(self, num_blocks, block_size):
        self.free, self.size, self.tables = deque(range(num_blocks)), block_size, {}

    def grow(self, name, num_tokens):
        """Room for the first num_tokens tokens of a sequence. All or nothing."""
        table = self.tables.setdefault(name, [])
        missing = -(-num_tokens // self.size) - len(table)  # rounded up
        if missing > len(self.free):
            return False
        table += [self.free.popleft() for _ in range(missing)]
        return True

    def release(self, name):
        """Its blocks go to the end of the free list, the last one first (section 9 says why)."""
        self.free.extend(reversed(self.tables.pop(name)))

    def slot(self, name, position):
        """Where the K and V of a position lie."""
        return self.tables[name][position // self.size] * self.size + position % self.size


# %% [markdown]
# **Predict, then run.** Eight blocks of four. A has 6 tokens, B has 9, A grows to 9, B leaves, C comes with 17. Which blocks does C get, and in
# which order? Would a contiguous allocator have had room for C?

# %%
paging = Paging(num_blocks=8, block_size=4)
for name, tokens in [("A", 6), ("B", 9), ("A", 9)]:
    print(f"{name} grows to {tokens:2}: {paging.grow(name, tokens)}  {paging.tables}")
paging.release("B")
print("B leaves; free, in order:", list(paging.free))
print("C grows to 17:", paging.grow("C", 17), "", paging.tables)
print("position 9 of C lies in slot", paging.slot("C", 9))
print("D grows to 5: ", paging.grow("D", 5))

# %% [markdown]
# <details><summary>Answer</summary>
#
# C gets 6, 7, 4, 3, 2: first the two that nobody has had, then B's three from its tail. Its table is not sorted and has no need to be. A contiguous
# region for 17 positions would have found blocks 2 to 4 and 6 to 7 free, 20 positions in all, and no gap longer than 12: *external*
# fragmentation, which cannot exist here, since any block is as good as any other.
#
# </details>
#
# Two properties deserve a name. It is **all or nothing**: D's failed attempt took no block. And nobody asked how long an answer will be.

# %% [markdown]
# ## 3. The same in the package
#
# `BlockPool` is the free list. It counts *owners* where the cell above has none, because blocks will be shared. `PagedMemory` is the tables.

# %%
show_source(BlockPool.give_back)

# %%
show_source(PagedMemory.grow)

# %% [markdown]
# `shared`, `tail` and `_copy_on_write` belong to section 8. Without them it is the `grow` of the cell above, and a short way out for the usual
# case: fifteen tokens of sixteen fall into a block that is there already.
#
# Four requests on three slots and twelve blocks of four, through the engine. The other side of the slot picture, in the same colours: **who owns
# which block** at each step.


# %%
def request(name, prompt, new_tokens, **more):
    return Request(name, tuple(prompt), SamplingParams(new_tokens), **more)


def serve(requests, memory, max_num_seqs=8, **policies):
    """A trace in which a step lasts a second and the tokens do not matter."""
    return Engine(IterationScheduler(max_num_seqs, memory, **policies), ScriptedExecutor()).run(requests)


four = [request("A", range(10), 8), request("B", range(6), 12), request("C", range(5), 4), request("D", range(9), 4)]
toy = serve(four, PagedMemory(num_blocks=12, block_size=4), max_num_seqs=3)
show(plot.blocks(toy, width=8), plot.blocks_alt(toy))
print(plot.blocks_caption(toy))

# %% [markdown]
# A takes three blocks for its prompt of ten, and a fourth in step 4, when its thirteenth token falls due. C's two blocks lie free for as long as fresh
# ones are left. No row is anybody's for ever, and no request has its rows side by side. Below: the dark part of the memory holds tokens, the light
# edge above it is what is taken and still empty. It is never more than three positions a sequence.
#
# One table at one step. The numbers in the cells are positions; under each block stand its slots.

# %%
show(plot.block_table(toy, "B", step=8, width=8), plot.table_alt(toy, "B", step=8))
print(plot.table_caption(toy, "B", step=8))

# %% [markdown]
# And the twelve requests of notebooks 02 and 03 on four slots, prompts of 32 tokens, 52 blocks of 4. A prompt comes as eight
# rows at once, then single blocks drop in as the answer grows.

# %%
light = to_requests(synthetic(12, output=uniform(4, 40), arrivals=poisson(rate=6), seed=2), vocab_size=100)
scheduler = IterationScheduler(4, PagedMemory(num_blocks=52, block_size=4))
flow = Engine(scheduler, ScriptedExecutor(seconds_per_step=0.02)).run(light)
show(plot.blocks(flow, memory=False, width=7), plot.blocks_alt(flow))
print(plot.blocks_caption(flow))

# %% [markdown]
# ## 4. Attention over a block table
#
# K and V of a layer are now `[num_blocks, block_size, kv_heads, head_dim]`. Writing needs the slot of each new token: the **slot mapping**.
# Reading needs the table. Here is reading by the textbook, one token at a time:

# %%
show_source(paged_kv.attention_over_blocks)

# %% [markdown]
# Nothing in it cares that the blocks are scattered: softmax adds up over positions, and the position is in K already (it was rotated when
# it was written). So the result is that of contiguous memory.
#
# What runs is not this, but a gather: one index tensor says where every position of every sequence lies, and both writing and reading use it.

# %%
show_source(paged_kv.PagedKVCache.places)

# %% [markdown]
# Let the two attend to the same step of the real model, one of two kinds: a chunk of a prompt and two decodes in one forward pass (notebook 04). A
# budget of 16 tokens leaves 14 for D.

# %%
model = load_model("smollm2")
books = PagedMemory(num_blocks=12, block_size=16)
executor = model.executor(books)
engine = Engine(IterationScheduler(4, books, mix=Chunked(token_budget=16)), executor)
for name, text in [("A", "Name a fruit."), ("B", "Count to twenty.")]:
    engine.submit(model.request(name, text, max_new_tokens=20))
while any(work.prefill for work in engine.step().live):
    pass  # until both decode
engine.submit(model.request("D", "What is the capital of France?", max_new_tokens=20))


class Both:
    """Attention for one step by both ways; goes on with the fast one."""

    def __init__(self, plan, rows):
        self.fast, self.slow = PackedAttention(executor.cache, rows), paged_kv.TokenByToken(executor.cache, rows)
        self.write_at = self.fast.write_at

    def __call__(self, layer, q, k, v):
        fast, slow = self.fast(layer, q, k, v), self.slow(layer, q, k, v)
        differences.append((fast - slow).abs().max().item())
        mappings.append(self.write_at.tolist())
        return fast


differences, mappings = [], []
with patch.object(executor, "attention", Both):
    step = engine.step()

# %%
print("K of a layer:", list(executor.cache.k_blocks[0].shape), "= blocks, block_size, kv_heads, head_dim")
slot_mapping = iter(mappings[0])
for work in step.live:
    table = engine.open[work.request_id].block_table
    slots_written = [next(slot_mapping) for _ in range(work.count)]
    print(
        f"{work.request_id} computes [{work.start:2}, {work.start + work.count:2})  table {table}  slots {slots_written}"
    )
print(f"largest difference in {len(differences)} layers below 1e-5: {max(differences) < 1e-5}")

# %% [markdown]
# One forward pass, 16 tokens of three sequences, each written to its own slots. The difference is rounding. And the texts, which is what
# counts? The 24 chat requests of notebooks 02 and 03, in blocks and in regions:

# %%
chat = [model.request(name, text, max_new_tokens=16) for name, text in chat_prompts("smollm2")]
for kind in ("contiguous", "paged"):
    run = build_engine(model, memory=kind, max_num_seqs=8, max_model_len=128).run(chat)
    print(f"{kind:10}  {tokens_sha256(run)[:16]}")

# %% [markdown]
# ## 5. How many sequences fit
#
# The same memory, four ways to hand it out: the contiguous regions of notebook 05 (`max`, `pow2`, and `exact`, which knows the future), and
# paged. The first 60 conversations of the Azure trace, all there at the start, up to 2,048 tokens each; 16,384 positions; as many slots as one likes.
#
# **Predict, then run.** `exact` wastes nothing at the end of a request's life. Can `paged`, which knows nothing of the future, hold more sequences
# than `exact`?

# %%
fitting = [one for one in azure_trace("conv") if one.prompt_tokens + one.output_tokens <= 2048][:150]
azure = to_requests([Planned(0.0, one.prompt_tokens, one.output_tokens) for one in fitting], vocab_size=100)
ways = {f"contiguous, {reserve}": ContiguousMemory(16_384, 2048, reserve) for reserve in ("max", "pow2", "exact")}
ways["paged"] = PagedMemory(num_blocks=1024, block_size=16)
fits = {name: serve(azure[:60], books, max_num_seqs=256) for name, books in ways.items()}
show(plot.memory(fits, title="16,384 K/V positions, 60 conversations", width=8), plot.memory_alt(fits))

# %%
print("                   steps  at once: mean   most  preemptions")
for name, run in fits.items():
    live = [len(step.live) for step in run.steps]
    preempted = sum(len(step.preempted) for step in run.steps)
    print(f"{name:17}  {len(live):5,}  {sum(live) / len(live):13.1f}  {max(live):5}  {preempted:11}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Yes. `exact` takes a whole life at birth: positions that will be filled minutes later are taken now. `paged` takes what is filled *now*, so young
# sequences are small, and others use the room. What it pays is in the last column: now and then all grow at once and someone must step
# back. That is notebook 07.
#
# </details>
#
# In the picture the light area is what was taken in vain, the white one what nobody could take. `max` is full to the brim, of nothing. `exact` has white
# above it: gaps that are too short for the next in line. The paged one has neither, until the queue is empty and the last answers run out.
#
# Article 2 promises "quase zero desperdício", and that is the fourth row. Article 1 says that up to 80 % was wasted before; here
# `max` leaves 70 % of what it takes empty (notebook 05 takes that apart).

# %% [markdown]
# ## 6. What is still wasted: half a block each
#
# A sequence's last block is full by chance. Over a life its fill goes through 1, 2, … `b` again and again, so on average
# $(b - 1) / 2$ positions of it are empty. Everything else a sequence holds is full. Formula against a run, 32 sequences at once:

# %%
print("block size  empty a sequence: formula  measured   of what is taken   table, longest")
longest = max(request.kv_need for request in azure)
for size in (1, 4, 16, 64, 256):
    steps = serve(azure, PagedMemory(65_536 // size, size), max_num_seqs=32).steps
    empty = [step.memory.reserved - step.memory.used for step in steps]
    each = sum(empty) / sum(len(step.live) for step in steps)
    share = sum(empty) / sum(step.memory.reserved for step in steps)
    print(f"{size:10}  {(size - 1) / 2:25.1f}  {each:8.1f}  {share:17.1%}  {-(-longest // size):15}")

# %% [markdown]
# So why not blocks of one? Waste is only one side:
#
# * a **kernel** reads a block as one piece, and many small pieces are slow to fetch;
# * **tables** get long: bookkeeping and a table to read for every sequence in every step;
# * larger blocks **share** less: only whole blocks are found again (section 7), and a copy-on-write copies more.
#
# The paper found 16 to 128 good on ShareGPT's long conversations and 16 to 32 on Alpaca's short ones (section 7.2), and 16 became the default. SGLang
# goes the other way: pages of one token, and kernels made for it. In this course blocks have 4 positions in drawings and 16 in runs.

# %% [markdown]
# ## 7. One system prompt, many users
#
# K and V of a token depend on the tokens up to it, and on nothing else. If two sequences begin alike, their first blocks are
# equal (K and V up to rounding). So a block that is full can serve both. The package keeps a tree: an edge is one block's
# tokens, a node stands for *all* tokens from the start.

# %%
show_source(PrefixIndex.find)

# %%
show_source(PagedMemory._find)

# %% [markdown]
# "Never the last token" is the rule for a prompt that is stored whole: its last token is computed again, for the first token of the answer is drawn
# from what the model says *there*, and that is not stored anywhere. Rounded to whole blocks it may cost a whole block.
#
# Six users of one library, on the real model. The first is alone for a step; the others come then, together.

# %%
SYSTEM = (
    "You are the assistant of a small public library. Answer in one short sentence. Be friendly and precise. "
    "The library is open from nine to six, closed on Mondays. Books may be kept for three weeks. "
    "If you do not know something, say so and name the desk on the first floor."
)
questions = [
    "When are you open?",
    "Can I come on a Monday?",
    "How long may I keep a book?",
    "Do you have a garden?",
    "Who can help me?",
    "Hello!",
]
users = [model.request(f"u{i}", text, system=SYSTEM, max_new_tokens=20) for i, text in enumerate(questions)]


def library(num_blocks, prefix_cache):
    """A run in which the first user is alone for one step."""
    books = PagedMemory(num_blocks, block_size=16, prefix_cache=prefix_cache)
    engine = Engine(IterationScheduler(8, books), model.executor(books))
    engine.submit(users[0])
    engine.step()
    return engine.run(users[1:])


sharing = {"prefix cache": library(24, prefix_cache=True), "without": library(44, prefix_cache=False)}
show(plot.blocks(sharing["prefix cache"], memory=False, width=7), plot.blocks_alt(sharing["prefix cache"]))
print(plot.blocks_caption(sharing["prefix cache"]))

# %% [markdown]
# **Predict, then run.** The first 69 tokens of all six are the same. How many of u3's were found stored?

# %%
for name, run in sharing.items():
    cached = [record.cached_tokens for record in run.requests.values()]
    computed = sum(work.count for step in run.steps for work in step.live if work.prefill)
    most = max(step.memory.reserved // 16 for step in run.steps)
    print(f"{name:12}  prompts {[record.prompt_tokens for record in run.requests.values()]}, found {cached}")
    print(f"{'':12}  prompt tokens computed {computed}, blocks at most {most}, texts {tokens_sha256(run)[:16]}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# A multiple of 16, the largest that fits in what is common: the block in which the questions begin to differ is everyone's own. The first user
# finds nothing, since nobody had been there.
#
# </details>
#
# In the block map the four cross-hatched rows stand in six tables and in memory once, which saves 20 blocks while all six run. They
# outlive their first owner, and change colour when the oldest leaves. Two gains at once: memory, and the prefill that was not
# computed. The texts are the same.

# %% [markdown]
# ### A block is published only when it has been computed
#
# Had all six come in the same step, nobody would have shared anything:

# %%
engine = build_engine(model, memory="paged", max_num_seqs=8, max_model_len=160, prefix_cache=True)
together = engine.run(users)
print("found:", [record.cached_tokens for record in together.requests.values()], tokens_sha256(together)[:16])

# %%
show_source(PagedMemory.commit)

# %% [markdown]
# `commit` runs *after* a step, for what that step has stored. It is tempting to publish earlier: at admission the tokens of the
# prompt are known, and so is the block. But between admission and the last chunk the block holds somebody else's old values, or
# noise. Here is that bug, in six lines. Two identical prompts, at most 16 tokens of each in a step, so that the first is in the middle of its
# prompt when the second enters:


# %%
class Hasty(PagedMemory):
    """Publishes a prompt's blocks at admission."""

    def admit(self, sequence, *amount):
        admitted = super().admit(sequence, *amount)
        if admitted:
            stored, sequence.num_computed_tokens = sequence.num_computed_tokens, len(sequence.request.prompt)
            self.commit(sequence)
            sequence.num_computed_tokens = stored
        return admitted


twins = [users[0], replace(users[0], request_id="twin")]
for kind in (PagedMemory, Hasty):
    books = kind(num_blocks=72, block_size=16, prefix_cache=True)
    engine = Engine(IterationScheduler(8, books, mix=Chunked(token_budget=64, chunk_cap=16)), model.executor(books))
    run = engine.run(twins)
    print(kind.__name__)
    for name, record in run.requests.items():
        print(f"  {name:4} found {record.cached_tokens:2}: {model.tokenizer.decode(record.tokens)!r}")

# %% [markdown]
# No error, no NaN: fluent text, and wrong. The twin looked at blocks of zeros and took them for a prompt. Several engines had this bug; it needs two equal
# prompts within a few steps of each other, which a test with one client never has. The rule that excludes it: *a block can be found
# only after all of its K and V have been computed*. (An engine may be bolder by one step, and let a sequence share what the same
# step computes, if its kernels write before they read.)
#
# The books can be audited for it. `check_integrity` says in words what is wrong; our tests call it after every step.


# %%
def audit(books):
    try:
        books.check_integrity()
    except AssertionError as wrong:
        print("AssertionError:", wrong)
    else:
        print("all is well")


books = Hasty(num_blocks=8, block_size=4, prefix_cache=True)
hasty = Sequence(request("A", range(10), 4))
books.admit(hasty)
audit(books)

# %% [markdown]
# ## 8. Many samples of one prompt: fork and copy-on-write
#
# Ask for several answers to one prompt, and even its last, half-filled block is common. A **fork** takes the parent's whole table: no block, no
# copy, only counts. Until somebody *writes*. Then the rule is: **a block with more than one owner is never written; the writer gets its own
# copy first.** By hand, blocks of four, a prompt of six:

# %%
books = PagedMemory(num_blocks=8, block_size=4)
a, b = (Sequence(request(name, range(6), 4)) for name in "AB")
books.admit(a, num_tokens=6)
a.num_computed_tokens = 6  # as if a step had computed the prompt
books.fork(a, b)
print("forked:        ", a.block_table, b.block_table, "owners", books.pool.owners)

# %% [markdown]
# **Predict, then run.** B computes the prompt's last token again (position 5) to draw a first token of its own; then A stores its first token
# (position 6). Who copies, which block, and how often?

# %%
later, one, two = deepcopy((books, a, b))  # so that this cell can be run again
later.grow(two, 6)  # room for position 5, which is about to be written
print("B wants to write", one.block_table, two.block_table, "owners", later.pool.owners, *later.take_moves())
later.grow(one, 7)
print("A wants to write", one.block_table, two.block_table, "owners", later.pool.owners, *later.take_moves())
audit(later)

# %% [markdown]
# <details><summary>Answer</summary>
#
# B copies block 1, once. `Move` is what the executor is told: copy block 1's K and V to block 2 before the step's own writes. A then finds itself the
# only owner of block 1 and writes in place. Had A written first, A would have got the copy. Block 0 is full, nobody will ever write it, and so it
# stays common to the end.
#
# </details>
#
# The engine does that for a request that names another in `fork_of`. It waits until the parent's prompt has been computed. A and two forks:

# %%
trio = [request("A", range(6), 9), *(request(name, range(6), 9, fork_of="A") for name in "BC")]
forked = serve(trio, PagedMemory(num_blocks=12, block_size=4))
show(plot.blocks(forked, memory=False, width=7), plot.blocks_alt(forked))
print(plot.blocks_caption(forked))

# %%
names = {"take": "takes block", "share": "shares block", "give": "gives back block"}
for step in forked.steps[:3]:
    what = "; ".join(f"{event.request_id} {names[event.kind]} {event.block}" for event in step.memory_events)
    print(f"step {step.step}: {what or 'nothing'} ({step.blocks_copied} copied)")

# %% [markdown]
# Now the real model: eight samples of one prompt at temperature 0.8, each with its own seed, as forks and as eight strangers.

# %%
TEXT = "Write one sentence about the sea, the wind and a small boat with books on board, please."
samples = [model.request(f"s{i}", TEXT, max_new_tokens=16, temperature=0.8, seed=i) for i in range(8)]
forks = [samples[0], *(replace(one, fork_of="s0") for one in samples[1:])]
for name, some in [("eight forks", forks), ("eight strangers", samples)]:
    run = build_engine(model, memory="paged", max_num_seqs=8, max_model_len=128).run(some)
    most, copied = max(step.memory.reserved // 16 for step in run.steps), sum(step.blocks_copied for step in run.steps)
    print(f"{name:15}  {most} blocks at most, {copied} copied, texts {tokens_sha256(run)[:16]}")
for name in ("s0", "s3", "s5"):
    print(f"{name}: {model.tokenizer.decode(run.requests[name].tokens)!r}")

# %% [markdown]
# The prompt has 50 tokens, three full blocks of 16 and two tokens over. The three are stored once and not eight times, which saves 21 blocks; the
# fourth is copied seven times, one block each, as the strangers have. The samples differ from each other, and each is the one that a stranger with its seed
# would have written: randomness belongs to a request, not to a batch (notebook 00).

# %% [markdown]
# ## 9. Free is not forgotten
#
# When its last owner leaves, a block goes to the end of the free queue *and stays in the prefix index*. Its content is as good as before until
# somebody takes it. So the cache costs no memory of its own: it is whatever happens to lie in free blocks, and it is lost block by
# block, least recently used first. Nothing is ever evicted ahead of time. Three details make it good:
#
# * the queue is taken from the front and filled at the back;
# * a sequence gives back its **tail first**: a chain is useless without its beginning, so the beginning should be taken last;
# * a hit takes a block out of the middle of the queue.
#
# The example of vLLM's documentation of its prefix cache, step by step in the package: ten blocks of four. R0 has a prompt of 15 tokens and grows to 17. R1's first
# ten tokens are R0's, its prompt has 14.

# %%
books = PagedMemory(num_blocks=10, block_size=4, prefix_cache=True)


def enter(books, name, prompt, answer=()):
    """Admit a sequence, compute its prompt, let it write an answer."""
    sequence = Sequence(request(name, prompt, 8))
    books.admit(sequence, num_tokens=len(prompt))
    found = sequence.num_computed_tokens
    sequence.output.extend(answer)
    books.grow(sequence, sequence.num_tokens)
    sequence.num_computed_tokens = sequence.num_tokens
    books.commit(sequence)
    print(f"{name}: found {found:2} tokens, table {sequence.block_table}")
    return sequence


r0 = enter(books, "R0", range(15), answer=[15, 16])
r1 = enter(books, "R1", [*range(10), 90, 91, 92, 93])
for name, sequence in [("R0", r0), ("R1", r1)]:
    books.release(sequence)
    print(f"{name} leaves; free, front first: {books.pool.free_order()}; still findable: {len(books.index)}")

# %% [markdown]
# **Predict, then run.** R2 comes with 29 tokens, of which the first twelve are R0's. Which is its table? And which blocks can still be found
# afterwards?

# %%
later = deepcopy(books)  # so that this cell can be run again
r2 = enter(later, "R2", [*range(12), *range(40, 57)])
print("free, front first:", later.pool.free_order(), "still findable:", [b for b in range(10) if b in later.index])
audit(later)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Blocks 0, 1 and 2 are found, though they were free, and leave the queue from its middle. Five more come from its front: 7, 8 and 9, which were
# never used, then 4 and 3, the tail of R0. That is the documentation's own answer. What 3 held is forgotten in that moment; what 5 held (R1's third
# block) can still be found.
#
# </details>
#
# A trap hides in the count. Before R2 came ten blocks were free and it needed eight: easy. But three of the ten it *shared*, and those are free only as
# long as nobody shares them. An allocator that counts first and shares afterwards promises blocks that it does not have.

# %% [markdown]
# ## 10. When the books are wrong
#
# A wrong block table raises nothing. K and V of somebody else have the right shape, and the model writes fluent nonsense. That is why the
# books audit themselves in words. Break them, one way at a time:

# %%
print("a table that points to another's block:")
r2.block_table[7], kept = 5, r2.block_table[7]
audit(later)
r2.block_table[7] = kept
print("a block freed twice:")
later.pool.owners[9] -= 1
audit(later)
later.pool.owners[9] += 1
print("one more token stored than there is room for:")
r2.num_computed_tokens += 4
audit(later)
r2.num_computed_tokens -= 4
audit(later)

# %% [markdown]
# ## What you saw
#
# * A paged allocator is a free list and a table for each sequence. It never needs to know how long an answer will be.
# * Position p lies in `block_table[p // b]` at offset `p % b`. Attention over scattered blocks is the same sum: same scores up to rounding, same texts.
# * On the same memory more sequences run at once than with a contiguous allocator, even one that knows the future. What is left of the waste is half a
#   block a sequence.
# * Sharing needs counts of owners, and two rules: a block with several owners is never written (copy-on-write), and a block can be found only after it
#   has been computed.
# * A prefix cache is what lies in free blocks. It is reused lazily, least recently used first, tails before beginnings.
# * The memory is now full nearly all the time. So it will run out in the middle of somebody's answer: notebook 07.
#
# ## Exercises
#
# **1.** Write the slot mapping: the slots of positions `start` to `start + count - 1`, in order. One line is enough.


# %%
def slot_mapping(block_table, start, count, block_size):
    return None


# %%
attempt(check_slot_mapping, slot_mapping)

# %% [markdown]
# **2.** A sequence is about to store the token at `position`. `owners` says how many tables each block stands in. Return `"take"` if it needs a new
# block, `"copy"` if it must copy a block first, `"write"` if it can simply write. About four lines.


# %%
def where_to_write(block_table, owners, position, block_size):
    return None


# %%
attempt(check_where_to_write, where_to_write)

# %% [markdown]
# **3.** A newcomer needs `num_blocks` blocks. `hits` are the blocks, in order, that the prefix index has found for its beginning; some may be free, others
# in use. `free` is the free queue, front first. Return its table, or `[]` if it does not fit. Mind the trap of section 9. About four lines.


# %%
def newcomers_table(free, hits, num_blocks):
    return None


# %%
attempt(check_newcomers_table, newcomers_table)

# %% [markdown]
# ## Where to read this in vLLM and friends
#
# * **vLLM V1**: `vllm/v1/core/block_pool.py` is our `BlockPool` and `PrefixIndex`, with the free queue in `kv_cache_utils.py` (a doubly linked list);
#   `kv_cache_manager.py` has `allocate_slots` and `get_computed_blocks`; `vllm/v1/worker/block_table.py` computes the slot mapping. Knobs:
#   `block_size` (16), `enable_prefix_caching` (on), `gpu_memory_utilization`. A chain is known there by a hash; we compare the tokens.
# * **SGLang**: `python/sglang/srt/mem_cache/radix_cache.py`, a radix tree over tokens that is its prefix cache, and `memory_pool.py`. `page_size` is 1, so
#   hits end anywhere; eviction takes least recently used *leaves*, which is our "tail first".
# * **TensorRT-LLM**: `cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp`. Its schedulers hold back a request whose blocks another one is about
#   to compute, so that twins of section 7 do share.
# * **TGI**: `backends/v3/src/block_allocator.rs` and `radix.rs`. Paged, yet it takes all blocks of the longest possible answer at admission: paging and
#   preemption are two decisions.
# * **transformers**, `src/transformers/generation/continuous_batching/cache_manager.py`: blocks of 256, prefix sharing.
# * The kernels: vLLM's `csrc/attention/`, FlashAttention's `flash_attn_with_kvcache(block_table=…)`, FlashInfer's paged wrappers.
