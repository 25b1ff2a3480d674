"""What several tests use: requests by length, and an engine that is audited after every step."""

from audit import check_books, check_step
from fake_kv import FakeKV

from minibatch import Engine, Request, SamplingParams, Sequence
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler


def request(name, output, arrival=0.0, prompt=1, priority=0, fork_of=None, **sampling):
    """A request that writes `output` tokens. `prompt` is its tokens, or how many of them (1, 2, 3, ...)."""
    tokens = tuple(range(1, prompt + 1)) if isinstance(prompt, int) else prompt
    return Request(name, tokens, SamplingParams(max_new_tokens=output, **sampling), arrival, priority, fork_of)


def sequence(name="A", prompt=8, output=1, **options):
    """A sequence that nobody serves."""
    return Sequence(request(name, output, prompt=prompt, **options))


def admitted(memory, name="A", prompt=8, computed=None, **options):
    """One that holds blocks for its prompt and has computed it, or `computed` tokens of it."""
    one = sequence(name, prompt, **options)
    assert memory.admit(one, one.num_tokens)
    one.num_computed_tokens = one.num_tokens if computed is None else computed
    memory.commit(one)
    return one


class AuditedEngine(Engine):
    """An engine that checks the books after every step and every abort (cases.md, oracles 1 to 5)."""

    def __init__(self, scheduler, executor):
        super().__init__(scheduler, executor)
        self.owners = {}  # block -> request ids, by the events of the trace alone

    def step(self):
        before = {name: (list(sequence.output), sequence.order) for name, sequence in self.open.items()}
        record = super().step()
        check_step(self, record, before)
        check_books(self)
        return record

    def abort(self, request_id):
        known = super().abort(request_id)
        check_books(self)
        return known


def engine_on(memory, max_num_seqs=8, executor=None, **policies):
    """An audited engine with an iteration-level scheduler over `memory`, whose K and V are checked (`FakeKV`)."""
    return AuditedEngine(IterationScheduler(max_num_seqs, memory, **policies), executor or FakeKV(memory))


def serve(scheduler, requests, executor=None):
    """Run requests through an audited engine, check that nothing is left behind, return the trace."""
    engine = AuditedEngine(scheduler, executor or FakeKV(scheduler.memory))
    trace = engine.run(requests)
    assert not engine.open
    assert_drained(scheduler)
    return trace


def assert_drained(scheduler):
    """Nobody is there, and all memory is free."""
    memory = scheduler.memory
    assert not scheduler.waiting and not scheduler.running
    assert memory.use()[:2] == (0, 0), "all memory returned"
    if isinstance(memory, PagedMemory):
        assert len(set(memory.pool.free_order())) == memory.num_blocks, "all blocks returned"
        assert len(memory._host.free) == (memory.host_blocks or 0), "all host blocks returned"


def membership(trace):
    """Who is in which step: for each step, {request: slot} of the live, then of the dead."""
    return [({w.request_id: w.slot for w in s.live}, {w.request_id: w.slot for w in s.dead}) for s in trace.steps]
