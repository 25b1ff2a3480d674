"""Who runs in the next step. Each scheduler is one `schedule()`; the rest is `base.Scheduler`."""

from minibatch.schedulers.base import Scheduler
from minibatch.schedulers.dynamic import DynamicBatcher
from minibatch.schedulers.iteration import IterationScheduler
from minibatch.schedulers.static import StaticBatcher

SCHEDULERS: dict[str, type[Scheduler]] = {
    "static": StaticBatcher,
    "dynamic": DynamicBatcher,
    "iteration": IterationScheduler,
}

__all__ = ["SCHEDULERS", "DynamicBatcher", "IterationScheduler", "Scheduler", "StaticBatcher"]
