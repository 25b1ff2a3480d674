"""What simulating costs: a whole production trace under each system, and a million requests in one run.

CPU seconds, not seconds of a clock, so that others who use the machine disturb less. Each system has a process of its
own, whose peak memory is then its own.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random

from minibatch.engine import Engine
from minibatch.request import Request
from minibatch.schedulers.systems import SYSTEMS, system
from minibatch.simulate.cards import Deployment
from minibatch.simulate.executor import SimulatedExecutor
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import Scenario, simulate
from minibatch.simulate.streaming import StreamingTrace
from minibatch.workload import Planned, bare_requests

TENTHS = 10
RATE, PROMPTS, OUTPUTS = 60.0, (16, 256), (1, 32)  # of the synthetic requests: a second; tokens, uniform


@dataclass(frozen=True, slots=True)
class SimulateRow:
    """One run. `peak_mib` of the process, Python and its libraries included."""

    system: str
    requests: int
    steps: int
    output_tokens: int
    cpu_seconds: float
    requests_per_cpu_second: float
    us_per_step: float
    us_per_token: float  # of output
    peak_mib: float | None


@dataclass(frozen=True, slots=True)
class TenthRow:
    """A tenth of a long run, by requests submitted."""

    tenth: int
    steps: int
    cpu_seconds: float
    running: float  # sequences in a step, on average
    us_per_step: float
    us_per_sequence: float  # and step
    peak_mib: float | None  # so far


def bench_simulate(systems: Sequence[str] = tuple(SYSTEMS), requests: int | None = None) -> Iterator[SimulateRow]:
    """A row for each system: the Azure conversation trace of 19,366 requests as recorded, Llama-3-8B on an A100-80."""
    for name in systems:
        system(name)
    if requests is not None and requests < 2:
        raise ValueError(f"requests={requests!r}: must be at least 2, or None for the whole trace")
    with _fresh_processes() as pool:
        for name in systems:
            yield pool.submit(measure_system, Scenario(name, requests=requests)).result()


def measure_system(scenario: Scenario) -> SimulateRow:
    """Simulate in this process. Reading the trace is not counted."""
    scenario.planned()
    started = time.process_time()
    trace = simulate(scenario)
    return _row(scenario.system, trace, time.process_time() - started)


def bench_synthetic(requests: int = 1_000_000, name: str = "vllm-v1") -> tuple[SimulateRow, list[TenthRow]]:
    """`measure_synthetic` in a process of its own."""
    if requests < TENTHS:
        raise ValueError(f"requests={requests!r}: must be at least {TENTHS}")
    with _fresh_processes() as pool:
        return pool.submit(measure_synthetic, requests, name).result()


def measure_synthetic(requests: int, name: str) -> tuple[SimulateRow, list[TenthRow]]:
    """One run of so many requests, which nobody holds in a list; and what a step costs in each tenth of it.

    Short prompts and answers, Poisson arrivals, a load that the simulated server bears.
    """
    deployment, longest = Deployment("A100-80", "Llama-3-8B"), PROMPTS[1] + OUTPUTS[1]
    scheduler = system(name).build(deployment.kv_tokens, longest, events=False)
    trace = StreamingTrace.of(scheduler)
    marks = [_mark(trace)]
    coming = _marked(bare_requests(_endless(seed=0)), requests, trace, marks)
    Engine(scheduler, SimulatedExecutor(Roofline(deployment), longest), trace).run(coming)
    marks.append(_mark(trace))
    row = _row(name, trace, marks[-1][0] - marks[0][0])
    return row, [_tenth(place, *pair) for place, pair in enumerate(zip(marks, marks[1:]), 1)]


def _fresh_processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1)


def _endless(seed: int) -> Iterator[Planned]:
    rng, arrival = Random(seed), 0.0
    while True:
        arrival += rng.expovariate(RATE)
        yield Planned(arrival, rng.randint(*PROMPTS), rng.randint(*OUTPUTS))


def _marked(coming: Iterable[Request], requests: int, trace: StreamingTrace, marks: list) -> Iterator[Request]:
    """The first so many requests; a mark is made whenever a tenth of them has been read."""
    for place, request in enumerate(islice(coming, requests)):
        if place and place % (requests // TENTHS) == 0 and len(marks) < TENTHS:
            marks.append(_mark(trace))
        yield request


def _mark(trace: StreamingTrace) -> tuple[float, int, int, float]:
    return time.process_time(), trace.steps, trace.live_slot_steps, peak_mib()


def _tenth(place: int, before: tuple, after: tuple) -> TenthRow:
    seconds, steps, live = (later - earlier for earlier, later in zip(before[:3], after[:3]))
    each = (round(live / steps, 1), round(1e6 * seconds / steps, 1), round(1e6 * seconds / live, 2))
    return TenthRow(place, steps, round(seconds, 3), *each, after[3])


def _row(name: str, trace: StreamingTrace, seconds: float) -> SimulateRow:
    found = summary(trace)
    requests = found.n + found.not_served
    return SimulateRow(
        name,
        requests,
        found.steps,
        found.output_tokens,
        round(seconds, 2),
        round(requests / seconds),
        round(1e6 * seconds / found.steps, 1),
        round(1e6 * seconds / found.output_tokens, 2),
        peak_mib(),
    )


def peak_mib() -> float | None:
    """The most memory that this process has had so far, as Linux tells; None elsewhere.

    Not `getrusage`: its peak begins with that of the process that started this one.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    kib = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return round(kib / 1024, 1)


def format_simulate_table(rows: Sequence[SimulateRow]) -> str:
    """The rows as text."""
    head = f"{'system':23}{'requests':>10}{'steps':>10}{'tokens':>11}{'CPU s':>8}{'requests/CPU s':>16}"
    lines = [head + f"{'us a step':>11}{'us a token':>12}{'peak MiB':>10}"]
    for row in rows:
        sizes = f"{row.requests:10,}{row.steps:10,}{row.output_tokens:11,}{row.cpu_seconds:8.1f}"
        speed = f"{row.requests_per_cpu_second:16,}{row.us_per_step:11.1f}{row.us_per_token:12.2f}"
        lines.append(f"{row.system:23}{sizes}{speed}{_memory(row.peak_mib)}")
    return "\n".join(lines)


def format_tenths(rows: Sequence[TenthRow]) -> str:
    """The tenths as text."""
    lines = [
        f"{'tenth':>5}{'steps':>10}{'running':>9}{'CPU s':>8}{'us a step':>11}{'us a sequence':>15}{'peak MiB':>10}"
    ]
    for row in rows:
        numbers = (
            f"{row.steps:10,}{row.running:9.1f}{row.cpu_seconds:8.2f}{row.us_per_step:11.1f}{row.us_per_sequence:15.2f}"
        )
        lines.append(f"{row.tenth:5}{numbers}{_memory(row.peak_mib)}")
    return "\n".join(lines)


def _memory(mib: float | None) -> str:
    return f"{'-' if mib is None else f'{mib:.0f}':>10}"
