"""Figures of a tree's structure: `python -m benchmarks structure`.

All but the files that one chat executes are read from the syntax trees, so a tree is measured whatever its layout.
"""
