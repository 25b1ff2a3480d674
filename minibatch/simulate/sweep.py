"""Many simulations side by side, here or on a cluster: article 3's "reproduza um conjunto representativo". Notebook 09.

    rows = sweep(["static", "vllm-v1"], [1, 2, 4, 8], "ttft_p95=2,itl_p99=0.2", Scenario(trace="azure-code"))

They run on an executor with the interface of `concurrent.futures`: by default one process a core. Another, such as
`dask.distributed.Client(...).get_executor()`, takes its place without new code. Rows come in the order in which they
were asked for, so the same question gives the same bytes wherever they were computed.
"""

import os
import warnings
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from tqdm.auto import tqdm

from minibatch.schedulers.systems import system
from minibatch.simulate.cards import Deployment, known
from minibatch.simulate.journal import Journal
from minibatch.simulate.objective import Objective, objective_of
from minibatch.simulate.rows import measure
from minibatch.simulate.scenario import TRACES, Scenario

T = TypeVar("T")
Job = Generator[Scenario, dict, T]  # yields a scenario, is sent its row, and so on; returns what it found


def sweep(
    systems: Iterable[str],
    rates: Iterable[float | None],
    slo: str | Objective,
    base: Scenario | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
) -> list[dict]:
    """A row (`rows.measure`) for each system at each load in requests/s; `base` says everything else.

    Rows that the file `resume` has already are taken from it, new ones are added to it as they come. Delete it when
    the code has changed. A simulation that fails is a row with an `error`, and is warned of; it is tried again the
    next time. Raises ValueError before anything runs for a system, card, model, trace or knob that nobody knows.

    The processes are spawned: a script that calls this needs `if __name__ == "__main__":`, a notebook does not.
    """
    rates = list(rates)
    scenarios = [replace(base or Scenario(), system=name, rate=rate) for name in systems for rate in rates]
    return run_all(scenarios, slo, executor, progress, resume)


def run_all(
    scenarios: Iterable[Scenario],
    slo: str | Objective,
    executor: Executor | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
) -> list[dict]:
    """The same for any scenarios, a row each."""
    rows = drive([_once(scenario) for scenario in scenarios], slo, executor, progress, resume)
    failed = [row for row in rows if row["error"]]
    if failed:
        first = failed[0]
        what = f"{first['system']} at {first['rate']} requests/s: {first['error']}"
        warnings.warn(f"{len(failed)} of {len(rows)} simulations failed; the first, {what}", stacklevel=3)
    return rows


def _once(scenario: Scenario) -> Job[dict]:
    check(scenario)
    return _ask(scenario)


def _ask(scenario: Scenario) -> Job[dict]:
    return (yield scenario)


def check(scenario: Scenario) -> None:
    """Raise ValueError for what can be seen to be wrong without a simulation."""
    row, deployment = system(scenario.system), Deployment(scenario.card, scenario.model, scenario.tensor_parallel)
    positions = scenario.kv_tokens or deployment.kv_tokens
    row.build(positions, scenario.max_model_len or positions, events=False, **dict(scenario.knobs))
    known("trace", scenario.trace, TRACES)
    if scenario.rate is not None and not 0 < scenario.rate < float("inf"):
        raise ValueError(f"rate={scenario.rate!r}: must be a finite number of requests per second above 0")
    if scenario.requests is not None and scenario.requests < 1:
        raise ValueError(f"requests={scenario.requests!r}: must be at least 1, or None for all")


def drive(
    jobs: list[Job[T]],
    slo: str | Objective,
    executor: Executor | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    unit: str = "run",
) -> list[T]:
    """Run jobs side by side, each one simulation after the other; returns what they found, in their order.

    What breaks the executor itself (a worker that was killed, say) is raised, with the scenario that it broke on;
    what came before is in `resume`. Simulations that have not begun are then cancelled.
    """
    slo, journal = objective_of(slo), Journal(resume)
    found: dict[int, T] = {}
    running: dict[Future, tuple[int, Scenario]] = {}
    with (
        _processes(len(jobs)) if executor is None else nullcontext(executor) as pool,
        _bar(len(jobs), unit, progress) as bar,
    ):

        def advance(index: int, row: dict | None) -> None:
            """Tell a job the row it waits for (None: begin) until it wants one that nobody knows yet."""
            try:
                scenario = jobs[index].send(row)
                while stored := journal.find(scenario, slo):
                    scenario = jobs[index].send(stored)
            except StopIteration as end:
                found[index] = end.value
                bar.update()
            else:
                running[pool.submit(measure, scenario, slo)] = index, scenario

        try:
            for index in range(len(jobs)):
                advance(index, None)
            while running:
                future = _next_done(running)
                index, scenario = running.pop(future)
                row = _result(future, scenario)
                journal.add(row)
                bar.set_postfix_str(said(scenario), refresh=False)
                advance(index, row)
        finally:
            for future in running:  # none, unless something was raised
                future.cancel()
    return [found[index] for index in range(len(jobs))]


def said(scenario: Scenario) -> str:
    """A scenario in two words."""
    return f"{scenario.system} at {'the recorded rate' if scenario.rate is None else f'{scenario.rate:.3g}/s'}"


@contextmanager
def _processes(jobs: int):
    """One a core, at most one a job. Spawned, for a process that has threads must not be forked."""
    with ProcessPoolExecutor(max(1, min(os.cpu_count() or 1, jobs)), mp_context=get_context("spawn")) as pool:
        yield pool


def _bar(total: int, unit: str, progress: bool) -> tqdm:
    return tqdm(total=total, desc="simulate", unit=unit, disable=not progress)


def _next_done(running: Iterable[Future]) -> Future:
    """Whichever is done first; of an executor with futures of its own, the oldest."""
    if all(isinstance(future, Future) for future in running):
        return next(iter(wait(running, return_when=FIRST_COMPLETED).done))
    return next(iter(running))


def _result(future: Future, scenario: Scenario) -> dict:
    try:
        return future.result()
    except Exception as error:
        error.add_note(f"while simulating {scenario}")
        raise
