"""The Helm chart makes manifests that Kubernetes accepts, with the promises of docs/operations/kubernetes.md."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.config.loader import parse
from tests.chart import CHART, HEAD, PLAIN, helm, run, template

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
[EXAMPLE] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
ALL: dict[str, Any] = {
    **EXAMPLE,
    "autoscaling": {"enabled": True, "inFlight": 200},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "secretFiles": ["certificates"],
    "environment": [{"name": "TZ", "value": "UTC"}],
    "image": {"repository": "registry.example.com/model-gateway", "pullSecrets": ["registry"]},
    "serviceAccount": {"annotations": {"example.com/role": "gateway"}},
    "podLabels": {"team": "models"},
    "podAnnotations": {"example.com/note": "x"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "models", "operator": "Exists"}],
    "networkPolicy": {"from": [{"namespaceSelector": {}}]},
    "persistence": {"storageClass": "fast", "annotations": {"example.com/backup": "no"}},
}
needs_helm = pytest.mark.skipif(helm() is None, reason="helm is not installed; tox -e chart has it")


def manifests(values: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """The manifests by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(template(values)) if one}


def pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    """The specification of a pod."""
    found: dict[str, Any] = manifests(values)["StatefulSet/gateway-model-gateway"]["spec"]["template"]["spec"]
    return found


def plain_pod() -> dict[str, Any]:
    """The specification of a pod in the plain manifests."""
    [found] = [one for one in yaml.safe_load_all(PLAIN.read_text(encoding="utf-8")) if one["kind"] == "StatefulSet"]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def test_schema_describes_each_value() -> None:
    def compare(values: dict[str, Any], schema: dict[str, Any], at: str) -> None:
        described = set(schema["properties"]) - {"global"}
        assert set(values) == described, at
        for name, value in values.items():
            if isinstance(value, dict) and "properties" in schema["properties"][name]:
                compare(value, schema["properties"][name], f"{at}.{name}")

    compare(VALUES, SCHEMA, "")
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize(
    "wrong", [{"replica": 3}, {"replicas": 0}, {"ingress": {"enabled": True}}, {"persistence": {"size": "much"}}]
)
def test_schema_refuses_wrong_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


@pytest.mark.holds("operations/kubernetes.md#kubernetes-1")
@pytest.mark.parametrize("values", [VALUES, EXAMPLE], ids=["default", "example"])
def test_configuration_is_valid(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r'"env:(\w+)"', values["config"]):
        monkeypatch.setenv(
            name, "redis://x:1" if name == "STORE_URL" else "postgresql://x" if "URL" in name else "x" * 64
        )
    settings = parse(tomllib.loads(values["config"], parse_float=Decimal))
    assert {settings.server.host, settings.metrics.host, settings.console.host} == {"0.0.0.0"}
    assert (settings.server.port, settings.console.port, settings.metrics.port) == (8080, 8081, 9090)
    assert str(settings.data_dir) == "/var/lib/gateway/data"
    assert settings.server.drain_timeout == VALUES["drainTimeout"]


def test_example_of_the_page_has_the_variables_of_its_secret() -> None:
    assert set(re.findall(r"--from-literal=(\w+)=", PAGE)) == set(re.findall(r'"env:(\w+)"', EXAMPLE["config"]))


@needs_helm
@pytest.mark.parametrize("values", [None, EXAMPLE, ALL], ids=["default", "example", "all"])
def test_helm_accepts_the_chart(values: dict[str, Any] | None) -> None:
    checked = run("lint", "--strict", str(CHART), values=values)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_helm
def test_plain_manifests_are_those_of_the_chart() -> None:
    assert PLAIN.read_text(encoding="utf-8") == HEAD + template(), "python -m tests.chart writes other ones"


@needs_helm
@pytest.mark.parametrize("missing", ["store", "database"])
@pytest.mark.parametrize("several", [{"replicas": 2}, {"autoscaling": {"enabled": True}}])
def test_several_gateways_without_a_common_store_or_database_are_refused(missing: str, several: dict[str, Any]) -> None:
    config = EXAMPLE["config"].replace(f'url = "env:{missing.upper()}_URL"', "")
    with pytest.raises(RuntimeError, match=rf"set url in \[{missing}\] of config"):
        template({**EXAMPLE, "replicas": 1, **several, "config": config})


@needs_helm
def test_grace_period_is_longer_than_what_a_stop_takes() -> None:
    assert pod()["terminationGracePeriodSeconds"] == 50
    assert pod({"shutdownDelay": 20, "drainTimeout": 600})["terminationGracePeriodSeconds"] == 635


@pytest.mark.holds("operations/kubernetes.md#kubernetes-2")
def test_grace_period_is_the_sum_of_what_a_stop_takes() -> None:
    sum_of_all = VALUES["shutdownDelay"] + VALUES["drainTimeout"] + 15
    assert plain_pod()["terminationGracePeriodSeconds"] == sum_of_all


@pytest.mark.holds("operations/kubernetes.md#kubernetes-3")
def test_pod_has_no_rights() -> None:
    [container] = plain_pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert plain_pod()["securityContext"]["runAsNonRoot"]
    assert plain_pod()["securityContext"]["runAsUser"] == 10001
    assert plain_pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not plain_pod()["automountServiceAccountToken"]


@needs_helm
def test_new_configuration_replaces_the_pods() -> None:
    def checksum(values: dict[str, Any] | None) -> str:
        found = manifests(values)["StatefulSet/gateway-model-gateway"]["spec"]["template"]["metadata"]["annotations"]
        return str(found["checksum/config"])

    assert checksum(None) == checksum({"resources": {}})
    assert checksum(None) != checksum({"config": VALUES["config"] + "\n"})


@needs_helm
@pytest.mark.parametrize("values", [None, EXAMPLE, ALL], ids=["default", "example", "all"])
def test_kubernetes_own_schemas_accept_each_manifest(values: dict[str, Any] | None) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for name, manifest in manifests(values).items():
        if manifest["kind"] != "ServiceMonitor":  # of an operator
            kubernetes_validate.validate(manifest, "1.27", strict=True), name
