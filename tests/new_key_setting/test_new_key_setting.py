"""A new setting of keys takes few files: `leave.patch` adds one to a copy of the tree, where all parts know it."""

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
PATCH = Path(__file__).with_name("leave.patch")
MOST_FILES = 6

CONFIG = """
[providers.fake]
plugin = "fake"

[models.fake-chat]
provider = "fake"
price = { input = 1.0, output = 2.0 }

[groups.default]
"""

# Runs in the copy: a key with the setting calls a model, and the setting is edited by each way that there is.
CALLS = """
import json, sys, urllib.error, urllib.request
from pathlib import Path
from click.testing import CliRunner
import gateway
from gateway.accounts.key_settings import KEY_SETTINGS
from gateway.admin_api.openapi import openapi_document
from gateway.admin_api.table import ROUTES
from gateway.cli import cli
from gateway.config.loader import load
from gateway.console.choices import models_to_choose
from gateway.console.rendering import render
from gateway.testing import running_gateway

def call(key):
    body = json.dumps({"model": "fake-chat", "messages": [{"role": "user", "content": "Hi"}]}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(up.base_url + "/chat/completions", body, headers)) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]

def run(*words):
    done = CliRunner().invoke(cli, [*words, "--json", "--config", str(up.config)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)

with running_gateway(sys.argv[1]) as up:
    account = run("accounts", "list")[0]
    made = run("keys", "create", account["name"], "--name", "careful", "--leave", account["balance"])
    refused, [shown] = call(made["key"]), [key for key in run("keys", "list") if key["id"] == made["id"]]
    rotated = run("keys", "rotate", made["id"], "--overlap", "1h")
    still_refused = call(rotated["key"])
    cleared = run("keys", "edit", rotated["id"], "--clear", "leave")
    served = call(rotated["key"])
    table = Path(sys.argv[2]) / "keys.csv"
    table.write_text(f"account,name,leave\\n{account['name']},careful,0.5\\n")
    imported = run("import", "keys", str(table))
    after_import = run("keys", "show", rotated["id"])["leave"]
    audit = CliRunner().invoke(cli, ["audit", "--config", str(up.config)])
    settings = load(up.config)
fields = {setting.name: "" for setting in KEY_SETTINGS} | {"models": [], "endpoints": []}
values = {"fields": fields, "settings": KEY_SETTINGS, "models": models_to_choose([]), "endpoints": []}
form = render("_key_limits.html", settings, values).decode()
schemas = json.loads(openapi_document(ROUTES))["components"]["schemas"]
print(json.dumps({"package": gateway.__file__, "refused": refused, "shown": shown["leave"],
                  "balance": account["balance"],
                  "still_refused": still_refused, "cleared": cleared["leave"], "served": served, "imported": imported,
                  "after_import": after_import, "audit": audit.exit_code, "form": 'name="leave"' in form,
                  "schemas": sorted(name for name, one in schemas.items() if "leave" in one.get("properties", {}))}))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the gateway, its providers and its documentation with the patch applied."""
    for name in ("gateway", "providers", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "gateway_providers").symlink_to("providers")
    # Within a repository, git would take the paths of the patch for the repository's own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(
        ["git", "apply", str(PATCH)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"leave.patch does not fit the tree:\n{done.stderr}"
    return tmp_path


def test_patch_touches_few_files() -> None:
    touched = re.findall(r"^diff --git a/(\S+) ", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    assert "gateway/accounts/key_settings.py" in touched
    assert len(touched) <= MOST_FILES, touched


def test_patched_gateway_applies_shows_edits_and_imports_the_new_setting(tree: Path, tmp_path: Path) -> None:
    # Many processes are started in the copy: the first of them writes the bytecode for the others.
    path = os.pathsep.join((str(tree), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, CONFIG, str(tmp_path)],
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
    assert seen["refused"][0] == seen["still_refused"][0] == 429 and seen["shown"] == seen["balance"]
    assert seen["cleared"] is None and seen["served"] == [200, ""]
    assert seen["after_import"] == "0.5"
    assert seen["form"]
    assert seen["schemas"] == ["Key", "KeyChanges", "gateway.admin_api.resources.keys.NewKey"]
    assert seen["audit"] == 0
