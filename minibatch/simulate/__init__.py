"""Executors without a model: the same engine and schedulers, with tokens and seconds made up by rule.

`ScriptedExecutor` says what it is told; `SimulatedExecutor` lasts as long as a model on a card would (`Roofline`).
"""

from minibatch.simulate.cards import CARDS, Card, Deployment
from minibatch.simulate.executor import SimulatedExecutor
from minibatch.simulate.result import Result, attainment, goodput, summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scripted import ScriptedExecutor
from minibatch.simulate.streaming import StreamingTrace

__all__ = [
    "CARDS",
    "Card",
    "Deployment",
    "Result",
    "Roofline",
    "ScriptedExecutor",
    "SimulatedExecutor",
    "StreamingTrace",
    "attainment",
    "goodput",
    "summary",
]
