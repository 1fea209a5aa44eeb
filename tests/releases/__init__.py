"""Releases and what each of them stored: a data directory of each, with the store, that the present version must open.

`recorded/VERSION/release.json` names the version and its commit, `data.tar.xz` has what that version wrote while it ran
`scenario.py`. `python -m tests.releases record VERSION` records one.
"""
