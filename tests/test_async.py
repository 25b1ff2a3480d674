"""Clients that come, go, fall silent or are refused, and steps that raise, over the asyncio front."""

import asyncio
import gc
import time

import pytest
from helpers import AuditedEngine, request

from minibatch import AsyncEngine, EngineError, RequestRefused
from minibatch.memory import ContiguousMemory
from minibatch.schedulers import DynamicBatcher, IterationScheduler
from minibatch.simulate import ScriptedExecutor


class Slow(ScriptedExecutor):
    """A step really takes `nap` seconds, and raises in step `breaks_at`."""

    def __init__(self, script=None, nap=0.002, breaks_at=None):
        super().__init__(script, seconds_per_step=nap)
        self.nap, self.breaks_at, self.steps = nap, breaks_at, 0

    def execute(self, plan):
        self.steps += 1
        time.sleep(self.nap)
        if self.steps == self.breaks_at:
            raise ZeroDivisionError("the model broke")
        return super().execute(plan)


def engine(slots=8, **slow):
    return AuditedEngine(IterationScheduler(slots, ContiguousMemory(slots * 512, 512)), Slow(**slow))


async def collect(stream):
    return [token async for token in stream]


def test_clients_that_leave_are_aborted_and_the_others_are_served():
    """cases.md A25: one breaks off, one is cancelled, one never reads; the first is served to its end."""
    script = {f"R{i}": [i] * 200 for i in range(1, 5)}

    async def main():
        async with AsyncEngine(engine(script=script), max_unread=32) as server:
            first = asyncio.create_task(collect(server.stream(request("R1", 200))))
            seen = []
            async for token in server.stream(request("R2", 200)):
                seen.append(token)
                if len(seen) == 3:
                    break
            at_break = len(server.engine.trace.steps)
            third = asyncio.create_task(collect(server.stream(request("R3", 200))))
            silent = server.stream(request("R4", 200))
            await asyncio.sleep(0.05)
            third.cancel()
            at_cancel = len(server.engine.trace.steps)
            tokens = await first
            more = await collect(server.stream(request("R5", 2)))
            del silent
            return server.engine, at_break, at_cancel, tokens, more

    served, at_break, at_cancel, tokens, more = asyncio.run(main())
    gc.collect()
    ends = {name: record.finish_reason for name, record in served.trace.requests.items()}
    assert ends == {"R1": "length", "R2": "aborted", "R3": "aborted", "R4": "aborted", "R5": "length"}
    assert tokens == [1] * 200 and more == [7, 7]
    in_steps = {n: [s.step for s in served.trace.steps if n in [w.request_id for w in s.live]] for n in ends}
    assert max(in_steps["R2"]) <= at_break + 2 and max(in_steps["R3"]) <= at_cancel + 2
    assert 33 <= len(served.trace.requests["R4"].tokens) <= 34, "bounded: 32 unread and the one too many"
    assert served.scheduler.memory.use().reserved == 0


def test_leaving_before_being_let_in_is_no_request_at_all():
    async def main():
        async with AsyncEngine(engine(slots=1)) as server:
            task = asyncio.create_task(collect(server.stream(request("A", 50))))
            await asyncio.sleep(0)
            task.cancel()
            assert await collect(server.stream(request("B", 2))) == [7, 7]
            return server.engine

    served = asyncio.run(main())
    assert served.trace.requests.get("A") is None or served.trace.requests["A"].finish_reason == "aborted"
    assert not served.open


def test_a_refused_request_tells_its_client_alone():
    async def main():
        async with AsyncEngine(engine()) as server:
            good = asyncio.create_task(collect(server.stream(request("good", 20))))
            with pytest.raises(RequestRefused, match="max_new_tokens=0"):
                await collect(server.stream(request("bad", 0)))
            return await good

    assert asyncio.run(main()) == [7] * 20


