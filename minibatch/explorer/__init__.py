"""`Explorer`: what load does this deployment carry, and why not more? Choose, look, choose again. Notebook 09.

A change is answered in about a second: a few short simulations of a slice of a trace, kept for when you come back. The
answer is rougher than `operating_limit`'s, which bisects and takes as long a trace as you give it.
"""

from minibatch.explorer.widgets import Explorer

__all__ = ["Explorer"]
