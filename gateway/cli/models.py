"""`gateway models`: what the configuration serves, from where, to whom, at which price."""

from __future__ import annotations

import time

import click

from gateway.admin.models import health_forms, model_form
from gateway.amounts import NANO
from gateway.billing.price_terms import LIST_PRICES, OwnPrice, PriceTerms
from gateway.cli.configuration import configured
from gateway.cli.output import print_json, print_rows, print_table
from gateway.cli.session import Session, run
from gateway.config.settings import Settings
from gateway.ledger.account_terms import parse_own_price
from gateway.routing.circuit_sync import read_circuit_events

COLUMNS = ("id", "endpoints", "provider", "model", "groups", "price", "price_version")


HEALTH_COLUMNS = ("model", "provider", "credential", "upstream_model", "state", "cause", "until")


@click.command()
@click.option("--health", "with_health", is_flag=True, help="The state of every target in the running gateway.")
@click.option("--account", metavar="NAME", help="The prices that this account pays.")
@configured
def command(settings: Settings, with_health: bool, account: str | None, as_json: bool) -> None:
    """What is served."""
    if with_health and account is not None:
        raise click.UsageError("--health and --account exclude each other")
    if with_health:
        _print_health(settings, as_json)
        return
    terms = run(settings, lambda session: _terms(session, account)) if account is not None else LIST_PRICES
    records = [model_form(name, model, terms.of(name)) for name, model in sorted(settings.models.items())]
    if as_json:
        print_json(records)
        return
    print_table(
        COLUMNS,
        (
            {
                **record,
                "provider": [target["provider"] for target in record["targets"]],
                "model": [target["model"] for target in record["targets"]],
                "price": record["price"] or "free",
            }
            for record in records
        ),
    )


async def _terms(session: Session, account: str) -> PriceTerms:
    found, settings = await session.accounts.show(account), session.settings
    group = settings.groups.get(found.group)
    factor = group.price_factor if group is not None else NANO  # as `GroupTable` has it
    own = {model: parse_own_price(form) for model, form in found.prices.items()}
    return PriceTerms(listed=OwnPrice(factor), own=own)


def _print_health(settings: Settings, as_json: bool) -> None:
    events = run(settings, lambda session: read_circuit_events(session.store))
    print_rows(HEALTH_COLUMNS, health_forms(settings, events, time.time()), as_json=as_json)
