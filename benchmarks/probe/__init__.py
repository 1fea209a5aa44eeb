"""Measures inside a serving worker: which functions run, and how many instructions, between two commands from outside.

`probed(checkout, ...)` serves a checkout's gateway before the mock upstream, with the files of `inside/` loaded in each
of its processes. inside/sitecustomize.py says what they do; they know nothing of the gateway's modules, so any
layout can be measured.
"""

from benchmarks.probe.serving import Probed, probed

__all__ = ["Probed", "probed"]
