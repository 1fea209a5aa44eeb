"""Each claim of the pages has a test that holds it, and each mark of a test is that of a claim: see tests/claims.py."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.claims import (
    CLAIM,
    PAGE,
    ROOT,
    all_claims,
    all_marks,
    blocks,
    claims_of,
    marks_of,
    page,
    page_files,
    sections,
)

#: Pages whose every section has a claim, unless it says how to do something, or what is not covered.
WITHOUT_CLAIMS: dict[str, set[str]] = {
    "README.md": {"Run it", "Test it", "More"},
    "docs/operations.md": {"Operations"},
    "docs/operations/audit.md": {"Audit of the ledger"},
    "docs/operations/batches.md": set(),
    "docs/operations/backup.md": {"A drill on another machine"},
    "docs/operations/fleet.md": {"A fleet with faults", "The fleet", "Results", "What failed", "Run it"},
    "docs/operations/history.md": set(),
    "docs/operations/image.md": {"Image and compose"},
    "docs/operations/kubernetes.md": set(),
    "docs/operations/log.md": {"The log"},
    "docs/operations/machines.md": {"Add a machine", "Remove a machine"},
    "docs/operations/models.md": {"Models that providers list", "Why a model is not served"},
    "docs/operations/network.md": {"Proxies, bodies and connections"},
    "docs/operations/processes.md": set(),
    "docs/operations/proxies.md": {"Traefik and answers that begin at once"},
    "docs/operations/redis.md": {"The store", "Move from the embedded store"},
    "docs/operations/start.md": {"Start, stop and reload", "Under systemd"},
    "docs/operations/telemetry.md": {"Traces and metrics by OTLP"},
    "docs/operations/tls.md": {"TLS"},
    "docs/operations/upgrade.md": {"Upgrade", "Rolling restart", "systemd", "nginx", "HAProxy", "An orchestrator"},
    "docs/operations/year.md": {
        "A year with the gateway",
        "First week",
        "Before others depend on it",
        "Each day and each week",
        "Month end",
        "Secrets",
        "Restarts and upgrades",
        "What fails",
        "The end of something",
        "What was tried",
    },
    "docs/prices.md": set(),
    "docs/scaling.md": {"Growth of an installation", "A large site", "Before and after", "Not included"},
    "docs/security.md": {"What is promised"},
}
#: Sections about money of docs/operations/; docs/prices.md has no others.
MONEY = {
    "docs/operations/processes.md": {"What happens when a process ends"},
    "docs/operations/redis.md": {"Durability of commands", "Redis for production"},
    "docs/operations/audit.md": {"Audit", "Late and uncollected"},
}
NUMBER = r"\d|\b(two|three|four|five|six|eight|ten|twenty|half|quarter|fifths|tenth|twice|once)\b"
FIGURE = re.compile(NUMBER, re.IGNORECASE)


def sections_of(path: str) -> list[tuple[str, str]]:
    """The sections of a page."""
    return sections((ROOT / path).read_text(encoding="utf-8"))


def has_figure(block: str) -> bool:
    """Whether a block says a number, apart from names and values in code and from the addresses of links."""
    said = re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", block, flags=re.DOTALL)
    return FIGURE.search(said) is not None


def faults_of_figures(section: str) -> list[str]:
    """The blocks with a figure and without a claim."""
    return [block for block in blocks(section) if has_figure(block) and not CLAIM.search(block)]


def test_each_claim_has_a_test_that_must_pass() -> None:
    held = {mark.claim for mark in all_marks()[0]}
    assert len(held) > 400
    assert [claim.name for claim in all_claims() if claim.name not in held] == []
    assert [mark for mark in all_marks()[0] if not mark.passes] == []  # skipped or expected to fail


def test_each_mark_is_that_of_a_test_and_names_a_claim() -> None:
    names = {claim.name for claim in all_claims()}
    marks, faults = all_marks()
    assert faults == []
    assert [mark for mark in marks if mark.claim not in names] == []
    assert [mark for mark, count in Counter(marks).items() if count > 1] == []


def test_each_claim_is_well_formed_and_the_only_one_of_its_name() -> None:
    assert [name for name, count in Counter(claim.name for claim in all_claims()).items() if count > 1] == []
    written = sum(len(re.findall(r"<!--\s*claim", path.read_text(encoding="utf-8"))) for path in page_files())
    assert written == len(all_claims())  # none is misspelt or in a block of code


def test_page_equals_the_one_made_from_pages_and_marks() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.claims"


def test_pages_name_no_tests() -> None:
    assert [path.name for path in page_files() if ".py::test_" in path.read_text(encoding="utf-8")] == []


def test_each_page_for_operators_is_named() -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "operations").glob("*.md")}
    assert pages < WITHOUT_CLAIMS.keys()


@pytest.mark.parametrize("path", WITHOUT_CLAIMS)
def test_every_section_with_claims_has_one_with_a_name(path: str) -> None:
    without = {title for title, text in sections_of(path) if not CLAIM.search(text)}
    assert without == WITHOUT_CLAIMS[path]


def test_every_figure_in_a_section_about_money_has_a_claim() -> None:
    texts = [text for _, text in sections_of("docs/prices.md")]
    for path, titles in MONEY.items():
        found = dict(sections_of(path))
        assert found.keys() >= titles
        texts += [found[title] for title in titles]
    assert sum(map(has_figure, (block for text in texts for block in blocks(text)))) > 50
    assert [fault for text in texts for fault in faults_of_figures(text)] == []


def test_missing_claims_are_found() -> None:
    items = "- `8` of it\n- eight of it\n  <!-- claim: a-2 -->\n- 60 seconds"
    table = "| a |\n|---|\n| 1 |\n| 2 | 3 <!-- claim: a-3 --> |"
    text = f"# A\n\nAt most [8](api.md).\n<!-- claim: a-1 -->\n\n{items}\n\n{table}\n"
    [(_, section)] = sections(text)
    assert faults_of_figures(section) == ["- 60 seconds", "| 1 |"]
    assert [tuple(claim) for claim in claims_of("api.md", text)] == [
        ("api.md#a-1", "A", "At most 8."),
        ("api.md#a-2", "A", "eight of it"),
        ("api.md#a-3", "A", "2 – 3"),
    ]


def test_marks_are_read_of_functions_classes_and_modules() -> None:
    mark = "pytest.mark.holds"
    source = f"""
pytestmark = [pytest.mark.clients, {mark}("api.md#a-1")]

@{mark}("api.md#a-2", "api.md#a-3")
@pytest.mark.parametrize("n", [1, 2])
def test_one(n): ...

@{mark}("api.md#a-4")
class TestAll:
    @pytest.mark.skip
    async def test_two(self): ...

@{mark}(NAME)
def test_three(): ...

@{mark}("api.md#a-5")
def helper(): ...
"""
    marks, faults = marks_of("t.py", source)
    assert [(mark.test, mark.claim, mark.passes) for mark in marks] == [
        ("test_one", "api.md#a-1", True),
        ("test_one", "api.md#a-2", True),
        ("test_one", "api.md#a-3", True),
        ("TestAll::test_two", "api.md#a-1", False),
        ("TestAll::test_two", "api.md#a-4", False),
        ("test_three", "api.md#a-1", True),
    ]
    assert faults == ["t.py:13", "t.py:16"]
