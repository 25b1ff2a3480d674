"""Grade labs without a server: `python -m minibatch grade MASTER SUBMISSION...` (minibatch/commands/grade.py).

`notebook.py` reads the lab and the submissions and says which cells run, and whose copy of each. `run.py` runs them in
a process of their own, within limits, with what `machine.py` leaves them. `child.py` is that process; `guard.py` and
`restore.py` keep what it runs from the machine and from the checks. `report.py` has the rows and the words.

What this protects from: mistakes, and tricks that a student tries on an evening. Answers and checks share one Python
process, so whoever knows Python's insides can still cheat; code typed as CUDA or called through ctypes is not held by
the guard at all. Cells that reach for such things are named in the notes for a person to read. Grade on an account or
in a container that holds nothing else of value, and do not use it for examinations.
"""
