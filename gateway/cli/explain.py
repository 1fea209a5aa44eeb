"""`gateway explain`: whether a call would be admitted now, and if not, what would change that."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from gateway.accounts.admission_check import Explanation, explain
from gateway.admin.model_names import known_models
from gateway.billing.price_terms import PriceTerms
from gateway.billing.quote import Quote
from gateway.cli.configuration import configured
from gateway.cli.output import note, print_json, print_table
from gateway.cli.session import Session, run
from gateway.cli.values import COUNT
from gateway.config.settings import Settings

ENDPOINTS = ("chat", "embeddings", "images", "speech", "transcription")
COLUMNS = ("rule", "verdict", "state", "change")


@click.command()
@click.argument("key_id")
@click.argument("model")
@click.option("--tokens", type=COUNT, default=1000, show_default=True, metavar="N", help="Tokens of the prompt.")
@click.option("--max-tokens", type=COUNT, metavar="N", help="The request's own limit on the answer.")
@click.option("--images", type=COUNT, default=1, show_default=True, metavar="N", help="Images asked for.")
@click.option(
    "--seconds", type=COUNT, default=60, show_default=True, metavar="N", help="Seconds of a sound to transcribe."
)
@click.option(
    "--endpoint",
    type=click.Choice(ENDPOINTS),
    help="What the model is asked for; by default the first endpoint that it serves.",
)
@click.option("--stream", is_flag=True, help="The answer is a stream, which holds less and asks for more as it goes.")
@configured
@click.pass_context
def command(
    ctx: click.Context,
    settings: Settings,
    /,
    key_id: str,
    model: str,
    endpoint: str | None,
    as_json: bool,
    **size: Any,
) -> None:
    """Say whether a call of KEY_ID to MODEL would be admitted now; exit status 1 if not. Calls and writes nothing."""
    from gateway.api.routes import endpoint_named
    from gateway.catalog import Catalog
    from gateway.inference.endpoint import RequestSize
    from gateway.ledger import Ledger

    (name,) = known_models(settings, [model])
    catalog = Catalog.build(settings)
    served = catalog.models[name]
    asked = endpoint_named(endpoint or served.record.endpoints[0])

    def quote(terms: PriceTerms) -> Quote:
        return asked.quote_size(catalog.priced(served, terms), RequestSize(**size))

    async def work(session: Session) -> Explanation:
        return await explain(
            session.store,
            Ledger(session.store, catalog.groups),
            key_id=key_id,
            quote=quote,
            lowerable=asked.lowerable,
            clamp=asked.clamp,
            endpoint=asked.name,
        )

    explanation = run(settings, work)
    if as_json:
        print_json(explanation)
    else:
        print_table(COLUMNS, msgspec.to_builtins(explanation.rules))
    verdict = "would be admitted" if explanation.admitted else f"would be refused by {explanation.refused_by}"
    hold = f"hold {explanation.hold} for up to {explanation.output} tokens of output"
    note(f"{verdict}: {explanation.tokens} tokens, {hold}")
    ctx.exit(0 if explanation.admitted else 1)
