"""Right and wrong answers to lab 4, the block allocator. Read by tests/test_labs.py, which says the format.

The mistakes are small changes of one right class, named by what they do; a second right class keeps other books.
"""

from minibatch.checks.lab4 import (
    OutOfBlocks,
    check_all_or_nothing,
    check_allocate,
    check_append,
    check_copy,
    check_everything,
    check_free,
    check_next_block,
    check_sharing,
)

LAB = "lab4"


class Right:
    """A list of free blocks, a count of owners; `next_block` and `copy` are the lab's two rules."""

    next_block, copy = "oldest", "on_write"

    def __init__(self, num_blocks, block_size):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.waiting, self.owners, self.tables, self.lengths, self.copies = list(range(num_blocks)), {}, {}, {}, []

    @property
    def num_free(self):
        return len(self.waiting)

    def table(self, name):
        return tuple(self.tables[name])

    def take_copies(self):
        copies, self.copies = self.copies, []
        return copies

    def blocks_for(self, tokens):
        return (tokens + self.block_size - 1) // self.block_size

    def take(self):
        if not self.waiting:
            raise OutOfBlocks
        block = {"oldest": self.waiting[0], "newest": self.waiting[-1], "lowest": min(self.waiting)}[self.next_block]
        self.waiting.remove(block)
        self.owners[block] = 1
        return block

    def give_back(self, block):
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.waiting.append(block)

    def allocate(self, name, num_tokens):
        if name in self.tables:
            raise ValueError(name)
        if self.blocks_for(num_tokens) > self.num_free:
            raise OutOfBlocks
        self.tables[name], self.lengths[name] = [self.take() for _ in range(self.blocks_for(num_tokens))], num_tokens

    def free(self, name):
        for block in self.tables.pop(name)[::-1]:
            self.give_back(block)

    def shared(self, name):
        """True if the next token of `name` falls into a block that others hold."""
        table, place = self.tables[name], self.lengths[name] // self.block_size
        return place < len(table) and self.owners[table[place]] > 1

    def own(self, name, place):
        source, target = self.tables[name][place], self.take()
        self.tables[name][place] = target
        self.copies.append((source, target))
        self.give_back(source)

    def append(self, name):
        place, offset = divmod(self.lengths[name], self.block_size)
        if self.shared(name):
            self.own(name, place)
        if place == len(self.tables[name]):
            self.tables[name].append(self.take())
        self.lengths[name] += 1
        return self.tables[name][place], offset

    def fork(self, parent, child, num_tokens):
        if child in self.tables:
            raise ValueError(child)
        copies = self.copy == "at_fork" and num_tokens % self.block_size
        if copies and not self.num_free:
            raise OutOfBlocks
        self.tables[child] = self.tables[parent][: self.blocks_for(num_tokens)]
        self.lengths[child] = num_tokens
        for block in self.tables[child]:
            self.owners[block] += 1
        if copies:
            self.own(child, -1)


