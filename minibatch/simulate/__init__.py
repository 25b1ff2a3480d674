"""Executors without a model: the same engine and schedulers, with tokens and seconds made up by rule."""

from minibatch.simulate.scripted import ScriptedExecutor

__all__ = ["ScriptedExecutor"]
