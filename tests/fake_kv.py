"""A model whose K and V can be checked: what a position stores stands for every token up to it, as true K and V do.

Poisoned pool (cases.md, oracle 6) and wrong-content test in one, without a tensor: a position that nobody wrote, that
belongs to another text, or that was lost in a move is noticed by whoever reads it.
"""

from minibatch.memory import PagedMemory
from minibatch.simulate import ScriptedExecutor


def _digest(*parts):
    return hash(parts) % 999_983  # of whole numbers only, so PYTHONHASHSEED does not matter


class FakeKV(ScriptedExecutor):
    """Applies a plan's moves to cells, writes the chunks' tokens, reads every context back.

    The next token is the script's where there is one; otherwise it follows from context, seed and `vocab_size`.
    """

    def __init__(self, memory, script=None, **options):
        super().__init__(script, **options)
        self.memory, self.copies = memory, []
        self.size = memory.block_size if isinstance(memory, PagedMemory) else 1
        self.cells = [None] * memory.num_positions  # None: nobody wrote here
        self.host = [None] * (getattr(memory, "host_blocks", None) or 0) * self.size

    def execute(self, plan):
        for move in plan.moves:
            self._move(move)
        for row in plan.rows:
            for position in range(row.start, row.start + row.count):
                self._write(row.sequence, position)
        for row in plan.rows:
            for position in range(row.start + row.count):
                cell = self.cells[self._place(row.sequence, position)]
                assert cell == self._value(row.sequence, position), f"{row.sequence.request_id!r} reads {position}"
        return super().execute(plan)

    def stored(self, sequence):
        """What a running sequence has stored."""
        return [self.cells[self._place(sequence, position)] for position in range(sequence.num_computed_tokens)]

    def _place(self, sequence, position):
        if sequence.region is not None:
            return sequence.region.start + position
        return sequence.block_table[position // self.size] * self.size + position % self.size

    def _value(self, sequence, position):
        """From the cell before it, so by induction from all tokens up to here."""
        before = self.cells[self._place(sequence, position - 1)] if position else 0
        assert before is not None, f"{sequence.request_id!r} reads position {position - 1}, which nobody wrote"
        return _digest(before, *sequence.tokens(position, 1))

    def _write(self, sequence, position):
        place = self._place(sequence, position)
        if sequence.region is None:
            owners = self.memory.pool.owners[place // self.size]
            assert owners == 1, f"{sequence.request_id!r} writes into a block of {owners} owners"
        self.cells[place] = self._value(sequence, position)

    def _move(self, move):
        source = self.host if move.kind == "in" else self.cells
        target = self.host if move.kind == "out" else self.cells
        if move.kind == "copy":
            self.copies.append(move)
        block = source[move.source * self.size : (move.source + 1) * self.size]
        target[move.target * self.size : (move.target + 1) * self.size] = block

    def _next(self, sequence):
        if sequence.request_id in self.script:
            return super()._next(sequence)
        return _next_token(self._value(sequence, sequence.num_tokens - 1), sequence.request, self.vocab_size)


def _next_token(context, request, vocab_size):
    return _digest(context, request.sampling.seed or 0) % vocab_size


def answer(request, vocab_size=1000):
    """What a request writes alone: the same rule, no engine."""
    context, output = 0, []
    for token in request.prompt:
        context = _digest(context, token)
    while len(output) < request.sampling.max_new_tokens:
        output.append(_next_token(context, request, vocab_size))
        if output[-1] in request.sampling.stop_token_ids:
            break
        context = _digest(context, output[-1])
    return output
