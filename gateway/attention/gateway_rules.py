"""What needs an operator at the gateway itself: store, database, journals, reloads, processes, tokens, audits."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.admin.machines import differ
from gateway.attention.finding import Finding, Observed, Severity, counted, listed

HOME = "/site"
SETTLED_WITHIN = 60.0  # seconds that a settlement may wait for the store
NEARLY_FULL = 0.9  # of a limit
NEARLY = {
    "connections_v1": ("connections of clients", "gatewaycapacitynearlyused"),
    "body_bytes": ("the memory for request bodies", "gatewaycapacitynearlyused"),
    "upload_bytes": ("the disk space for uploads", "gatewaycapacitynearlyused"),
    "worker_bytes": ("the memory of workers", "gatewayrefusesforload"),
    "store_bytes": ("the memory of the store", "gatewaycapacitynearlyused"),
    "data_dir_bytes": ("the disk of data_dir", "gatewaydiskfills"),
}


def store(observed: Observed) -> Iterator[Finding]:
    """The store cannot be used."""
    away = [machine.name for machine in observed.machines if not machine.state.store_up]
    if not observed.store_answers or away:
        where = f" from {listed(away)}" if len(observed.machines) > 1 and away else ""
        text = f"The store cannot be used{where}: calls get 503."
        yield Finding("store", "fault", text, HOME, "gatewaystoreunreachable", after=10.0)


def database(observed: Observed) -> Iterator[Finding]:
    """The database cannot be used, or lacks lines."""
    importers = [machine for machine in observed.machines if not machine.state.database_up]
    if not observed.database_answers or importers:
        text = "The database cannot be used: calls are served, and the history and most pages are not up to date."
        yield Finding("database", "fault", text, HOME, "gatewaydatabaseunreachable", after=10.0)
    lag = max((machine.state.importer_lag for machine in observed.machines), default=0.0)
    if lag >= observed.settings.notify.importer_behind:
        lines = max(machine.state.importer_lines for machine in observed.machines)
        text = (
            f"The database is {int(lag // 60)} minutes behind, at least {counted(lines, 'line')}: figures are too low."
        )
        yield Finding("importer", "fault", text, HOME, "gatewayimporterbehind")
    if blocked := sum(machine.state.importer_blocked for machine in observed.machines):
        text = f"The lines of {counted(blocked, 'account')} cannot be imported; the log says why."
        yield Finding("blocked", "fault", text, "/site/audit", "gatewayimporterblocked")


def settlements(observed: Observed) -> Iterator[Finding]:
    """Calls that are not charged yet, or cannot be."""
    for machine in observed.machines:
        state, where = machine.state, observed.named(machine)
        if state.journal_age >= SETTLED_WITHIN:
            waiting = counted(state.journal_records, "settlement")
            text = f"{waiting}{where} have waited {int(state.journal_age)} s for the store: calls are not charged yet."
            yield Finding(f"journal:{machine.name}", "fault", text, HOME, "gatewaysettlementswait")
        if state.refused_settlements:
            text = (
                f"The store refused {counted(state.refused_settlements, 'settlement')}{where}: calls are not charged."
            )
            yield Finding(f"refused:{machine.name}", "fault", text, HOME, "gatewaysettlementsrefused")


def accounts(observed: Observed) -> Iterator[Finding]:
    """Accounts that owe more than they may."""
    if below := max((machine.state.below_floor for machine in observed.machines), default=0):
        verb = "owes" if below == 1 else "owe"
        text = f"{counted(below, 'account')} {verb} more than the credit line."
        yield Finding("below_floor", "notice", text, "/site/accounts", "gatewayaccountbelowfloor")


def configuration(observed: Observed) -> Iterator[Finding]:
    """A reload that is not in use, and machines that differ."""
    for machine in observed.machines:
        if problem := machine.state.reload_problem:
            where = observed.named(machine)
            text = f"The last reload{where} was refused, and the old configuration stays: {problem.rstrip('.')}."
            id_ = f"reload:{machine.name}:{int(machine.state.reload_at)}"
            yield Finding(id_, "fault", text, "/site/configuration", "gatewayreloadfailed")
    if differ(observed.machines):
        text = "Machines run different configurations, so the same call may cost another amount on each."
        yield Finding("differ", "fault", text, "/site/configuration", "gatewayconfigurationsdiffer")


def processes(observed: Observed) -> Iterator[Finding]:
    """Workers that do not serve."""
    for machine in observed.machines:
        state = machine.state
        if state.reports and state.workers < state.workers_wanted:
            serve = "serves" if state.workers == 1 else "serve"
            text = f"{state.workers} of {counted(state.workers_wanted, 'worker')}{observed.named(machine)} {serve}."
            severity: Severity = "notice" if state.workers else "fault"
            yield Finding(f"workers:{machine.name}", severity, text, HOME, "gatewayprocessesrestart", after=30.0)


def capacity(observed: Observed) -> Iterator[Finding]:
    """Limits that are nearly reached."""
    for machine in observed.machines:
        for one in machine.state.resources:
            if one.name in NEARLY and one.limit and one.used >= NEARLY_FULL * one.limit:
                what, section = NEARLY[one.name]
                text = f"{one.used / one.limit:.0%} of {what}{observed.named(machine)} is in use."
                id_ = f"capacity:{one.name}:{machine.name}"
                yield Finding(id_, "notice", text, HOME, section, after=60.0)


def tokens(observed: Observed) -> Iterator[Finding]:
    """Admin tokens that end soon."""
    if observed.tokens:
        names = listed(one.name for one in observed.tokens)
        verb = "ends" if len(observed.tokens) == 1 else "end"
        text = f"{counted(len(observed.tokens), 'admin token')} {verb} within 7 days: {names}."
        id_ = f"tokens:{int(min(one.at for one in observed.tokens))}"
        yield Finding(id_, "notice", text, "/site/audit-trail?object=token", "an-admin-token-that-ends")


def audits(observed: Observed) -> Iterator[Finding]:
    """What the last audits have found, and lines that the store has lost."""
    if found := sum(one.mismatches for one in observed.audits):
        last = max(one.at for one in observed.audits)
        whose = listed(one.account for one in observed.audits if one.account)
        text = f"The last audit{f' of {whose}' if whose else ''} has {counted(found, 'finding')}."
        yield Finding(f"audit:{int(last)}", "fault", text, "/site/audit", "an-audit-with-findings")
    if observed.superseded:
        verb = "is" if observed.superseded == 1 else "are"
        text = (
            f"{counted(observed.superseded, 'line')} of the ledger {verb} lost in the store: book or acknowledge them."
        )
        yield Finding("superseded", "fault", text, "/site/superseded", "gatewayimporterblocked")
