"""Paged attention written by hand in CUDA C++, and the same source on a CPU: compiled, run, checked and drawn.

`ops` has the operators; README.md says how to read the rest. Importing builds nothing.
"""
