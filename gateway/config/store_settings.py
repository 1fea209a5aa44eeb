"""Settings of the store and of the database: [store] and [database]."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.config.values import Duration
from gateway.config.variables import Reference


class StoreSettings(Struct, frozen=True, kw_only=True):
    """[store]: where accounts, keys and balances are kept."""

    url: Reference = ""  # a URL or a reference to one
    password: Reference = ""  # `Settings` has properties with the Secrets
    sentinel_password: Reference = ""
    data_dir: Annotated[str, Meta(min_length=1)] = "var"
    pepper: Reference = ""
    previous_pepper: Reference = ""
    unsafe: bool = False
    timeout: Annotated[float, Meta(ge=0.01, le=60)] = 1.0
    keep_lines: Duration = "48h"
    compact_lines: bool = False


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """[database]: the SQL database with the history."""

    url: Reference = ""  # an address or a reference; `Settings.database_url` is the Secret
    keep: Duration = "7y"
    caller_addresses: Literal["off", "shortened", "whole"] = "shortened"
    keep_addresses: Duration = "30d"
