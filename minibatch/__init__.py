"""minibatch: continuous batching for language models, small enough to read in one sitting.

Nothing heavy is imported here: the engine, the schedulers and the memory room are plain Python, so
a simulation starts at once. The model room, which needs torch, is imported on first use:

    from minibatch import load_model
"""

from minibatch.async_engine import AsyncEngine
from minibatch.build import build_engine
from minibatch.engine import Engine, EngineError
from minibatch.request import Request, RequestRefused, SamplingParams, Sequence
from minibatch.trace import Trace
from minibatch.trace_file import load_trace

__version__ = "0.1.0"
__all__ = [
    "AsyncEngine",
    "Engine",
    "EngineError",
    "Request",
    "RequestRefused",
    "SamplingParams",
    "Sequence",
    "Trace",
    "build_engine",
    "load_model",
    "load_trace",
]


def __getattr__(name: str):
    """Import torch only when somebody asks for a model."""
    if name == "load_model":
        from minibatch.model import load_model

        return load_model
    raise AttributeError(f"module 'minibatch' has no attribute {name!r}")
