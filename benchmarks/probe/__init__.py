"""Looks into a serving worker: which functions run, and how many instructions, between two orders from outside.

`probed(checkout, ...)` serves a checkout's gateway before the mock upstream, with the files of `inside/` loaded in each
of its processes. What they do there is told in inside/sitecustomize.py; they know nothing of the gateway's modules, so
any layout can be looked into.
"""

from benchmarks.probe.serving import Probed, probed

__all__ = ["Probed", "probed"]
