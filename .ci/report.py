"""What `.ci/run` prints of what passed.

`report.py environments FILES` reads the output of tox and prints a line for each environment with its minutes, in
which it was installed and ran. `report.py tests FILE` reads what `tests/run.py` appended to a file, and prints the
slowest tests, the unsteady ones and the totals.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

#: A line of tox's summary: "  py311: OK (44.04=setup[44.03]+cmd[0.01] seconds)".
ENDED = re.compile(r"^  ([\w.-]+): (OK|FAIL|SKIP)\b.*?\((\d+(?:\.\d+)?)\b", re.MULTILINE)
SLOWEST = 20


def environments(outputs: Iterable[str]) -> list[str]:
    """A line for each environment; several outputs with the same one are added."""
    seconds: dict[str, float] = {}
    state: dict[str, str] = {}
    for output in outputs:
        for name, how, time in ENDED.findall(output):
            seconds[name] = seconds.get(name, 0.0) + float(time)
            state[name] = how
    return [
        f"{name:<8} {how:<4} {int(seconds[name]) // 60:>3}:{int(seconds[name]) % 60:02} minutes"
        for name, how in state.items()
    ]


def tests(lines: Iterable[str]) -> list[str]:
    """The slowest tests, then the unsteady ones and the totals of all runs."""
    reports = [json.loads(line) for line in lines]
    slowest = sorted((pair for report in reports for pair in report["slowest"]), reverse=True)[:SLOWEST]
    unsteady = [line for report in reports for line in report["unsteady"]]
    return [
        f"The {len(slowest)} slowest tests, in seconds:",
        *(f"{seconds:>6.1f} {test}" for seconds, test in slowest),
        f"Tests that failed once, and passed twice alone: {len(unsteady)}",
        *unsteady,
        f"{sum(report['passed'] for report in reports)} passed, {sum(report['failed'] for report in reports)} failed, "
        f"{sum(report['skipped'] for report in reports)} skipped",
    ]


def main(kind: str, files: list[str]) -> None:
    """Print one of the two."""
    texts = [Path(file).read_text(encoding="utf-8") for file in files]
    lines = environments(texts) if kind == "environments" else tests("".join(texts).splitlines())
    print(*lines, sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
