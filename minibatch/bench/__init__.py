"""Speed, measured: what one step of a real model costs on this machine. `report` needs no torch, `model` measures."""

from minibatch.bench.report import Report, Row, format_table, stored_report

__all__ = ["Report", "Row", "format_table", "stored_report"]
