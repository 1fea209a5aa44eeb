"""Each condition of the gateway and its providers is one finding, with its page and a section of the runbook."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest

from gateway.admin.machine_state import MachineState, Resource
from gateway.admin.machines import Machine
from gateway.attention.finding import AuditFindings, ExpiringToken, Finding, Observed
from gateway.attention.rules import MOST, findings_of
from gateway.config.loader import parse
from gateway.console.route import PageRouter
from gateway.console.table import ROUTES
from gateway.manual.manual import Manual
from gateway.routing.circuit_sync import CircuitEvent

#: The addresses of its sections.
RUNBOOK = {heading.anchor for heading in page.headings} if (page := Manual(lambda _: "").page("runbook")) else set()
TODAY = date(2026, 11, 30)
SETTINGS = parse(
    {
        "providers": {
            "one": {"plugin": "fake"},
            "two": {"plugin": "fake", "credentials": [{}, {}]},
        },
        "hooks": {"pii": {"plugin": "p"}, "soft": {"plugin": "p", "on_failure": "open"}},
        "models": {
            "m": {"provider": "one", "free": True},
            "n": {"provider": "two", "free": True},
            "old": {"provider": "one", "free": True, "shutdown_date": "2026-12-20"},
            "later": {"provider": "one", "free": True, "shutdown_date": "2027-12-20"},
        },
    }
)


def machine(name: str = "one:8080", hash_: str = "aaa", **state: Any) -> Machine:
    """A machine on which all is well but this."""
    sound = {"reports": True, "workers": 2, "workers_wanted": 2}
    return Machine(name, name, hash_, "1.0", state=MachineState(**(sound | state)))


def event(provider: str, credential: int = 0, model: str = "", cause: str = "failures") -> CircuitEvent:
    """An open circuit."""
    return CircuitEvent("w", provider, credential, model, cause, 60.0, time.time())


def found(**observed: Any) -> list[Finding]:
    """The findings, apart from the model whose end is near."""
    given: dict[str, Any] = {
        "settings": SETTINGS,
        "today": date(2026, 1, 1),
        "machines": [machine()],
        "circuits": [],
    } | observed
    return findings_of(Observed(**given))


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "store": ({"store_answers": False}, "store", "The store cannot be used"),
    "store of a machine": ({"machines": [machine(store_up=False)]}, "store", "The store cannot be used"),
    "database": ({"database_answers": False}, "database", "The database cannot be used"),
    "importer": ({"machines": [machine(importer_lag=900.0, importer_lines=7)]}, "importer", "15 minutes behind"),
    "blocked": ({"machines": [machine(importer_blocked=1)]}, "blocked", "1 account cannot be imported"),
    "journal": (
        {"machines": [machine(journal_age=61.0, journal_records=3)]},
        "journal:one:8080",
        "3 settlements have waited 61 s",
    ),
    "refused": ({"machines": [machine(refused_settlements=1)]}, "refused:one:8080", "refused 1 settlement:"),
    "below floor": ({"machines": [machine(below_floor=2)]}, "below_floor", "2 accounts owe more"),
    "reload": (
        {"machines": [machine(reload_problem="models.m: no price.", reload_at=7.0)]},
        "reload:one:8080:7",
        "the old configuration stays: models.m: no price.",
    ),
    "differ": (
        {"machines": [machine(), machine("two:8080", "bbb")]},
        "differ",
        "Machines run different configurations",
    ),
    "workers": ({"machines": [machine(workers=1)]}, "workers:one:8080", "1 of 2 workers serves."),
    "capacity": (
        {"machines": [machine(resources=(Resource("data_dir_bytes", 95.0, 100.0),))]},
        "capacity:data_dir_bytes:one:8080",
        "95% of the disk of data_dir is in use.",
    ),
    "token": ({"tokens": [ExpiringToken("ci", 100.0)]}, "tokens:100", "1 admin token ends within 7 days: ci."),
    "audit": ({"audits": [AuditFindings("", 2, 5.0)]}, "audit:5", "The last audit has 2 findings."),
    "audit of an account": ({"audits": [AuditFindings("acme", 1, 5.0)]}, "audit:5", "of acme has 1 finding."),
    "superseded": ({"superseded": 1}, "superseded", "1 line of the ledger is lost"),
    "a hook": (
        {"circuits": [event("hooks/pii", -1, cause="plugin")]},
        "hooks:pii",
        "The hook pii is not run, because it keeps failing; calls of its models are refused.",
    ),
    "a hook that may fail": (
        {"circuits": [event("hooks/soft", -1, cause="plugin")]},
        "hooks:soft",
        "calls go on without it.",
    ),
    "the only credential": (
        {"circuits": [event("one", cause="credential")]},
        "credentials:one",
        "The credential of one is not used: it refused the credential",
    ),
    "every credential": (
        {"circuits": [event("two", 0, cause="credential"), event("two", 1, cause="credit")]},
        "credentials:two",
        "Every credential of two is not used",
    ),
    "one credential": (
        {"circuits": [event("two", 1, cause="credit")]},
        "credentials:two",
        "Credential 2 of two is not used, of 2: its prepaid credit is gone",
    ),
    "circuit": (
        {"circuits": [event("one", model="m"), event("one", model="x")]},
        "circuits:one",
        "m, x at one are not called: it keeps failing.",
    ),
    "plugin": (
        {"circuits": [event("one", -1, cause="plugin")]},
        "circuits:one",
        "one is not called: the provider plugin",
    ),
    "models": (
        {"machines": [machine(models_unavailable=("m",)), machine("two:8080", models_unavailable=("m", "n"))]},
        "models",
        "2 models have no target in use: m, n.",
    ),
    "shutdown": ({"today": TODAY}, "shutdown:2026-12-20", "1 model reaches its shutdown date, the first on 2026-12-20"),
}


@pytest.mark.parametrize("name", CASES)
def test_condition_is_one_finding_with_a_page_and_a_section_of_the_runbook(name: str) -> None:
    observed, id_, text = CASES[name]
    [finding] = found(**observed)
    assert finding.id == id_
    assert text in finding.text
    assert PageRouter(ROUTES).search("GET", finding.page.partition("?")[0])
    assert finding.runbook in RUNBOOK


def test_gateway_without_a_fault_has_no_finding() -> None:
    fitting = machine(importer_lag=599.0, journal_age=59.0, resources=(Resource("store_bytes", 89.0, 100.0),))
    unlimited = machine(resources=(Resource("store_bytes", 89.0),), reports=False, workers=0)
    assert found(machines=[fitting]) == []
    assert found(machines=[unlimited]) == []
    assert found(machines=[]) == []
    assert found(circuits=[event("one", cause="limited"), event("gone", cause="credential")]) == []


def test_every_credential_is_a_fault_and_one_of_several_a_notice() -> None:
    [all_, one] = (
        found(circuits=events)[0] for events in ([event("one", cause="credit")], [event("two", cause="credit")])
    )
    assert (all_.severity, one.severity) == ("fault", "notice")
    assert all_.page == "/site/providers/one" and one.page == "/site/providers/two"


def test_circuit_must_be_open_for_five_minutes_and_a_refused_credential_is_found_at_once() -> None:
    [circuit] = found(circuits=[event("one", model="m")])
    [credential] = found(circuits=[event("one", cause="credential")])
    assert (circuit.after, credential.after) == (300.0, 0.0)


def test_machine_is_named_only_if_there_are_several() -> None:
    [alone] = found(machines=[machine(workers=0)])
    [named] = found(machines=[machine(workers=0), machine("two:8080")])
    assert alone.text == "0 of 2 workers serve." and named.text == "0 of 2 workers on one:8080 serve."


def test_faults_are_first_and_the_number_of_findings_is_bounded() -> None:
    machines = [machine(f"m{n}:8080", workers=1, refused_settlements=1) for n in range(MOST)]
    severities = [finding.severity for finding in found(machines=machines)]
    assert len(severities) == MOST
    assert severities == sorted(severities, key=lambda one: one != "fault")
