"""The asyncio front: clients come and go while the engine runs. Introduced in notebook 03.

The article calls it by its oldest name, producer and consumer, where the consumer has N slots
(`fila.ReceberAsync`, `EntregarAsync`). One task runs the loop; each step runs in a thread, so that the event
loop goes on serving its clients while the model computes. Queue, slots and memory are touched only between
two steps, on the event loop, so nothing needs a lock.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from minibatch.engine import Engine, EngineError, raise_if_broken
from minibatch.request import FinishReason, Request, RequestRefused, Sequence


@dataclass(slots=True, eq=False)
class _Client:
    """One open stream: tokens it has not read yet wait in `unread`, then None."""

    request: Request
    ends: Callable[[int], bool] | None
    accepted: asyncio.Future  # resolves to a Sequence, or to the exception that kept it out
    unread: asyncio.Queue = field(default_factory=asyncio.Queue)
    sequence: Sequence | None = None
    sent: int = 0


class AsyncEngine:
    """Serves an `Engine` to many clients at once.

        async with AsyncEngine(engine) as server:
            async for token in server.stream(request):
                ...

    A client that leaves its loop, or whose task is cancelled, aborts its request. One that does not read is
    aborted once more than `max_unread` tokens wait for it. Arrival is the moment of the call of `stream`, and
    time is the wall clock from the start of the server.
    """

    def __init__(self, engine: Engine, max_unread: int = 64):
        if max_unread < 1:
            raise ValueError(f"max_unread={max_unread!r}: must be at least 1")
        self.engine, self.max_unread = engine, max_unread
        self._arriving: list[_Client] = []
        self._served: list[_Client] = []
        self._leaving: list[_Client] = []
        self._news = asyncio.Event()  # somebody came or went, or the server closes
        self._task: asyncio.Task | None = None
        self._open = False

    async def __aenter__(self) -> "AsyncEngine":
        self._origin = time.monotonic() - self.engine.now
        self._open = True
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Finish the step under way, abort whoever is still being served, stop."""
        self._open = False
        self._news.set()
        await self._task

    def stream(self, request: Request, ends: Callable[[int], bool] | None = None) -> AsyncIterator[int]:
        """Submit a request now; iterate for its tokens. Raises RequestRefused or EngineError while iterating.

        `ends` is `Engine.submit`'s; it is called in the thread that runs the step.
        """
        if not self._open:
            raise EngineError(f"request {request.request_id!r}: the server is not running; use it in `async with`")
        client = _Client(replace(request, arrival=self._wall()), ends, asyncio.get_running_loop().create_future())
        self._arriving.append(client)
        self._news.set()
        return self._tokens(client)

    def _wall(self) -> float:
        return time.monotonic() - self._origin

    async def _tokens(self, client: _Client) -> AsyncIterator[int]:
        try:
            outcome = await client.accepted
            if isinstance(outcome, Exception):
                raise outcome
            while (token := await client.unread.get()) is not None:
                yield token
            raise_if_broken(outcome)
        finally:  # also where a client breaks off or is cancelled
            client.accepted.cancel()  # without effect if it was let in
            self._leaving.append(client)
            self._news.set()

    async def _serve(self) -> None:
        """The loop: let in and out who wants, run one step in a thread, deliver; sleep when there is nothing to do."""
        try:
            while self._open:
                self._news.clear()
                self.engine.now = max(self.engine.now, self._wall())
                self._dismiss()
                self._admit()
                record = await asyncio.to_thread(self.engine.step)
                self._deliver()
                if record is None and self._open:
                    await self._sleep()
            reason, error = FinishReason.ABORTED, EngineError("the server has closed")
        except Exception as broken:  # a step that raises is the engine's to handle; this is a defect of the loop itself
            reason, error = FinishReason.FAILED, broken
        self._open = False
        self._end_all(reason, error)

    def _dismiss(self) -> None:
        """Abort those whose client has gone."""
        leaving, self._leaving = self._leaving, []
        for client in leaving:
            if client.sequence and not client.sequence.is_finished:
                self.engine.abort(client.request.request_id)
        self._deliver()

    def _admit(self) -> None:
        arriving, self._arriving = self._arriving, []
        for client in arriving:
            if client.accepted.cancelled():
                continue
            try:
                client.sequence = self.engine.submit(client.request, client.ends)
            except RequestRefused as refused:
                client.accepted.set_result(refused)
            else:
                self._served.append(client)
                client.accepted.set_result(client.sequence)

    def _deliver(self) -> None:
        """Give every client its new tokens, and None at the end; abort who does not read."""
        for client in self._served:
            sequence = client.sequence
            for token in sequence.output[client.sent :]:
                client.unread.put_nowait(token)
            client.sent = len(sequence.output)
            if not sequence.is_finished and client.unread.qsize() > self.max_unread:
                self.engine.abort(sequence.request_id)
            if sequence.is_finished:
                client.unread.put_nowait(None)
        self._served = [client for client in self._served if not client.sequence.is_finished]

    def _end_all(self, reason: FinishReason, error: Exception) -> None:
        """Nobody is left waiting for ever: end every stream, served or not yet let in."""
        for client in self._served:
            if reason is FinishReason.ABORTED:
                self.engine.abort(client.request.request_id)
            else:  # the books are not to be trusted any more: end the stream, leave them alone
                client.sequence.finish(reason, self.engine.now, error)
        self._deliver()
        for client in self._arriving:
            if not client.accepted.done():
                client.accepted.set_result(
                    EngineError(f"request {client.request.request_id!r} was not served: {error}")
                )

    async def _sleep(self) -> None:
        """Until somebody comes or goes, or the scheduler wants to be asked again."""
        wake = self.engine.scheduler.wake_at()
        try:
            await asyncio.wait_for(self._news.wait(), None if wake is None else max(wake - self._wall(), 0))
        except TimeoutError:
            pass
