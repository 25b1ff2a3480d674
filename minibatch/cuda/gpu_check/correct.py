"""Is every kernel right on this card: against float64, and against what the emulator gave for the same input."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from minibatch.cuda import trace
from minibatch.cuda.gpu_check.shapes import LIBRARIES, RUNGS, check_scenes, stored_scene, traced_scene
from minibatch.cuda.library import Library, load
from minibatch.cuda.scene import Scene, allowed
from minibatch.cuda.simulated import Run

STORED = Path(__file__).parent / "emulated.pt"
EMULATED_RUNGS = (1, 2, 3, 4, 5, 6)
PARTS = 3


@dataclass(frozen=True)
class Check:
    """Launches of one rung of one library. `worst` is the largest difference from float64, `failed` how many launches
    had an element further away than rounding allows; the same for the emulator's results."""

    rung: int
    dtype: str
    head_dim: int
    launches: int
    failed: int
    worst: float
    emulated_failed: int
    emulated_worst: float


Launch = Callable[[Scene, int], torch.Tensor]  # a scene in host memory and a rung -> the result, in host memory


def build_all(arch: str) -> dict[tuple[torch.dtype, int], Library]:
    """Every library for the card, side by side: the compiler is a process of its own."""
    with ThreadPoolExecutor(len(LIBRARIES)) as pool:
        return dict(zip(LIBRARIES, pool.map(lambda each: load("cuda", *each, arch), LIBRARIES)))


def launch_with(library: Library, device: str = "cuda") -> Launch:
    """A function that runs a rung of the library on `device`."""

    def launch(scene: Scene, rung: int) -> torch.Tensor:
        return library.attention(*scene.to(device).arguments, rung, PARTS).cpu()

    return launch


def check(dtype: torch.dtype, head_dim: int, launch: Launch, rungs: tuple[int, ...] = RUNGS) -> list[Check]:
    """All scenes of a library through each rung."""
    scenes = [(scene, scene.truth()) for scene in check_scenes(dtype, head_dim)]
    stored = torch.load(STORED, weights_only=True)["results"]
    small, name = stored_scene(dtype, head_dim), str(dtype).removeprefix("torch.")
    truth, rows = small.truth(), []
    for rung in rungs:
        judged = [_judge(launch(scene, rung), right, allowed(right, dtype)) for scene, right in scenes]
        out = launch(small, rung)
        judged.append(_judge(out, truth, allowed(truth, dtype)))
        emulated = stored[f"{name} {head_dim} rung {min(rung, EMULATED_RUNGS[-1])}"]  # rung 7 computes what rung 6 does
        failed, worst = _judge(out, emulated.double(), 2 * allowed(truth, dtype))
        bad, distances = zip(*judged)
        rows.append(Check(rung, name, head_dim, len(judged), sum(bad), max(distances), int(failed), worst))
    return rows


def emulate() -> dict:
    """What goes into `emulated.pt`: results of each rung for `stored_scene`, and what the tracer predicts for
    `traced_scene`: reads of global memory, in requests and in sectors of 32 bytes. Needs a compiler, and no GPU."""
    results, predicted = {}, {}
    for dtype, head_dim in LIBRARIES:
        scene, name = stored_scene(dtype, head_dim), str(dtype).removeprefix("torch.")
        for rung in EMULATED_RUNGS:
            out = load("checked", dtype, head_dim).attention(*scene.arguments, rung, PARTS)
            results[f"{name} {head_dim} rung {rung}"] = out
    scene = traced_scene()
    for rung in EMULATED_RUNGS:
        run = Run(trace_limit=8_000_000)
        load("checked", scene.q.dtype, scene.q.shape[2]).attention(*scene.arguments, rung, PARTS, run)
        made = trace.requests(run)
        reads = made[(made["sectors"] > 0) & (made["operation"] == 0)]
        predicted[str(rung)] = {"requests": len(reads), "sectors": int(reads["sectors"].sum())}
    return {"results": results, "predicted": predicted}


def _judge(out: torch.Tensor, right: torch.Tensor, far: torch.Tensor) -> tuple[bool, float]:
    """(whether an element is further away than `far`, the largest distance). NaN is further away than anything."""
    distance = (out.double() - right).abs()
    return bool((~(distance <= far)).any()), float(distance.nan_to_num(torch.inf).max())
