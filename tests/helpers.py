"""What several tests use: requests by length, an engine that is audited after every step."""

from minibatch import Engine, Request, SamplingParams
from minibatch.request import Status
from minibatch.simulate import ScriptedExecutor


def request(name, output, arrival=0.0, prompt=1, **sampling):
    """A request of `prompt` tokens that writes `output` tokens."""
    return Request(name, tuple(range(1, prompt + 1)), SamplingParams(max_new_tokens=output, **sampling), arrival)


class AuditedEngine(Engine):
    """An engine that checks the books after every step (cases.md, oracles 1 to 5)."""

    def step(self):
        before = {name: len(sequence.output) for name, sequence in self.open.items()}
        record = super().step()
        scheduler, memory = self.scheduler, self.scheduler.memory
        memory.check_integrity()
        holders = [sequence for sequence in scheduler.running if sequence.region is not None]
        assert holders == scheduler.running, "who runs holds memory"
        assert memory.use().reserved == sum(len(sequence.region) for sequence in holders), "who holds memory runs"
        slots = [sequence.slot for sequence in scheduler.running]
        assert len(set(slots)) == len(slots) <= scheduler.max_num_seqs, f"slots {slots}"
        assert sorted(slots + scheduler._free_slots) == list(range(scheduler.max_num_seqs)), "slots conserved"
        for sequence in scheduler.waiting:
            assert sequence.status is Status.WAITING and sequence.slot is None and sequence.region is None
        if record and not record.error:
            assert record.live, "a step computes something"
            for work in record.live:
                grown = self.trace.requests[work.request_id].tokens
                assert len(grown) == before[work.request_id] + 1, "one token a step, delivered once"
        for work in record.dead if record else ():
            entry = self.trace.requests[work.request_id]
            last = entry.prompt_tokens + len(entry.tokens) - 2  # the last position stored: P + N - 1 of them
            assert (work.start, work.count) == (last, 1), "a dead row computes its last stored token over again"
        for name, entry in self.trace.requests.items():
            assert (entry.finish_reason is None) == (name in self.open), "one terminal event a request"
        return record


def serve(scheduler, requests, executor=None):
    """Run requests through an audited engine, check that nothing is left behind, return the trace."""
    engine = AuditedEngine(scheduler, executor or ScriptedExecutor())
    trace = engine.run(requests)
    assert not engine.open and not scheduler.waiting and not scheduler.running
    assert scheduler.memory.use().reserved == 0, "all memory returned"
    return trace


def membership(trace):
    """Who is in which step: for each step, {request: slot} of the live, then of the dead."""
    return [({w.request_id: w.slot for w in s.live}, {w.request_id: w.slot for w in s.dead}) for s in trace.steps]
