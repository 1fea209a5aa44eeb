"""Each rule of conf/alerts.yaml fires when it should, and only then: by promtool, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.alert_cases import CASES, AlertCase, Samples
from tests.docs.test_promql import ALERTS, ROOT

PROMTOOL = shutil.which("promtool")
RULES = {rule["alert"]: rule for rule in ALERTS}

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def test_every_rule_has_samples_with_which_it_fires_and_samples_with_which_it_does_not() -> None:
    assert sorted(case.alert for case in CASES) == sorted(RULES)
    assert all(case.fires and case.quiet and case.fires != case.quiet for case in CASES)


def expected(case: AlertCase) -> dict[str, Any]:
    """The alert that promtool is to find."""
    rule = RULES[case.alert]

    def shown(text: str) -> str:
        return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], text)

    annotations = {name: shown(text) for name, text in rule["annotations"].items()}
    return {"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": annotations}


def group(case: AlertCase, samples: Samples, at: str, alerts: list[dict[str, Any]]) -> dict[str, Any]:
    """One test of promtool."""
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in samples.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": case.alert, "exp_alerts": alerts}],
    }


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_rule_fires_and_does_not_fire(case: AlertCase, tmp_path: Path) -> None:
    assert PROMTOOL is not None
    tests = [group(case, case.fires, case.at, [expected(case)]), group(case, case.quiet, case.quiet_after, [])]
    document = {"rule_files": [str(ROOT / "conf" / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run([PROMTOOL, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_rules_are_valid() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(ROOT / "conf" / "alerts.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