def test_a_step_that_raises_reaches_who_was_in_it_with_the_cause_and_the_rest_is_served():
    """cases.md A26 (a): the engine goes on, so the two that waited are served."""

    async def main():
        async with AsyncEngine(engine(slots=3, breaks_at=5)) as server:
            results = await asyncio.wait_for(
                asyncio.gather(
                    *[collect(server.stream(request(f"R{i}", 20))) for i in range(5)], return_exceptions=True
                ),
                timeout=5,
            )
            return results, await collect(server.stream(request("later", 2)))

    results, later = asyncio.run(main())
    assert all(isinstance(r, EngineError) and isinstance(r.__cause__, ZeroDivisionError) for r in results[:3])
    assert results[3:] == [[7] * 20] * 2 and later == [7, 7]


class Broken(IterationScheduler):
    """A defect in the loop itself, not in a step."""

    def schedule(self, now):
        if self.waiting and self.running:
            raise KeyError("a scheduler with a defect")
        return super().schedule(now)


def test_a_loop_that_dies_leaves_nobody_waiting():
    async def main():
        broken = AuditedEngine(Broken(4), Slow())
        async with AsyncEngine(broken) as server:
            first = asyncio.create_task(collect(server.stream(request("A", 50))))
            await asyncio.sleep(0.03)
            second = asyncio.create_task(collect(server.stream(request("B", 50))))
            results = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), timeout=5)
            with pytest.raises(EngineError, match="the server is not running"):
                server.stream(request("C", 1))
            return results

    results = asyncio.run(main())
    assert all(isinstance(r, EngineError) and isinstance(r.__cause__, KeyError) for r in results)


def test_the_event_loop_breathes_while_a_step_computes():
    """cases.md A26 (b): tokens come one by one, and a ticker is not held up by the model."""

    async def main():
        async with AsyncEngine(engine(nap=0.05)) as server:
            ticks, done = [], asyncio.Event()

            async def tick():
                while not done.is_set():
                    ticks.append(len(server.engine.trace.steps))
                    await asyncio.sleep(0.005)

            ticker = asyncio.create_task(tick())
            seen_at = [len(server.engine.trace.steps) async for _ in server.stream(request("A", 20))]
            done.set()
            await ticker
            return ticks, seen_at

    ticks, seen_at = asyncio.run(main())
    assert len(set(ticks)) >= 15, "the ticker ran within almost every one of the 20 steps"
    assert len(set(seen_at)) >= 15, "tokens arrived as they were made"


def test_closing_ends_whoever_is_still_being_served():
    async def main():
        async with AsyncEngine(engine()) as server:
            task = asyncio.create_task(collect(server.stream(request("A", 400))))
            await asyncio.sleep(0.03)
        with pytest.raises(EngineError, match="request 'A' aborted"):
            await task
        with pytest.raises(EngineError, match="not running"):
            server.stream(request("B", 1))
        return server.engine

    served = asyncio.run(main())
    assert not served.open and served.scheduler.memory.use().reserved == 0


def test_a_window_closes_by_itself():
    """A dynamic batcher with a lone request wakes at the end of its window though nobody else comes."""

    async def main():
        async with AsyncEngine(AuditedEngine(DynamicBatcher(4, max_wait=0.05), Slow())) as server:
            await asyncio.wait_for(collect(server.stream(request("A", 2))), timeout=5)
            return server.engine.trace

    trace = asyncio.run(main())
    record = trace.requests["A"]
    assert record.first_scheduled - record.arrival >= 0.05


def test_it_works_inside_a_running_event_loop():
    """As in a notebook: no asyncio.run inside, and the synchronous front works there too."""

    async def main():
        tokens = list(engine().stream(request("A", 3)))
        async with AsyncEngine(engine()) as server:
            return tokens, await collect(server.stream(request("A", 3)))

    assert asyncio.run(main()) == ([7, 7, 7], [7, 7, 7])


def test_max_unread_below_1_is_refused():
    with pytest.raises(ValueError, match="max_unread=0"):
        AsyncEngine(engine(), max_unread=0)
