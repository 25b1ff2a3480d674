"""Who asks, for how much, and when: synthetic workloads, public traces and the course's chat prompts.

Introduced in notebook 02. A workload is planned by its lengths alone (`Planned`), which is all that scheduling and
a cost model look at; `to_requests` fills in prompts for an engine that runs a real model. It reads like a sentence:

    synthetic(24, prompt=uniform(8, 64), output=exponential(mean=64, cap=256), arrivals=poisson(rate=2.0), seed=0)

A seed gives the same workload in every run. Prompts, outputs and arrivals draw from generators of their own, so
another output law leaves the arrivals as they were, and Python's global random state is never touched.

For a cost model, which looks at no token, `bare_requests` is the cheap way to an engine, and `mooncake_requests` the
one for a trace that says which prompts begin alike.
"""

from minibatch.workload.arrivals import Arrivals, burst, gamma, poisson, rescale
from minibatch.workload.chat import CHAT_PROMPTS, chat_prompts
from minibatch.workload.lengths import Lengths, bimodal, equal, exponential, lognormal, uniform
from minibatch.workload.planned import Planned, alpaca_like, sharegpt_like, synthetic
from minibatch.workload.requests import bare_requests, mooncake_requests, to_requests
from minibatch.workload.traces import (
    AZURE_TRACES,
    MOONCAKE_BLOCK,
    azure_trace,
    mooncake_trace,
    read_azure,
    read_mooncake,
)

__all__ = [
    "AZURE_TRACES",
    "CHAT_PROMPTS",
    "MOONCAKE_BLOCK",
    "Arrivals",
    "Lengths",
    "Planned",
    "alpaca_like",
    "azure_trace",
    "bare_requests",
    "bimodal",
    "burst",
    "chat_prompts",
    "equal",
    "exponential",
    "gamma",
    "lognormal",
    "mooncake_requests",
    "mooncake_trace",
    "poisson",
    "read_azure",
    "read_mooncake",
    "rescale",
    "sharegpt_like",
    "synthetic",
    "to_requests",
    "uniform",
]
