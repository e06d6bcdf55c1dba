# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds is right: configuration, units, image, chart, alert rules and dashboard."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_rig import ROOT

from controller.northbound.health import HEALTH_PATHS
from controller.process.config import load_fabric
from controller.wire.metric_table import AGENT_METRICS, CONTROLLER_METRICS
from hostagent.config import load_config
from polyrhythm.cli import main
from topo.generate import leaf_spine
from topo.jsonio import topology_to_json


def test_the_example_configuration_is_taken() -> None:
    config = load_config(ROOT / "deploy" / "agent.toml")
    assert config.nic.driver == "auto"
    assert config.addresses()["h1"] == "10.0.1.1"


def test_the_unit_is_not_root_and_names_its_capabilities() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "polyrhythm-agent.service")
    service = unit["Service"]
    assert service["User"] == "polyrhythm"
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    assert service["RuntimeDirectory"] == "polyrhythm"
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "polyrhythm-agent.service").read_text(encoding="utf-8")
    file = tmp_path / "polyrhythm-agent.service"
    # Its program is not installed here; any that is there stands for it.
    file.write_text(unit.replace("/opt/polyrhythm/bin/polyrhythm", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert str(file.name) not in done.stderr, done.stderr


def test_the_controllers_unit_is_not_root_and_its_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "deploy" / "polyrhythm-controller.service").read_text(encoding="utf-8")
    for line in ("User=polyrhythm", "CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes"):
        assert line in text.splitlines()
    assert options(text) <= controller_options(capsys)


def controller_options(capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit):
        main(["controller", "--help"])
    return set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def options(text: str) -> set[str]:
    """The long options of `polyrhythm controller` in a text."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"^#.*$", "", text, flags=re.M))) - {"--kind"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_controllers_unit(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "polyrhythm-controller.service").read_text(encoding="utf-8")
    file = tmp_path / "polyrhythm-controller.service"
    file.write_text(unit.replace("/opt/polyrhythm/bin/polyrhythm", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert str(file.name) not in done.stderr, done.stderr


def test_the_image_does_not_run_as_root_and_copies_what_there_is() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users
    assert all(user.split(":")[0].isdecimal() and int(user.split(":")[0]) > 0 for user in users)
    assert 'ENTRYPOINT ["polyrhythm"]' in lines
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").split()
    # What the wheel is built from must reach the build.
    assert not {"controller", "hostagent", "polyrhythm", "p4", "dashboard", "pyproject.toml"} & set(ignored)


METRIC = re.compile(r"\bpolyrhythm_\w+")


def known_metrics() -> set[str]:
    found = set()
    for metric in (*CONTROLLER_METRICS, *AGENT_METRICS):
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.name + end for end in ends}
    return found


def test_every_metric_of_the_alert_rules_exists() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(found) > 10
    for rule in found:
        assert set(METRIC.findall(rule["expr"])) <= known_metrics(), rule["alert"]
        assert METRIC.findall(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in found}) == len(found)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)")
def test_prometheus_takes_the_alert_rules() -> None:
    file = ROOT / "deploy" / "prometheus" / "alerts.yaml"
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_of_the_dashboard_exists() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "polyrhythm.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({p["id"] for p in panels}) == len(panels) > 15
    shown = set()
    for panel in panels:
        for target in panel["targets"]:
            names = set(METRIC.findall(target["expr"]))
            assert names, panel["title"]
            assert names <= known_metrics(), panel["title"]
            shown |= names
    # What nobody looks at need not be measured; these are for alerts alone.
    alone = {"polyrhythm_step_running_seconds", "polyrhythm_switch_sessions_lost_total"}
    used = METRIC.findall((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    assert alone <= set(used)


FABRIC_VALUES = {
    "fabric": {
        "name": "x",
        "clock": "host",
        "control_delay_ns": 0,
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 1, "host_gbps": 100,
                     "fabric_gbps": 100},
        "switches": {},
        "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
    }
}  # fmt: skip


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests of the chart, by Helm's own code."""
    helm = pytest.importorskip("helm_python", reason="needs Helm: pip install --group chart")
    chart = ROOT / "deploy" / "helm" / "polyrhythm"
    report = helm.lint(chart, values, strict=True)
    assert report["errors"] == []
    files = helm.Chart.load(chart).render(values, name="fab", namespace="net")
    return [m for text in files.values() for m in yaml.safe_load_all(text) if m]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [m for m in manifests if m["kind"] == kind]
    return found


@pytest.mark.parametrize("secure", [True, False])
def test_the_chart_renders_what_controller_and_agent_take(
    secure: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = leaf_spine(1, 1, 2, host_bps=10**11, fabric_bps=10**11)
    fabric = FABRIC_VALUES["fabric"] | {
        "topology": topology_to_json(topology),
        "switches": {
            s.name: {"address": f"10.255.0.{n}:9559", "device_id": s.device_id}
            for n, s in enumerate(topology.switches, 1)
        },
    }
    nodes = {f"node-{h.name}": {"host": h.name, "ip": h.ip} for h in topology.hosts}
    controller = {"tlsSecret": "t", "tokensSecret": "k"} if secure else {"insecure": True}
    values = {
        "fabric": fabric,
        "controller": {**controller, "extraArgs": ["--poll"]},
        "agent": {"nodes": nodes, "tlsSecret": "a" if secure else ""},
    }
    manifests = rendered(values)
    deployment = of_kind(manifests, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert options(" ".join(container["args"])) <= controller_options(capsys)
    assert ("--insecure" in container["args"]) is not secure
    assert "--poll" in container["args"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert get["path"] in HEALTH_PATHS
        assert get["scheme"] == ("HTTPS" if secure else "HTTP")
    # Every mounted volume is there.
    daemon = of_kind(manifests, "DaemonSet")
    for spec in (pod, daemon["spec"]["template"]["spec"]):
        names = {v["name"] for v in spec["volumes"]}
        assert {m["name"] for c in spec["containers"] for m in c["volumeMounts"]} == names
    service = of_kind(manifests, "Service")
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert {p["targetPort"] for p in service["spec"]["ports"]} == {p["name"] for p in container["ports"]}
    maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
    file = tmp_path / "fabric.json"
    file.write_text(maps["fab-controller"]["fabric.json"])
    assert load_fabric(file).topology.hosts == topology.hosts
    for node, it in nodes.items():
        file = tmp_path / f"{node}.toml"
        file.write_text(maps["fab-agent"][f"{node}.toml"])
        config = load_config(file)
        assert (config.agent.host, config.agent.ip) == (it["host"], it["ip"])
        assert config.agent.controllers == ("fab-controller.net.svc:9560",)
        assert bool(config.tls.ca) is secure
        assert config.addresses() == {h.name: h.ip for h in topology.hosts}
    agent = daemon["spec"]["template"]["spec"]
    assert agent["hostNetwork"] is True
    assert agent["containers"][0]["securityContext"]["runAsUser"] == 65532


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "fabric"),
        (FABRIC_VALUES, "tlsSecret and tokensSecret"),
        (FABRIC_VALUES | {"controller": {"insecure": True}}, "agent.nodes: missing"),
        (FABRIC_VALUES | {"controller": {"insecure": True, "colour": "red"}}, "colour"),
        (FABRIC_VALUES | {"agent": {"nodes": {"n": {"host": "h1"}}}}, "ip"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], words: str) -> None:
    helm = pytest.importorskip("helm_python", reason="needs Helm: pip install --group chart")
    chart = helm.Chart.load(ROOT / "deploy" / "helm" / "polyrhythm")

    def install() -> None:
        chart.validate_schema(values)
        chart.render(values, name="fab", namespace="net")

    with pytest.raises(helm.HelmError, match=words):
        install()
