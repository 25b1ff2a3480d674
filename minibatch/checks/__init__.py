"""Checks for the exercises of the notebooks: `minibatch.checks.nb00` holds those of notebook 00, and so on.

A check judges what a function does, never how it is written, and says what is wrong in one line without giving
the answer away. No check draws, and none needs a picture.
"""
