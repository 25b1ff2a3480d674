"""How torch's threads wait for work. To be settled before torch is imported; matters on Linux only (GNU OpenMP)."""

import os
from collections.abc import MutableMapping


def settle_waiting(environment: MutableMapping[str, str]) -> None:
    """Let idle threads spin for a moment on a quiet machine, and sleep at once on a busy one.

    A step of a small model is a thousand short operations. Waking a sleeping thread for each costs up to a third of
    the step; but where other programs want the cores, a spinning thread keeps them from the one that has work to
    do, and a step takes several times as long. Nothing is changed if the environment says already how to wait.
    """
    if environment.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        return
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)
    environment.update({"OMP_WAIT_POLICY": "PASSIVE"} if busy else {"GOMP_SPINCOUNT": "50000"})
