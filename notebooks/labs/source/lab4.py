# %% [markdown]
# # Lab 4: the block allocator
#
# About 60 minutes. No GPU needed. 20 points.
#
# You need [06 The paged KV cache](../06_paged_kv_cache.ipynb). At the end you have written the part of a serving engine that every other part
# trusts, and you can answer the question that whoever runs one must be able to answer: **who owns which block, when is it free, and who may
# write into it?**
#
# * You hand out blocks, grow tables and take blocks back, all or nothing.
# * You share blocks between sequences and copy one at the right moment, never too late and never for nothing.
# * Your allocator keeps the books of a real model, under an audit after every step.
#
# Cells that call a check are red until you have written the answer above them: NOT YET means that something is not written, CHECK FAILED
# says what went wrong in the shortest story in which it does, and no output means that it passes. "4 blocks of 4: allocate("A", 5), free("A")" is what was called, on a new
# allocator of four blocks of four positions; the mistake follows.
#
# Previous: [Lab 3](lab3.ipynb) · Next: [Lab 5](lab5.ipynb)

# %%
from dataclasses import replace

from minibatch import Engine, build_engine, load_model
from minibatch.checks.lab4 import (
    OutOfBlocks,
    audit,
    check_all_or_nothing,
    check_allocate,
    check_append,
    check_copy,
    check_everything,
    check_free,
    check_next_block,
    check_sharing,
)
from minibatch.checks.lab4_memory import AllocatorMemory
from minibatch.metrics import tokens_sha256
from minibatch.plot import alt, blocks, blocks_alt, blocks_caption, caption, show, show_source, slots
from minibatch.schedulers import IterationScheduler

# %% [markdown]
# Two rules of this lab are choices that real engines have made differently. Yours are these; the check cells read them, and so should your code.

# %%
NEXT_BLOCK = "oldest"  # variant: "oldest" "newest" "lowest"
COPY = "on_write"  # variant: "on_write" "at_fork"

# %% [markdown]
# ## 1. Allocate and free
#
# Why anybody cares: an allocator that loses one block a request works all morning. At noon it serves half as many users, in the evening it is
# stuck, and no line of any log says why. (A real one did, kekzl/imp issue 1115, found only by a long run.) One that hands out a block twice is worse: it serves everybody, and some of them get words that belong
# to somebody else.
#
# By hand, eight blocks of four positions. A has a prompt of 6 tokens: 6 / 4 = 1.5, so **two** blocks, the second half empty. B has 8: two blocks,
# both full. Four are left. C has 17 and would need five: refused, and still four are left, not none. Now A goes, and C fits.
#
# Four methods. `take` and `give_back` move a single block, and the others are made of them: then section 3 has only those two to change.
#
# Which of the free blocks is taken is `NEXT_BLOCK`, here **`{NEXT_BLOCK}`**:
#
# | `NEXT_BLOCK` | the block that is taken | who does it |
# |---|---|---|
# | `oldest` | has been free for the longest time | vLLM V1: what a free block still holds stays findable for as long as possible (notebook 06, section 9) |
# | `newest` | became free last | vLLM's first allocator and TGI's simple one, which take from the end of a list |
# | `lowest` | has the lowest number | this course's slots (notebook 03): what is in use stays together. To an attention kernel it is all the same |


