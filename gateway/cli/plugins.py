"""`gateway plugins`: what is loaded, what it can do, and why something is not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click
import msgspec

from gateway.cli.configuration import configured, json_option
from gateway.cli.output import print_json, print_table
from gateway.plugins import load_plugins

if TYPE_CHECKING:
    from gateway.settings import Settings

COLUMNS = ("name", "version", "source", "providers", "capabilities", "state", "reason")


@click.command()
@json_option
@configured
def command(settings: Settings, as_json: bool) -> None:
    """What is loaded, its capabilities, and why something is not."""
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # the table says why, once
    reports = [msgspec.to_builtins(report) for report in load_plugins(settings.plugins).reports]
    if as_json:
        print_json(reports)
    else:
        print_table(COLUMNS, reports)
