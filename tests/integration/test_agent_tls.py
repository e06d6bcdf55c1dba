# SPDX-License-Identifier: Apache-2.0
"""The agents' session over TLS: real agents and a real controller, right papers, wrong ones and none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_rig import (
    PATIENCE_S,
    ROOT,
    AgentProcess,
    command,
    config_text,
    environment,
    eventually,
    start_agent,
    status,
)

from topo.generate import leaf_spine
from topo.jsonio import topology_to_json

__all__ = ["start_agent"]

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")

TOPOLOGY = leaf_spine(2, 1, 2, host_bps=10**8, fabric_bps=10**8)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path, name: str) -> None:
    openssl(
        *("req", "-x509", *KEY, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key"),
        *("-out", folder / f"{name}.pem"),
    )


def certificate(folder: Path, authority_name: str, name: str, alternative: str) -> None:
    (folder / "names").write_text(f"subjectAltName={alternative}\n")
    request, key = folder / f"{name}.csr", folder / f"{name}.key"
    openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    openssl(
        *("x509", "-req", "-in", request, "-CA", folder / f"{authority_name}.pem", "-CAcreateserial"),
        *("-CAkey", folder / f"{authority_name}.key", "-days", "2", "-extfile", folder / "names"),
        *("-out", folder / f"{name}.pem"),
    )


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities; certificates of the first for the controller (by another name than its address, too)
    and for two hosts."""
    folder = tmp_path_factory.mktemp("papers")
    authority(folder, "root")
    authority(folder, "stranger")
    certificate(folder, "root", "controller", "IP:127.0.0.1,DNS:polyrhythm.example")
    certificate(folder, "root", "h1", "DNS:h1")
    certificate(folder, "root", "someone", "DNS:h2")
    return folder


