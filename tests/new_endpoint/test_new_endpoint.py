"""A new endpoint takes few files: `echo.patch` adds `POST /v1/echo` to a copy of the tree, and the copy serves it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.polling import ENDS_WITHIN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATCH = Path(__file__).with_name("echo.patch")
MOST_FILES = 3

CONFIG = """
[providers.fake]
plugin = "fake"

[models.parrot]
provider = "fake"
endpoints = ["echo"]
price = { input = 1.0, output = 2.0 }

[groups.default]
"""

# Runs in the copy: two requests, the receipt of the first, and the audit.
CALLS = """
import json, sys, urllib.error, urllib.request
from click.testing import CliRunner
import gateway
from gateway.cli import cli
from gateway.testing import running_gateway
from tests.polling import until_blocking

def call(path, body=None):
    headers = {"Authorization": f"Bearer {up.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(up.base_url + path, body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer), answer.headers["x-request-id"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers["x-request-id"]

with running_gateway(sys.argv[1]) as up:
    status, answer, request_id = call("/echo", {"model": "parrot", "input": "five grey herons"})
    refused = call("/echo", {"model": "parrot", "input": 5})[:2]
    until_blocking(lambda: call("/usage/" + request_id)[0] == 200)
    receipt = call("/usage/" + request_id)
    audit = CliRunner().invoke(cli, ["audit", "--config", str(up.config)])
print(json.dumps({"package": gateway.__file__, "status": status, "answer": answer, "refused": refused,
                  "receipt": receipt[1], "audit": audit.exit_code}))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the gateway and its providers with the patch applied."""
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gateway", tmp_path / "gateway", ignore=skipped)
    shutil.copytree(ROOT / "providers", tmp_path / "providers", ignore=skipped)
    (tmp_path / "gateway_providers").symlink_to("providers")
    # Within a repository, git would take the paths of the patch for the repository's own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(
        ["git", "apply", str(PATCH)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"echo.patch does not fit the tree:\n{done.stderr}"
    return tmp_path


def test_patch_touches_few_files() -> None:
    touched = re.findall(r"^diff --git a/(\S+) ", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    assert touched[0] == "gateway/api/endpoints/echo.py"
    assert len(touched) <= MOST_FILES, touched


def test_patched_gateway_serves_holds_and_settles_the_new_endpoint(tree: Path) -> None:
    # Many processes are started in the copy: the first of them writes the bytecode for the others.
    path = os.pathsep.join((str(tree), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, CONFIG],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert seen["package"].startswith(str(tree))
    assert (seen["status"], seen["answer"]) == (
        200,
        {"object": "echo", "model": "parrot", "text": "You said: five grey herons"},
    )
    assert seen["refused"][0] == 400 and seen["refused"][1]["error"]["param"] == "input"
    assert seen["receipt"]["outcome"] == "ok" and float(seen["receipt"]["cost"]) > 0
    assert seen["audit"] == 0