# %% answer="allocator"
class Allocator:
    """`num_blocks` blocks, numbered from 0, of `block_size` positions each, and who holds them.

    `free_blocks` lists the free ones in the order in which they became free, the longest free first;
    at the start that is 0, 1, 2, ... Keep other books if you like: the checks call `allocate`, `free`,
    `table`, `num_free` and, later, `append`, `fork` and `take_copies`, nothing else.
    """

    def __init__(self, num_blocks, block_size):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free_blocks = list(range(num_blocks))
        self.tables = {}  # name -> its blocks, in order of position
        self.lengths = {}  # name -> how many tokens it has
        self.copies = []  # (source, target): blocks to be copied, for section 3

    @property
    def num_free(self):
        """How many blocks are free."""
        return len(self.free_blocks)

    def table(self, name):
        """The blocks of a sequence, in order of position."""
        return tuple(self.tables[name])

    def take_copies(self):
        """The copies asked for since the last time. Who holds the K/V tensors makes them, then writes."""
        copies, self.copies = self.copies, []
        return copies

    def take(self):
        """Take a block out of `free_blocks`, the one that NEXT_BLOCK says, and return it.

        Raises OutOfBlocks if none is free.
        """
        ### BEGIN SOLUTION
        if not self.free_blocks:
            raise OutOfBlocks(f"all {self.num_blocks} blocks are taken")
        if NEXT_BLOCK == "lowest":
            block = min(self.free_blocks)
        else:
            block = self.free_blocks[0 if NEXT_BLOCK == "oldest" else -1]
        self.free_blocks.remove(block)
        return block
        ### END SOLUTION

    def give_back(self, block):
        """Put a block back into `free_blocks`, as the one that became free last."""
        ### BEGIN SOLUTION
        self.free_blocks.append(block)
        ### END SOLUTION

    def allocate(self, name, num_tokens):
        """Give a newcomer a table with room for its `num_tokens` tokens (1 or more), no block more.

        Raises ValueError if `name` has a table already, and OutOfBlocks if too few blocks are free.
        Then nothing has changed: no block is taken, and `name` has no table.
        """
        ### BEGIN SOLUTION
        if name in self.tables:
            raise ValueError(f"{name!r} has a table already")
        count = -(-num_tokens // self.block_size)  # rounded up
        if count > self.num_free:
            raise OutOfBlocks(f"{name!r} needs {count} blocks, {self.num_free} are free")
        self.tables[name] = [self.take() for _ in range(count)]
        self.lengths[name] = num_tokens
        ### END SOLUTION

    def free(self, name):
        """The sequence ends: give back its blocks, the last of its table first, and forget it.

        Raises KeyError if it holds nothing, so also the second time.
        """
        ### BEGIN SOLUTION
        for block in reversed(self.tables.pop(name)):
            self.give_back(block)
        del self.lengths[name]
        ### END SOLUTION


# %% check="allocate" points=2
check_allocate(Allocator)

# %% check="all_or_nothing" points=2
check_all_or_nothing(Allocator)

# %% check="free" points=2
check_free(Allocator)

# %% check="next_block" points=1
check_next_block(Allocator, next_block=NEXT_BLOCK)

# %% [markdown]
# The story by hand, with your allocator. **Predict, then run**: how many blocks are free after each line?

# %% tags=["shows"]
allocator = Allocator(num_blocks=8, block_size=4)
for name, num_tokens in [("A", 6), ("B", 8), ("C", 17)]:
    try:
        allocator.allocate(name, num_tokens)
        print(f"{name} comes with {num_tokens:2} tokens: table {allocator.table(name)}, {allocator.num_free} free")
    except OutOfBlocks:
        print(f"{name} comes with {num_tokens:2} tokens: refused, {allocator.num_free} free")
allocator.free("A")
print(f"A leaves: {allocator.num_free} free")
allocator.allocate("C", 17)
print(f"C comes again: table {allocator.table('C')}, {allocator.num_free} free")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 6, 4, 4, then 6 after A has left, and 1. C's five blocks need not lie side by side; C's table keeps them in order.
#
# </details>
#
# ## 2. Append
#
# Why anybody cares: this runs for every sequence in every step, and it is easily wrong by one. In nano-vllm, a well-known small engine, the condition
# for a new block is `len(seq) % block_size == 1`, and eight threads ask whether that is right. (It is, *there*: the new token is in the list
# already. A copy of that engine changed the line and got it wrong.) So do not write a remainder. Write what you mean:
# **a new block is needed when the token's position lies beyond the table.**
#
# By hand, blocks of four. A has 3 tokens at positions 0 to 2 in one block. Its next token gets position 3: same block, offset 3. The one after gets
# position 4: beyond the table, so a new block, offset 0. Nothing is to be taken a token early: a request with a prompt of P that writes N tokens
# stores P + N − 1, for the last one is never fed back. With P + N − 1 = 4 a block taken early is a block taken for nothing.


# %% answer="append"
class GrowingAllocator(Allocator):
    """An Allocator whose sequences grow token by token."""

    def append(self, name):
        """One token more for `name`. Returns (block, offset), the place of its K and V.

        Takes a block if the token needs one; raises OutOfBlocks if none is free, and then nothing
        has changed.
        """
        ### BEGIN SOLUTION
        table, position = self.tables[name], self.lengths[name]
        if position >= len(table) * self.block_size:
            table.append(self.take())
        self.lengths[name] += 1
        return table[position // self.block_size], position % self.block_size
        ### END SOLUTION


# %% check="border" points=3
check_append(GrowingAllocator)

# %% [markdown]
# ## 3. Fork, copy, and the last owner
#
# Why anybody cares: ask for eight answers to one prompt of 2,000 tokens, and its K and V need to be there once, not eight times. The price is that "whose
# block is it?" has more than one answer from now on. Two rules keep the peace:
#
# * **A block is free when its last owner has left**, so owners are counted. Not a moment earlier: others still read it. And not later.
# * **A block with more than one owner is never written.** Who has to write gets a copy for itself first, and is then one owner less of the
#   old one. A block with one owner is never copied: that would be work for nothing.
#
# `fork(parent, child, num_tokens)` gives the child the first `num_tokens` tokens of the parent without computing anything. By hand, blocks of four: A has 6
# tokens in two blocks, B is forked with all 6. Now both blocks have two owners, and the second has room for two more tokens. A's token at position 6 and
# B's token at position 6 would fall into *the same place*. When is that block copied? That is `COPY`, here **`{COPY}`**:
#
# | `COPY` | the rule | who does it |
# |---|---|---|
# | `on_write` | a fork shares every block and takes none. The first who writes into a block with several owners, parent or child, takes a copy | the vLLM paper (section 4.4), vLLM V0 |
# | `at_fork` | a fork shares the blocks that the child fills, and copies the last one at once if the child fills it only in part. No write ever copies | transformers' continuous batching |
#
# Under both, full blocks stay shared for good: nobody will ever write there. A copy is asked for by putting `(source, target)` into `self.copies`; your
# allocator owns no tensor.


# %% answer="share"
class BlockAllocator(GrowingAllocator):
    """A GrowingAllocator whose blocks may stand in several tables."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.owners = {}  # block -> in how many tables it stands; a free block is absent

    def take(self):
        """As before; and the block has one owner."""
        ### BEGIN SOLUTION
        block = super().take()
        self.owners[block] = 1
        return block
        ### END SOLUTION

    def give_back(self, block):
        """One owner less. Only after the last one is it free."""
        ### BEGIN SOLUTION
        self.owners[block] -= 1
        if not self.owners[block]:
            del self.owners[block]
            super().give_back(block)
        ### END SOLUTION

    def replace_by_copy(self, name, place):
        """Give `name` a copy of its own of the shared block at this place of its table.

        Raises OutOfBlocks, with nothing changed, if no block is free. Not called by the checks; you may need
        it in `fork` or in `append`.
        """
        ### BEGIN SOLUTION
        table = self.tables[name]
        source, table[place] = table[place], self.take()
        self.copies.append((source, table[place]))
        self.give_back(source)
        ### END SOLUTION

    def fork(self, parent, child, num_tokens):
        """Let `child` start with the first `num_tokens` tokens of `parent` (1 or more).

        Its blocks are the parent's, as far as COPY allows. Raises ValueError if `child` has a table, and
        OutOfBlocks, with nothing changed, if a copy is due and no block is free.
        """
        ### BEGIN SOLUTION
        if child in self.tables:
            raise ValueError(f"{child!r} has a table already")
        copy = COPY == "at_fork" and num_tokens % self.block_size > 0
        if copy and not self.num_free:
            raise OutOfBlocks(f"the last block of {child!r} must be copied, and none is free")
        shared = self.tables[parent][: -(-num_tokens // self.block_size)]
        for block in shared:
            self.owners[block] += 1
        self.tables[child], self.lengths[child] = shared, num_tokens
        if copy:
            self.replace_by_copy(child, len(shared) - 1)
        ### END SOLUTION

    def append(self, name):
        """As before; and never into a block that others hold: under "on_write" it is copied first.

        Raises OutOfBlocks, with nothing changed, if there is no block for that.
        """
        ### BEGIN SOLUTION
        table, place = self.tables[name], self.lengths[name] // self.block_size
        if place < len(table) and self.owners[table[place]] > 1:
            self.replace_by_copy(name, place)
        return super().append(name)
        ### END SOLUTION


# %% check="sharing" points=3
check_sharing(BlockAllocator, copy=COPY)

# %% check="copy" points=3
check_copy(BlockAllocator, copy=COPY)

# %% [markdown]
# **Predict, then run.** A has 6 tokens, B and C are forks of all 6; then B, C and A write one token each, in this order. How many copies are made, and who
# ends up with the block that was A's second one?

# %% tags=["shows"]
allocator = BlockAllocator(num_blocks=8, block_size=4)
allocator.allocate("A", 6)
last = allocator.table("A")[1]
for child in ("B", "C"):
    allocator.fork("A", child, 6)
    print(f"{child} is forked: {allocator.num_free} free, copies (source, target) {allocator.take_copies()}")
for name in ("B", "C", "A"):
    block, offset = allocator.append(name)
    copies = allocator.take_copies()
    print(f"{name} writes to block {block}, offset {offset}: {allocator.num_free} free, copies {copies}")
print(f"block {last} is now held by", *(name for name in "ABC" if last in allocator.table(name)))
audit(allocator, {name: 7 for name in "ABC"})

# %% [markdown]
# <details><summary>Answer</summary>
#
# Two copies for three owners, under either rule: one of them can keep the original. Under `on_write` that is whoever writes last, and here it is A. Under
# `at_fork` it is always the parent. They differ in who pays when: `at_fork` takes the block although the child may never write a token, and
# `on_write` may find no free block in the middle of an answer.
#
# </details>
#
# ## 4. Everything at once
#
# The last line of that cell was an **audit**: it raised nothing, so the books were right. It reads only what anybody may see:

# %%
show_source(audit)

# %% [markdown]
# The check below calls it after each of some thousands of random operations, on pools too small for them. It also keeps real values, a number for each
# K/V position, where your tables say; after each operation every sequence must read back what it wrote, and nobody a stranger's. If that
# fails, all operations are left out that are not needed to make it fail, and you are told the rest.

# %% check="everything" points=4
check_everything(BlockAllocator, copy=COPY)

# %% [markdown]
# ## 5. Under the real engine
#
# An `IterationScheduler` asks its memory three things: may this one come in, has that one room for its next token, and here, take it back.
# A small class translates them into calls of your allocator and tells the executor the tables and the copies.

# %%
show_source(AllocatorMemory.admit)

# %%
show_source(AllocatorMemory.grow)

# %% [markdown]
# Eight requests on four slots of the embedded model: three answers to one prompt (R1 and its two forks, at temperature 0.9), and five strangers. The
# pool has 26 blocks of four, not enough for everybody. So somebody will be refused a block in the middle of an answer; the engine then takes all blocks of
# the newest, and computes it again later. That works only if *your* refusals change nothing. The audit runs after every step.
#
# **Predict, then run.** The three answers share a prompt of 39 tokens. How many blocks will stand in three tables, how many are copied, and what
# happens to a shared block when one of the three loses its memory?


# %%
def some_requests(model):
    """Three samples of one prompt, and five strangers."""
    story = "tell a story in 2 lines about a robot"
    first = model.request("R1", story, max_new_tokens=24, temperature=0.9, seed=1)
    forks = [replace(first, request_id=f"R{i}", fork_of="R1", sampling=replace(first.sampling, seed=i)) for i in (2, 3)]
    texts = ["count to 12", "list 6 colours", "opposite of night", "count down from 10", "list 8 months"]
    return [first, *forks, *(model.request(f"R{i}", text, max_new_tokens=24) for i, text in enumerate(texts, 4))]


# %% tags=["shows"]
model = load_model("tiny")
memory = AllocatorMemory(BlockAllocator, num_blocks=26, block_size=4)
engine = Engine(IterationScheduler(4, memory), model.executor(memory))
run = engine.run(some_requests(model), on_step=lambda step: memory.check_integrity())
show(slots(run, width=8), alt(run))
print(caption(run))

# %% tags=["shows"]
show(blocks(run, width=8), blocks_alt(run))
print(blocks_caption(run))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nine: 39 tokens fill nine blocks of four, and three are left over. The tenth block is copied twice, for two of the three. In step 20 R3 gives way:
# the nine rows stay where they are and are called R1+R2 from then on, and only what R3 held alone is free. When it comes back, R1 and R2 have
# ended. R3 takes blocks of its own and computes everything again, its prompt and what it had written. (And when R1 leaves, before R2, the rows
# change their colour and not their content: the parent has no special right to them.)
#
# </details>
#
# Now the question that counts. The same requests in contiguous regions, with room for everybody, nothing shared and nobody preempted:

# %% tags=["shows"]
contiguous = build_engine(model, max_num_seqs=4, max_model_len=128).run(some_requests(model))
for name, some in [("your allocator", run), ("contiguous", contiguous)]:
    copied, preempted = sum(step.blocks_copied for step in some.steps), sum(len(step.preempted) for step in some.steps)
    print(f"{name:15} {copied} blocks copied, {preempted} preempted, texts {tokens_sha256(some)[:16]}")
print("blocks free at the end:", memory.allocator.num_free)

# %% [markdown]
# The same texts, token by token. That is what this whole machinery has to achieve: to be invisible.
#
# ## What you saw
#
# * Who owns which block? Its tables say, and nothing else; the count of owners is a shortcut that an audit can check against them.
# * When is it free? When the last owner has left. A count that is never lowered leaks a block now and then; one that is lowered twice gives somebody's
#   memory to a stranger, and no exception is raised.
# * Who may write into it? Only a sole owner. Anybody else copies first, and only that one block.
# * All or nothing: count first, take afterwards. A scheduler that preempts relies on it in the middle of a step.
# * "Needs a block" means that the position lies beyond the table. P + N − 1 positions, never one early.
#
# ## Where to read this in vLLM and friends
#
# * **vLLM V0**, `vllm/core/block/naive_block.py` and `common.py`: `NaiveBlockAllocator` with `fork`, `RefCounter`, and `CopyOnWriteTracker`, whose
#   `cow_block_if_not_appendable` is your `replace_by_copy`, and whose `clear_cows` is `take_copies`. The paper: Kwon et al., SOSP 2023, section 4.4.
# * **vLLM V1**, `vllm/v1/core/block_pool.py`, with `FreeKVCacheBlockQueue` in `kv_cache_utils.py` (rule "oldest"). It has no fork: several samples are several
#   requests (`vllm/v1/engine/parallel_sampling.py`), and the prefix cache shares their full blocks. What is never shared half-full need never be copied.
# * **transformers**, `src/transformers/generation/continuous_batching/cache_allocators/block_manager.py`: `fork_blocks` draws what it does in its docstring
#   (rule "at_fork").
# * **TGI**, `backends/v3/src/block_allocator.rs`: `SimpleAllocator`, which takes from the end of a list and never shares.
# * **nano-vllm**, `nanovllm/engine/block_manager.py`: tables, owners and a prefix cache, without forks, in 120 lines; with the condition of section 2.
# * **This package**: `minibatch/memory/blocks.py` (`BlockPool`) and `paged.py` (`grow` with its copy-on-write), and `paged_audit.py`.
