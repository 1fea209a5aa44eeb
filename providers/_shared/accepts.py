"""The option `accepts`: what an upstream takes of the Messages dialect, where the built-in table is wrong.

A list replaces the built-in one; `"..."` in it stands for the built-in names. In `betas`, `"*"` stands for any flag.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway import AcceptedFields

Name = Annotated[str, Meta(pattern=r"^(?:[A-Za-z0-9_.*-]{1,128})$(?!\n)")]
BUILT_IN, ANY = "...", "*"


class Accepts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Names in place of the built-in ones; None keeps those."""

    fields: tuple[Name, ...] | None = None  # of the body, top level
    betas: tuple[Name, ...] | None = None  # flags of `anthropic-beta`
    tools: tuple[Name, ...] | None = None  # types of tools that the vendor defines, as patterns


def accepted_with(built_in: AcceptedFields, configured: Accepts) -> AcceptedFields:
    """The table with what is configured."""
    betas = None if configured.betas is not None and ANY in configured.betas else built_in.betas
    if betas is not None:
        betas = _names(betas, configured.betas)
    return AcceptedFields(_names(built_in.fields, configured.fields), betas, _names(built_in.tools, configured.tools))


def _names(built_in: frozenset[str], configured: tuple[str, ...] | None) -> frozenset[str]:
    if configured is None:
        return built_in
    return frozenset(configured) - {BUILT_IN} | (built_in if BUILT_IN in configured else frozenset())
