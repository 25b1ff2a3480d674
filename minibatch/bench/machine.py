"""The machine under a measurement: its name, how fast it reads, how fast it multiplies, and whether others use it."""

import os
import platform
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from tqdm.auto import tqdm

from minibatch.model.linear import Linear
from minibatch.model.load import DTYPES


@torch.inference_mode()
def measure_bandwidth(nbytes: int | None = None) -> float:
    """Bytes a second that torch's threads read from memory, at best.

    Reads one float32 array, over and over, in two ways that read it once and compute next to nothing (its dot product
    with itself; a matrix-vector product), and takes the faster. The array is larger than the last cache: `nbytes`, by
    default twice the L3 cache that Linux names and at least 512 MiB. No program reads faster than the hardware, so the
    result is a lower bound of the machine's bandwidth, reached by the same library that the model runs on.
    """
    array = torch.ones((nbytes or max(2 * _l3_bytes(), 512 << 20)) // 4)
    rows, ones = array[: len(array) // 4096 * 4096].view(-1, 4096), torch.ones(4096)
    ways = {"dot product": lambda: torch.dot(array, array), "matrix times vector": lambda: rows.mv(ones)}
    times = [best_seconds(way) for way in tqdm(ways.values(), desc="read bandwidth")]
    return array.nbytes / min(times)


@torch.inference_mode()
def measure_flops(dtype: str, size: int = 2048) -> float:
    """FLOP a second of a large product [size, size] x [size, size] through the same `Linear` as the model's."""
    x = torch.ones(size, size, dtype=DTYPES[dtype])
    linear = Linear(torch.ones(size, size, dtype=DTYPES[dtype]))
    return 2 * size**3 / best_seconds(lambda: linear(x))


def best_seconds(call: Callable, seconds: float = 1.0) -> float:
    """The shortest of the runs that fit into `seconds`, at least three, after one to warm up."""
    times = []
    call()
    while len(times) < 3 or sum(times) < seconds:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def machine() -> dict[str, object]:
    """What a time is worth nothing without: the CPU, cores, threads, versions, and today's date."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vector": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        if names:
            return names[0]
    if platform.system() == "Darwin":
        asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return asked.stdout.strip() or platform.machine()
    return platform.processor() or platform.machine()


def _l3_bytes() -> int:
    path = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return int(path.read_text().strip().removesuffix("K")) << 10 if path.exists() else 0


def busy_seconds() -> float:
    """CPU seconds used by anybody on this machine, or taken by its host; always 0 where there is no /proc/stat."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