class ByCounting:
    """Keeps tables alone. Who is free and who is shared is looked up in them; the clock says who was freed when."""

    def __init__(self, num_blocks, block_size):
        self.num_blocks, self.block_size, self.clock = num_blocks, block_size, num_blocks
        self.freed, self.holds, self.asked = {block: block for block in range(num_blocks)}, {}, []

    @property
    def num_free(self):
        return self.num_blocks - len({block for table, _ in self.holds.values() for block in table})

    def table(self, name):
        return self.holds[name][0]

    def take_copies(self):
        asked, self.asked = list(self.asked), []
        return asked

    def room(self, count):
        """The next blocks, none of them taken yet."""
        free = [b for b in range(self.num_blocks) if all(b not in table for table, _ in self.holds.values())]
        if count > len(free):
            raise OutOfBlocks(f"{count} blocks asked for, {len(free)} free")
        return tuple(sorted(free, key=self.freed.get)[:count])

    def stamp(self, blocks):
        for block in blocks:
            self.clock += 1
            self.freed[block] = self.clock

    def allocate(self, name, num_tokens):
        assert name not in self.holds, "it is here"
        self.holds[name] = self.room(-(-num_tokens // self.block_size)), num_tokens

    def free(self, name):
        table, _ = self.holds.pop(name)
        self.stamp(reversed(table))

    def fork(self, parent, child, num_tokens):
        table, _ = self.holds[parent]
        assert child not in self.holds, "it is here"
        self.holds[child] = table[: 1 + (num_tokens - 1) // self.block_size], num_tokens

    def append(self, name):
        table, tokens = self.holds[name]
        place, offset = divmod(tokens, self.block_size)
        others = any(table[place:] and table[place] in other for key, (other, _) in self.holds.items() if key != name)
        if others:
            (target,) = self.room(1)
            self.asked.append([table[place], target])
            table = (*table[:place], target, *table[place + 1 :])
        elif place == len(table):
            table += self.room(1)
        self.holds[name] = table, tokens + 1
        return [table[place], offset]


def changed(name, **methods):
    """The right class with other methods: one mistake."""
    return type(name, (Right,), methods)


# ---- mistakes in allocate and free ----


def take_one_by_one(self, name, num_tokens):
    """Fails in the middle, with blocks in hand."""
    if name in self.tables:
        raise ValueError(name)
    self.tables[name], self.lengths[name] = [], num_tokens
    for _ in range(self.blocks_for(num_tokens)):
        self.tables[name].append(self.take())


def take_then_enter(self, name, num_tokens):
    """Fails in the middle; nobody knows the blocks that were taken."""
    if name in self.tables:
        raise ValueError(name)
    self.tables[name], self.lengths[name] = [self.take() for _ in range(self.blocks_for(num_tokens))], num_tokens


def give_what_there_is(self, name, num_tokens):
    if name in self.tables:
        raise ValueError(name)
    count = min(self.blocks_for(num_tokens), self.num_free)
    self.tables[name], self.lengths[name] = [self.take() for _ in range(count)], num_tokens


def allocate_twice(self, name, num_tokens):
    """A second table under one name: the blocks of the first are lost."""
    self.tables.pop(name, None)
    Right.allocate(self, name, num_tokens)


def peek(self):
    """Looks at the next block and leaves it where it is."""
    if not self.waiting:
        raise OutOfBlocks
    self.owners[self.waiting[0]] = 1
    return self.waiting[0]


def take_without_looking(self):
    block = self.waiting.pop(0)
    self.owners[block] = 1
    return block


def free_first_to_last(self, name):
    for block in self.tables.pop(name):
        self.give_back(block)


def free_whole_blocks(self, name):
    """Forgets the last block if it is only partly full."""
    for block in self.tables.pop(name)[: self.lengths[name] // self.block_size]:
        self.give_back(block)


def free_again(self, name):
    for block in self.tables[name]:
        self.waiting.append(block)


def free_a_stranger(self, name):
    for block in self.tables.pop(name, [])[::-1]:
        self.give_back(block)


def refuse_the_last_block(self, name, num_tokens):
    if self.blocks_for(num_tokens) >= self.num_free:
        raise OutOfBlocks
    Right.allocate(self, name, num_tokens)


ALLOCATOR_MISTAKES = [
    (changed("FloorForCeil", blocks_for=lambda self, tokens: tokens // self.block_size), "partly full"),
    (changed("OneTooMany", blocks_for=lambda self, tokens: tokens // self.block_size + 1), "holds none of them"),
    (changed("RoundedToNearest", blocks_for=lambda self, n: max(1, round(n / self.block_size))), "partly full"),
    (changed("ABlockEachToken", blocks_for=lambda self, tokens: tokens), "a block holds 4"),
    (changed("SixTokensAreTwoBlocks", blocks_for=lambda self, tokens: 2), "holds none of them"),
    (changed("HandsOutTwice", take=peek), "free and in somebody's table"),
    (changed("TakesOneByOne", allocate=take_one_by_one), "has a table all the same"),
    (changed("TakesThenEnters", allocate=take_then_enter), "look before you take"),
    (changed("TakesWithoutLooking", take=take_without_looking, allocate=take_then_enter), "IndexError"),
    (changed("GivesWhatThereIs", allocate=give_what_there_is), "nothing was raised"),
    (changed("RefusesTheLastBlock", allocate=refuse_the_last_block), "raised OutOfBlocks; free"),
    (changed("AllocatesTwice", allocate=allocate_twice), "has a table already"),
    (changed("NeverFrees", free=lambda self, name: self.tables.pop(name)), "lost"),
    (changed("ForgetsThePartialBlock", free=free_whole_blocks), "lost"),
    (changed("ForgetsTheFirstBlock", free=lambda self, n: [self.give_back(b) for b in self.tables.pop(n)[1:]]), "lost"),
    (changed("KeepsTheTable", free=free_again), "ValueError"),
    (changed("DoubleFree", free=free_a_stranger), "holds nothing"),
    (changed("FirstBlockFirst", free=free_first_to_last), "rule is 'oldest'"),
    (changed("LastInFirstOut", next_block="newest"), "rule is 'oldest'"),
    (changed("LowestNumber", next_block="lowest"), "rule is 'oldest'"),
]

# ---- mistakes in append ----


def appending(needs_block, where=None):
    """An append that takes a block when `needs_block(tokens, size, blocks)` says so."""

    def append(self, name):
        table, position = self.tables[name], self.lengths[name]
        if needs_block(position, self.block_size, len(table)):
            table.append(self.take())
        self.lengths[name] += 1
        place = where or (lambda table, position, size: (table[position // size], position % size))
        return place(table, position, self.block_size)

    return append


def count_first(self, name):
    """Counts the token before it has a place."""
    self.lengths[name] += 1
    position = self.lengths[name] - 1
    if position == len(self.tables[name]) * self.block_size:
        self.tables[name].append(self.take())
    return self.tables[name][position // self.block_size], position % self.block_size


def beyond(position, size, blocks):
    return position >= size * blocks


APPEND_MISTAKES = [
    (changed("MinivLLM", append=appending(lambda n, size, blocks: n % size == 1)), "blocks of 4"),
    (changed("OneEarly", append=appending(lambda n, size, blocks: n + 1 >= size * blocks)), "holds none"),
    (changed("OneLate", append=appending(lambda n, size, blocks: n > size * blocks)), "IndexError"),
    (changed("NeverGrows", append=appending(lambda *_: False)), "IndexError"),
    (changed("ABlockEachToken", append=appending(lambda *_: True)), "a block holds 4"),
    (changed("OffsetOfTheEnd", append=appending(beyond, lambda t, p, s: (t[p // s], (p + 1) % s))), "lies elsewhere"),
    (changed("PlaceNotBlock", append=appending(beyond, lambda t, p, s: (p // s, p % s))), "lies elsewhere"),
    (changed("SlotNotPlace", append=appending(beyond, lambda t, p, s: t[p // s] * s + p % s)), "(block, offset)"),
    (changed("AlwaysTheLast", append=appending(lambda n, s, b: n % s == 0, lambda t, p, s: (t[-1], 0))), "elsewhere"),
    (changed("CountsFirst", append=count_first), "IndexError"),
    (changed("TakesWithoutLooking", take=take_without_looking), "IndexError"),
    (changed("ForgetsToCount", append=lambda self, n: (self.tables[n][0], self.lengths[n] % 4)), "lies elsewhere"),
    (changed("ReturnsNothing", append=lambda self, name: Right.append(self, name) and None), "(block, offset)"),
]

# ---- mistakes in sharing ----


def fork_the_list_itself(self, parent, child, num_tokens):
    """Two names for one list."""
    Right.fork(self, parent, child, num_tokens)
    if len(self.tables[child]) == len(self.tables[parent]):
        self.tables[child] = self.tables[parent]


def fork_uncounted(self, parent, child, num_tokens):
    self.tables[child], self.lengths[child] = self.tables[parent][: self.blocks_for(num_tokens)], num_tokens


def fork_all(self, parent, child, num_tokens):
    """All blocks of the parent, however few of its tokens."""
    Right.fork(self, parent, child, self.lengths[parent])
    self.lengths[child] = num_tokens


def fork_whole_blocks(self, parent, child, num_tokens):
    """Forgets the block that is only partly the child's."""
    Right.fork(self, parent, child, num_tokens)
    if num_tokens % self.block_size:
        self.give_back(self.tables[child].pop())


def fork_by_copy(self, parent, child, num_tokens):
    """The child gets its own copy of everything."""
    self.allocate(child, num_tokens)
    self.copies += zip(self.tables[parent], self.tables[child])


def fork_into_taken_name(self, parent, child, num_tokens):
    self.tables.pop(child, None)
    Right.fork(self, parent, child, num_tokens)


def free_for_all(self, name):
    """Frees a shared block for everybody."""
    for block in self.tables.pop(name)[::-1]:
        if block not in self.waiting:
            self.waiting.append(block)


def free_own_alone(self, name):
    """Gives back what it holds alone, and does not count itself out of the rest."""
    for block in self.tables.pop(name)[::-1]:
        if self.owners[block] == 1:
            self.give_back(block)


def free_with_family(self, name):
    """Who leaves takes along all that share a block with it."""
    gone = set(self.tables[name])
    for other in [key for key, table in self.tables.items() if gone & set(table)]:
        Right.free(self, other)


def own_and_keep_counting(self, name, place):
    """The writer stays an owner of the block that it left."""
    source, target = self.tables[name][place], self.take()
    self.tables[name][place] = target
    self.copies.append((source, target))


def own_without_copy(self, name, place):
    Right.own(self, name, place)
    self.copies.pop()


def own_backwards(self, name, place):
    Right.own(self, name, place)
    source, target = self.copies.pop()
    self.copies.append((target, source))


def own_for_all(self, name, place):
    """Every table gets the writer's copy."""
    source = self.tables[name][place]
    Right.own(self, name, place)
    target = self.copies[-1][1]
    for table in self.tables.values():
        table[:] = [target if block == source else block for block in table]


def own_for_the_others(self, name, place):
    """The writer keeps the block, and somebody else gets the copy."""
    source = self.tables[name][place]
    other = next(key for key, table in self.tables.items() if key != name and source in table)
    Right.own(self, other, self.tables[other].index(source))


def give_before_taking(self, name, place):
    """If no block is free, the count is lowered all the same."""
    source = self.tables[name][place]
    self.give_back(source)
    self.tables[name][place] = self.take()
    self.copies.append((source, self.tables[name][place]))


def last_is_shared(self, name):
    """Looks at the last block, also if the token begins a new one."""
    return self.owners[self.tables[name][-1]] > 1


def append_and_copy_anyway(self, name):
    """Copies whatever it writes into, its own too."""
    place = self.lengths[name] // self.block_size
    if place < len(self.tables[name]):
        self.own(name, place)
    return Right.append(self, name)


def append_copying_last(self, name):
    if last_is_shared(self, name):
        self.own(name, len(self.tables[name]) - 1)
    return Right.append(self, name)


def append_copying_all(self, name):
    """Separates the whole table at the first write."""
    if self.shared(name):
        for place, block in enumerate(self.tables[name]):
            if self.owners[block] > 1:
                self.own(name, place)
    return Right.append(self, name)


SHARING_MISTAKES = [
    (changed("AliasesTheTable", fork=fork_the_list_itself), "share a list"),
    (changed("DoesNotCount", fork=fork_uncounted), "free and in somebody's table"),
    (changed("ForksAllBlocks", fork=fork_all), "holds none of them"),
    (changed("ForksWholeBlocksOnly", fork=fork_whole_blocks), "partly full"),
    (changed("CopiesEverything", fork=fork_by_copy), "full, so they are shared"),
    (changed("ForksIntoATakenName", fork=fork_into_taken_name), "B has a table already"),
    (changed("FreesForAll", free=free_for_all), "free and in somebody's table"),
    (changed("FreesItsOwnAlone", free=free_own_alone), "lost"),
    (changed("ChildTakesParentAlong", free=free_with_family), "A should have a table"),
    (changed("NeverFrees", free=lambda self, name: self.tables.pop(name)), "lost"),
    (changed("WritesIntoShared", shared=lambda self, name: False), "needs a copy of it first"),
    (changed("CopiesThoughSoleOwner", append=append_and_copy_anyway), "nobody else holds"),
    (changed("CopiesAFullBlock", append=append_copying_last), "a new one and no copy"),
    (changed("CopiesTheWholeTable", append=append_copying_all), "needs a copy of it first"),
    (changed("CopyStillCounts", own=own_and_keep_counting), "a block is lost"),
    (changed("ForgetsTheCopy", own=own_without_copy), "wrote"),
    (changed("CopiesBackwards", own=own_backwards), "wrote"),
    (changed("CopiesForAll", own=own_for_all), "changed too"),
    (changed("OthersGetTheCopy", own=own_for_the_others), "changed too"),
    (changed("GivesBeforeTaking", own=give_before_taking), "others hold"),
    (changed("CopiesAtFork", copy="at_fork"), "takes and copies nothing"),
    (changed("CopiesWithoutLooking", take=take_without_looking), "IndexError"),
]

TABLE = {
    "allocator": {
        "name": "Allocator",
        "checks": {
            "allocate": check_allocate,
            "all_or_nothing": check_all_or_nothing,
            "free": check_free,
            "next_block": check_next_block,
        },
        "right": [Right, ByCounting],
        "wrong": ALLOCATOR_MISTAKES,
    },
    "append": {
        "name": "GrowingAllocator",
        "checks": {"border": check_append},
        "right": [Right, ByCounting],
        "wrong": APPEND_MISTAKES,
    },
    "share": {
        "name": "BlockAllocator",
        "checks": {"sharing": check_sharing, "copy": check_copy, "everything": check_everything},
        "right": [Right, ByCounting],
        "wrong": SHARING_MISTAKES,
    },
}
OTHER_YEAR = [
    ("next_block", {"next_block": "newest"}, Right, "rule is 'newest'"),
    ("next_block", {"next_block": "lowest"}, Right, "rule is 'lowest'"),
    ("sharing", {"copy": "at_fork"}, Right, "copied at once"),
    ("copy", {"copy": "at_fork"}, Right, "copied at once"),
    ("everything", {"copy": "at_fork"}, Right, "copied at once"),
]