class Controller:
    """A controller whose switches nobody serves: agents are all it has."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        description = {
            "name": "tls",
            "clock": "host",
            "control_delay_ns": 0,
            "topology": topology_to_json(TOPOLOGY),
            "switches": {
                s.name: {"address": f"unix:{folder}/{s.name}.sock", "device_id": s.device_id}
                for s in TOPOLOGY.switches
            },
            "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
        }
        (folder / "fabric.json").write_text(json.dumps(description))
        self.log = folder / "controller.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polyrhythm", "controller", f"--fabric={folder}/fabric.json", *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment(),
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.address = json.loads(line)["agents"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(scope="module")
def controller(papers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    made = Controller(
        tmp_path_factory.mktemp("controller"),
        f"--agents-cert={papers}/controller.pem", f"--agents-key={papers}/controller.key",
        f"--agents-client-ca={papers}/root.pem",
    )  # fmt: skip
    yield made
    made.stop()


def agent_text(controller: Controller, path: Path, tls: str, host: str = "h1") -> str:
    hosts = {h.name: h.ip for h in TOPOLOGY.hosts}
    return config_text(
        host, hosts[host], controller=controller.address, agent=f'socket = "{path}"\n{tls}',
        nic='driver = "none"',
    )  # fmt: skip


def tls(papers: Path, ca: str = "root", own: str = "", more: str = "") -> str:
    shown = f'cert = "{papers}/{own}.pem"\nkey = "{papers}/{own}.key"\n' if own else ""
    return f'[tls]\nca = "{papers}/{ca}.pem"\n{shown}{more}'


def test_an_agent_with_the_right_papers_has_a_session(
    papers: Path, controller: Controller, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    socket = tmp_path / "agent.sock"
    name = 'server_name = "polyrhythm.example"\n'
    start_agent(agent_text(controller, socket, tls(papers, own="h1", more=name)))
    eventually(lambda: status(str(socket))["connected"], "a session")
    # An alternative name counts as the common one does.
    socket = tmp_path / "second.sock"
    start_agent(agent_text(controller, socket, tls(papers, own="someone"), host="h2"))
    eventually(lambda: status(str(socket))["connected"], "a session by alternative name")


@pytest.mark.parametrize(
    ("own", "ca", "agent_says"),
    [
        ("someone", "root", "the agent's certificate names h2, someone, not host h1"),
        ("h1", "stranger", "CERTIFICATE_VERIFY_FAILED"),
        ("", "root", "no session with 127.0.0.1:"),
        (None, "", "no session with 127.0.0.1:"),
    ],
    ids=["another host's certificate", "another authority", "no certificate", "in the clear"],
)
def test_an_agent_with_wrong_papers_is_told_and_kept_out(
    own: str | None, ca: str, agent_says: str, papers: Path, controller: Controller,
    start_agent: Callable[..., AgentProcess], tmp_path: Path,
) -> None:  # fmt: skip
    socket = tmp_path / "agent.sock"
    text = agent_text(controller, socket, "" if own is None else tls(papers, ca, own))
    agent = start_agent(text)
    eventually(lambda: agent.says(agent_says), "the reason in the agent's log")
    assert not status(str(socket))["connected"]
    assert controller.process.poll() is None


def test_renewed_papers_are_used_without_a_restart(
    papers: Path, controller: Controller, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    own = tmp_path / "papers"
    own.mkdir()
    for kind in ("pem", "key"):
        shutil.copy(papers / f"stranger.{kind}", own / f"h1.{kind}")
    shutil.copy(papers / "root.pem", own / "root.pem")
    socket = tmp_path / "agent.sock"
    agent = start_agent(agent_text(controller, socket, tls(own, own="h1")))
    eventually(lambda: agent.says("no session with"), "the refusal in the agent's log")
    for kind in ("pem", "key"):
        shutil.copy(papers / f"h1.{kind}", own / f"h1.{kind}")
    eventually(lambda: status(str(socket))["connected"], "a session with the new certificate")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('cert = "{0}/h1.pem"', "tls.cert: means nothing without ca"),
        (
            'ca = "{0}/root.pem"\ncert = "{0}/h1.pem"',
            "tls: one of cert and key is missing; legal: both or none",
        ),
        ('ca = "{0}/none.pem"', "tls.ca: {0}/none.pem: No such file or directory"),
        ('ca = "{0}/h1.key"', "tls.ca: {0}/h1.key: not a certificate in PEM"),
        (
            'ca = "{0}/root.pem"\ncert = "{0}/h1.pem"\nkey = "{0}/someone.key"',
            "tls.cert: {0}/h1.pem, {0}/someone.key: the key does not belong to the certificate",
        ),
        (
            'ca = "{0}/root.pem"\ncert = "{0}/names"\nkey = "{0}/h1.key"',
            "tls.cert: {0}/names, {0}/h1.key: not a certificate and its key in PEM",
        ),
        (
            'ca = "{0}/root.pem"\ncrt = "x"',
            "tls.crt: unknown key (is cert meant?); legal: ca, cert, key, server_name",
        ),
    ],
)
def test_papers_that_cannot_be_used_are_refused_in_one_line(
    text: str, complaint: str, papers: Path, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h1", "10.0.0.1", agent=f"[tls]\n{text.format(papers)}"))
    for action in (["check"], []):
        done = command(*action, "--config", str(file))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        start, line, rest = done.stderr.removeprefix("polyrhythm agent: ").split(":", 2)
        assert (start, line.isdecimal()) == (str(file), True)
        assert rest.removeprefix(" ").startswith(complaint.format(papers))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--agents-cert={0}/controller.pem",), "give --agents-cert and --agents-key together"),
        (("--agents-client-ca={0}/root.pem",), "--agents-client-ca needs both"),
        (
            ("--agents-cert={0}/controller.pem", "--agents-key={0}/h1.key"),
            "the key does not belong to the certificate",
        ),
        (
            ("--agents-cert={0}/none.pem", "--agents-key={0}/h1.key"),
            "--agents-cert: {0}/none.pem: No such file",
        ),
    ],
)
def test_the_controllers_own_papers_are_checked_before_it_serves(
    options: tuple[str, ...], complaint: str, papers: Path, controller: Controller
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "controller", f"--fabric={controller.log.parent}/fabric.json"]
        + [option.format(papers) for option in options],
        capture_output=True, text=True, cwd=ROOT, env=environment(), check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint.format(papers) in done.stderr
