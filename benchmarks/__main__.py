"""`python -m benchmarks [SCENARIO…]`: tables on stdout, progress on stderr, everything measured with --json FILE.

Beside it `growth` measures cost as work grows, `installation` pages, routes and commands as an installation grows,
`pairs` compares two contenders closely, `instructions`, `dialects`, `idle-cpu` and `structure` look at one tree,
`targets` judges and `plot` draws what was measured, `costs` and `scale` calculate for larger sites. `hostile` measures
one account while another attacks, `console` calls beside people in the console, `store-memory` the store at a steady
rate of calls, `reload` calls beside a reload, `fairness` the calls of a crowd, `failover` calls whose
provider fails, `realtime` sessions over WebSocket. Each explains itself with --help.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from benchmarks.batches_load import batches
from benchmarks.console.command import console
from benchmarks.contenders import Contender, all_contenders
from benchmarks.cores import available_cores, pinned, share_out
from benchmarks.costs import costs
from benchmarks.dialects.command import dialects
from benchmarks.failover.command import failover
from benchmarks.fairness import fairness
from benchmarks.fault import BenchFault
from benchmarks.growth import growth
from benchmarks.hostile.command import hostile
from benchmarks.idle_cpu import idle_cpu
from benchmarks.importer_load import importer
from benchmarks.installation.command import installation
from benchmarks.instructions.command import instructions
from benchmarks.pairs import pairs
from benchmarks.plot import plot
from benchmarks.realtime.command import realtime
from benchmarks.reload import reload
from benchmarks.report import Report, lines_of, machine, sharing_note, show
from benchmarks.rounds import Plan, Sample, run_scenario
from benchmarks.scale import scale
from benchmarks.scenarios import Scenario, all_scenarios
from benchmarks.start import prepare
from benchmarks.store_memory import store_memory
from benchmarks.structure.command import structure
from benchmarks.targets import targets


@click.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often each contender runs.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.2, 600), help="Measured time.")
@click.option("--warmup", default=2.0, show_default=True, type=click.FloatRange(0.1, 60), help="Load before that.")
@click.option("--contenders", default="", metavar="A,B,…", help="Only these; default: all that are found.")
@click.option("--reference", default="gateway", show_default=True, help="Whom ratios compare with the others.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
@click.option("--at", envvar="BENCH_AT", default="", metavar="FOLDER", help="Another checkout, for gateway-at.")
@click.option("--litellm", envvar="BENCH_LITELLM", default="", metavar="PROGRAM", help="LiteLLM's program.")
@click.option(
    "--portkey", envvar="BENCH_PORTKEY", default="", metavar="FOLDER", help="Folder of Portkey's node_modules."
)
def main(
    scenarios: tuple[str, ...],
    *,
    rounds: int,
    seconds: float,
    warmup: float,
    contenders: str,
    reference: str,
    json_file: Path | None,
    at: str,
    litellm: str,
    portkey: str,
) -> None:
    """Measure the gateway beside its peers: scenarios json, open, streams, idle, workers, halves (default: all).

    Other commands: growth, installation, targets, plot, costs, scale, structure, instructions, dialects, idle-cpu,
    pairs, hostile, console, store-memory, reload, fairness, failover, realtime.
    """
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 200)
    known = all_contenders(at=at, litellm=litellm, portkey=portkey)
    present, absent = _choose(known, contenders)
    chosen = _chosen_scenarios(scenarios)
    if reference not in {contender.name for contender in present}:
        reference = present[0].name
    cores = available_cores()
    plan = Plan(rounds=rounds, seconds=seconds, warmup=warmup, cores=cores, tell=messages.print)
    try:
        prepare()
        samples = _run(chosen, present, plan, messages=messages, tables=tables, reference=reference)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    for name, reason in absent.items():
        tables.print(f"absent: {name} ({reason})", markup=False, highlight=False)
    report = Report(
        machine=machine(),
        settings={"rounds": rounds, "seconds": seconds, "warmup": warmup},
        reference=reference,
        absent=absent,
        lines=[line for scenario in chosen for line in lines_of(scenario, samples, reference=reference)],
        samples=samples,
    )
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    if any(line.faults for line in report.lines if line.contender == reference):
        sys.exit(1)


def _run(
    scenarios: list[Scenario],
    contenders: list[Contender],
    plan: Plan,
    *,
    messages: Console,
    tables: Console,
    reference: str,
) -> list[Sample]:
    samples: list[Sample] = []
    with pinned(share_out(plan.cores, workers=1).load):
        for scenario in scenarios:
            for workers in sorted({point.workers for point in scenario.points}):
                if note := sharing_note(share_out(plan.cores, workers=workers)):
                    messages.print(f"note: {note}", markup=False)
            taken = run_scenario(scenario, contenders, plan)
            show(scenario, lines_of(scenario, taken, reference=reference), tables, reference=reference)
            samples += taken
    return samples


def _choose(known: list[Contender], names: str) -> tuple[list[Contender], dict[str, str]]:
    """Who takes part, and why the others do not."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = set(wanted) - {contender.name for contender in known}
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; known: {', '.join(c.name for c in known)}")
    asked = [contender for contender in known if not wanted or contender.name in wanted]
    absent = {contender.name: reason for contender in asked if (reason := contender.absent())}
    present = [contender for contender in asked if contender.name not in absent]
    if not present:
        raise click.ClickException("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    return present, absent


def _chosen_scenarios(names: tuple[str, ...]) -> list[Scenario]:
    known = all_scenarios()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in names or known]


class Bench(click.Group):
    """Commands by their names; whatever else is said is for the side-by-side bench."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `compare` where no command is named."""
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["compare", *args])


COMMANDS = {
    "compare": main,
    "growth": growth,
    "installation": installation,
    "targets": targets,
    "plot": plot,
    "costs": costs,
    "scale": scale,
    "structure": structure,
    "instructions": instructions,
    "dialects": dialects,
    "idle-cpu": idle_cpu,
    "pairs": pairs,
    "hostile": hostile,
    "console": console,
    "importer": importer,
    "batches": batches,
    "store-memory": store_memory,
    "reload": reload,
    "fairness": fairness,
    "failover": failover,
    "realtime": realtime,
}
bench = Bench("benchmarks", commands=COMMANDS)


if __name__ == "__main__":
    bench()
