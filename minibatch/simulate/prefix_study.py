"""What a prefix cache finds on Mooncake's conversations: by its size, its rules, and the order of the queue.

Introduced in notebook 09. Only the books are kept: the same `PagedMemory` and the same join policies as in an engine,
and one server that computes a prompt at a time. A block of 512 tokens is one position here, as the trace has it.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from minibatch.memory import PagedMemory
from minibatch.metrics import percentile
from minibatch.request import Request, SamplingParams
from minibatch.request import Sequence as Served
from minibatch.schedulers.join import FirstComeFirstServed, LongestPrefix
from minibatch.workload import MOONCAKE_BLOCK, Planned, mooncake_trace

CACHES = ("hash", "radix")
# Of two prompts that begin alike with a whole block, one waits: 32 tokens, SGLang's border, are less than a block.
ORDERS = {"fcfs": FirstComeFirstServed, "longest_prefix": partial(LongestPrefix, shared_tokens=0)}
SIZES = (1000, 2000, 4000, 8000, 16_000, 32_000)  # blocks
SECONDS_PER_BLOCK = 0.015  # 512 tokens of Llama-3-8B on an H100 at 55 % of its peak: 16.2 us a token / 0.55
SECONDS_PER_TOKEN = 0.03  # between two tokens of an answer


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One run. Blocks are of 512 tokens; seconds are those of the server that computes prompts."""

    cache: str
    order: str
    blocks: int  # of the whole pool
    gib: float  # it takes for Llama-3-8B, whose token takes 128 KiB
    requests: int
    refused: int  # larger than the pool
    hit_share: float  # of the blocks of all prompts, how many were found stored
    ttft_mean: float  # seconds from arrival to the end of the prompt
    ttft_p95: float


def reuse_bound(planned: Sequence[Planned]) -> tuple[float, float]:
    """Shares of prompt blocks that were seen before, each request after those above it: what no cache can pass.

    The first counts every block, as is usual of this trace (36.6 % on the whole of it). The second does not count the
    last block of a prompt, which is never found: it is not whole, or its last token has to be computed anyway.
    """
    every, whole, blocks = set(), set(), 0
    seen = found = 0
    for one in planned:
        ids, blocks = one.hash_ids, blocks + len(one.hash_ids)
        seen += len(every.intersection(ids))
        found += len(whole.intersection(ids[:-1]))
        every.update(ids)
        whole.update(ids[:-1])
    if not blocks:
        raise ValueError("planned: no request has hash_ids; take those of mooncake_trace()")
    return seen / blocks, found / blocks


def prefix_study(
    planned: Sequence[Planned] | None = None,
    sizes: Sequence[int] = SIZES,
    caches: Sequence[str] = CACHES,
    orders: Sequence[str] = tuple(ORDERS),
) -> Iterator[PrefixRow]:
    """A row for each cache, order of the queue and size of the pool; by default on the whole Mooncake slice.

    That is 24 runs of about half a second. Raises ValueError for a request without hash ids.
    """
    planned = mooncake_trace() if planned is None else planned
    for cache in caches:
        for order in orders:
            for blocks in sizes:
                yield serve(planned, cache, order, blocks)


def serve(planned: Sequence[Planned], cache: str, order: str, blocks: int) -> PrefixRow:
    """One run. A request holds its blocks from the beginning of its prompt to the end of its answer."""
    if order not in ORDERS:
        raise ValueError(f"order={order!r}: choose one of {', '.join(ORDERS)}")
    server = _Server(PagedMemory(blocks, 1, cache, events=False), order)
    for arrival, sequence, output_tokens in _sequences(planned):
        server.work_until(arrival)
        server.arrive(sequence, output_tokens)
    server.work_until(float("inf"))
    if not server.ttfts:
        raise ValueError(f"blocks={blocks!r}: none of {len(planned)} requests fits a pool of so many")
    asked = sum(len(one.hash_ids) for one in planned)
    return PrefixRow(
        cache=cache,
        order=order,
        blocks=blocks,
        gib=blocks * MOONCAKE_BLOCK / 8192,
        requests=len(planned),
        refused=server.refused,
        hit_share=server.memory.hit_tokens / asked,
        ttft_mean=fmean(server.ttfts),
        ttft_p95=percentile(server.ttfts, 95),
    )


def _sequences(planned: Sequence[Planned]) -> Iterator[tuple[float, Served, int]]:
    """The prompt of each is its hash ids; its answer, in blocks begun, is what it holds beside them."""
    for i, one in enumerate(planned):
        if not one.hash_ids:
            raise ValueError(f"planned: request {i + 1} has no hash_ids; take those of mooncake_trace()")
        total = -(-(one.prompt_tokens + one.output_tokens) // MOONCAKE_BLOCK)
        more = total - len(one.hash_ids) + 1  # a request needs P + N - 1 positions
        request = Request(f"R{i + 1}", one.hash_ids, SamplingParams(more), one.arrival)
        yield one.arrival, Served(request, order=i), one.output_tokens


class _Server:
    """Prompts are computed one after the other, by order of the queue; answers are written beside them."""

    def __init__(self, memory: PagedMemory, order: str):
        self.memory, self.join = memory, ORDERS[order]()
        self.waiting: list[Served] = []
        self.answering: list[tuple[float, int, Served]] = []  # a heap: who ends first
        self.output_tokens: dict[Served, int] = {}
        self.free_at, self.ttfts, self.refused = 0.0, [], 0

    def arrive(self, sequence: Served, output_tokens: int) -> None:
        """Put in line, unless it can never fit."""
        if self.memory.refusal(sequence.request):
            self.refused += 1
            return
        self.output_tokens[sequence] = output_tokens
        self.waiting.append(sequence)
        self.free_at = max(self.free_at, sequence.request.arrival)

    def work_until(self, time: float) -> None:
        """Begin prompts as long as that is before `time`."""
        while self.waiting and self.free_at < time:
            self._release()
            head = self._head()
            if self.memory.admit(head):
                self._compute(head)
            else:
                self.free_at = self.answering[0][0]  # somebody is there, or the head would have fitted

    def _head(self) -> Served:
        if isinstance(self.join, LongestPrefix):
            self.join.look(self.waiting, self.memory)
        return min(self.waiting, key=self.join.rank)

    def _compute(self, head: Served) -> None:
        prompt = head.num_tokens
        self.waiting.remove(head)
        self.free_at += (prompt - head.num_computed_tokens) * SECONDS_PER_BLOCK
        head.num_computed_tokens = prompt
        self.memory.commit(head)
        self.ttfts.append(self.free_at - head.request.arrival)
        ends = self.free_at + self.output_tokens.pop(head) * SECONDS_PER_TOKEN
        heapq.heappush(self.answering, (ends, head.order, head))

    def _release(self) -> None:
        while self.answering and self.answering[0][0] <= self.free_at:
            self.memory.release(heapq.heappop(self.answering)[2])
