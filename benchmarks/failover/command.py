"""`python -m benchmarks failover`: how a gateway comes through sixteen failures of its provider.

::

    python -m benchmarks failover                                # this gateway, as shipped; 80 seconds
    python -m benchmarks failover --tuned --json tuned.json
    python -m benchmarks failover --provider-port 8401 --base-url http://127.0.0.1:4000/v1 --key sk-…

Another gateway needs the models S01 to S16 with the fallback `healthy` (S14: `strict`), all served by the provider at
`--provider-port`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.failover.litellm import litellm
from benchmarks.failover.provider import Timing, failing_provider
from benchmarks.failover.runs import Row, counts_of, run
from benchmarks.failover.serving import our_gateway
from benchmarks.failover.situations import FAIL, SITUATIONS, Situation
from benchmarks.fault import BenchFault


@click.command()
@click.option("--only", default="", metavar="S01,S05,…", help="Only these situations.")
@click.option("--tuned", is_flag=True, help="With first_token_timeout, and with the prefill of the fallbacks declared.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Of this gateway.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(1, 8), help="Gateways with one store.")
@click.option("--at", default="", metavar="FOLDER", help="The gateway of another checkout.")
@click.option("--litellm", "litellm_program", default="", metavar="PROGRAM", help="LiteLLM's proxy instead.")
@click.option("--base-url", default="", metavar="URL", help="Another gateway, which runs already.")
@click.option("--key", default="", metavar="KEY", help="Its API key.")
@click.option("--provider-port", default=0, metavar="PORT", help="Where the failing provider listens.")
@click.option("--temperature", default=0.0, show_default=True, help="Of the requests; below 0: none is sent.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the verdicts to FILE.")
def failover(
    *,
    only: str,
    tuned: bool,
    workers: int,
    replicas: int,
    at: str,
    litellm_program: str,
    base_url: str,
    key: str,
    provider_port: int,
    temperature: float,
    json_file: Path | None,
) -> None:
    """Judge how a gateway comes through sixteen failures of its provider."""
    chosen = _chosen(only)
    sampling = {} if temperature < 0 else {"temperature": temperature}
    try:
        with failing_provider(Timing(), port=provider_port) as (provider, port):
            if base_url:
                rows = run(chosen, provider, [base_url.rstrip("/")], _headers(key), sampling=sampling)
            else:
                ours = our_gateway(port, tuned=tuned, workers=workers, replicas=replicas, at=at)
                with litellm(litellm_program, port) if litellm_program else ours as servers:
                    urls = [f"http://127.0.0.1:{server.port}/v1" for server in servers]
                    rows = run(chosen, provider, urls, servers[0].headers, sampling=sampling)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    tables = Console(width=None if sys.stdout.isatty() else 120)
    tables.print(table_of(rows))
    tables.print(", ".join(f"{count} {verdict}" for verdict, count in counts_of(rows).items()), highlight=False)
    sys.exit(1 if any(row.verdict == FAIL for row in rows) else 0)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _chosen(only: str) -> list[Situation]:
    names = [name.strip().upper() for name in only.split(",") if name.strip()]
    unknown = set(names) - {situation.name for situation in SITUATIONS}
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; known: S01 to S16", param_hint="--only")
    return [situation for situation in SITUATIONS if not names or situation.name in names]


def table_of(rows: Sequence[Row]) -> Table:
    """A row for each situation."""
    table = Table(title="sixteen failures of a provider", title_justify="left")
    for column in ("", "the provider", "verdict"):
        table.add_column(column)
    table.add_column("attempts", justify="right")
    table.add_column("s", justify="right")
    table.add_column("reason")
    for row in rows:
        table.add_row(row.name, row.title, row.verdict, str(row.attempts), f"{row.seconds:.1f}", row.reason[:48])
    return table
