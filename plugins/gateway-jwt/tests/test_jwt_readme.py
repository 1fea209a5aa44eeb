"""The configuration of the README, in a running gateway, with an issuer on this machine."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
from joserfc import jwt
from joserfc.jwk import RSAKey

from gateway.testing import Reply, RunningGateway, Seen, background_upstream, running_gateway

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
KEY = RSAKey.generate_key(2048, parameters={"kid": "one", "use": "sig"})
MODELS = """
[providers.fake]
plugin = "fake"

[groups.default]

[models."gpt-5-mini"]
provider = "fake"
model = "fake-chat"
price = { input = 1, output = 1 }

[models.other]
provider = "fake"
model = "fake-chat"
price = { input = 1, output = 1 }

"""
ISSUER: list[str] = []


def issuer(seen: Seen) -> Reply:
    if seen.path.endswith("/.well-known/openid-configuration"):
        return Reply.json({"issuer": ISSUER[0], "jwks_uri": f"{ISSUER[0]}/keys"})
    return Reply.json({"keys": [KEY.as_dict(private=False)]})


def token(**more: object) -> str:
    claims = {"iss": ISSUER[0], "aud": "model-gateway", "sub": "alice", "scope": "openid llm", **more}
    return jwt.encode({"alg": "RS256", "kid": "one"}, {"exp": int(time.time()) + 600, **claims}, KEY)


def status(gateway: RunningGateway, credential: str, model: str = "gpt-5-mini") -> int:
    body = msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{gateway.base_url}/chat/completions", body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def command(gateway: RunningGateway, *words: str) -> str:
    """What a command of the README prints."""
    line = [sys.executable, "-P", "-m", "gateway", *words, "--config", str(gateway.config)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_the_configuration_of_the_readme_serves() -> None:
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    server, hook = toml.split("\n\n", 1)
    with background_upstream(issuer) as url, running_gateway(MODELS) as gateway:
        ISSUER[:] = [f"{url}/realms/main"]
        hook = hook.replace("https://login.example.com/realms/main", ISSUER[0])
        gateway.stop()
        gateway.config.write_text(f"{gateway.config.read_text().replace('[server]', server, 1)}\n{hook}")
        gateway.start()
        assert status(gateway, token()) == 401, "its account does not exist"
        command(gateway, "accounts", "create", "staff", "--balance", "100")

        assert [status(gateway, token(sub=one)) for one in ("bob", "carol", "bob")] == [200, 200, 200]
        assert status(gateway, token(sub="bob"), "other") == 403
        wrong: list[dict[str, object]] = [{"aud": "x"}, {"exp": 1}, {"scope": "openid"}]
        assert [status(gateway, token(sub="bob", **one)) for one in wrong] == [401, 401, 401]
        assert status(gateway, gateway.api_key) == 200, "keys of the gateway are keys as before"

        keys = msgspec.json.decode(command(gateway, "keys", "list", "staff", "--json"))
        by_name = {one["name"]: one["id"] for one in keys}
        assert sorted(by_name) == ["sso: bob", "sso: carol"]
        command(gateway, "keys", "revoke", by_name["sso: bob"])
        assert [status(gateway, token(sub=one)) for one in ("bob", "carol")] == [401, 200]
