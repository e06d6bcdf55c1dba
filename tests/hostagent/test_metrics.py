# SPDX-License-Identifier: Apache-2.0
"""The agent's metrics and health over a real socket, beside clients that say nothing."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_rig import AgentProcess, Hub, config_text, eventually, local_socket, welcome_and_pin
from prometheus_client.parser import text_string_to_metric_families

from controller.wire.metric_table import AGENT_METRICS
from hostagent.config import AgentSettings, TlsSettings, metrics_address
from polyrhythm_files import InvalidValueError

Start = Callable[..., AgentProcess]


def scrape(url: str, **options: ssl.SSLContext) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60, **options) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_comes_out_with_the_agents_figures(
    start_agent: Start, hub: tuple[Hub, str], tmp_path: Path
) -> None:
    made, controller = hub
    made.answer = welcome_and_pin
    path = tmp_path / "agent.sock"
    told = f'socket = "{path}"\nmetrics = "127.0.0.1:0"'
    text = config_text("h1", "127.0.0.1", controller=controller, agent=told, nic='driver = "none"')
    agent = start_agent(text)
    url = f"http://127.0.0.1:{agent.ready['metrics']}"
    eventually(lambda: scrape(url)["polyrhythm_agent_connected",] == 1, "connected")
    with local_socket(str(path)) as training:
        training.sendall(b'{"op": "flow", "flow": "x", "src": "h1", "dst": "h1", "bytes": 1}\n')
        eventually(lambda: ("polyrhythm_agent_new_flows_total", "mouse") in scrape(url), "a new flow")
    found = scrape(url)
    assert {m.name for m in AGENT_METRICS} == {n for n, *_ in found if n.startswith("polyrhythm_")}
    assert found["process_open_fds",] > 3
    assert found["polyrhythm_agent_flows", "pinned"] == 0
    with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
        assert answer.read() == b'{"status": "ok"}\n'
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/other", timeout=60)


def test_clients_that_say_nothing_or_too_much_are_cut_off(start_agent: Start) -> None:
    text = config_text("h1", "127.0.0.1", agent='socket = ""\nmetrics = "127.0.0.1:0"', nic='driver = "none"')
    agent = start_agent(text)
    at = ("127.0.0.1", agent.ready["metrics"])
    ended = threading.Event()
    with socket.create_connection(at) as silent, socket.create_connection(at) as endless:

        def drip() -> None:
            try:
                while not ended.wait(0.05):
                    endless.sendall(b"x")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        found = scrape(f"http://127.0.0.1:{at[1]}")
        ended.set()
        thread.join()
        assert silent.recv(100) == b""
    assert found["polyrhythm_agent_connected",] == 0
    assert found["polyrhythm_agent_clock_error_seconds",] == float("inf")
    assert agent.stop() == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_with_a_certificate_it_speaks_https_only(start_agent: Start, tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=h1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    openssl = ["openssl", *make.split(), *names]
    subprocess.run(openssl, check=True, capture_output=True)
    told = 'socket = ""\nmetrics = "0.0.0.0:0"'
    tls = f'[tls]\nca = "{cert}"\ncert = "{cert}"\nkey = "{key}"'
    agent = start_agent(config_text("h1", "127.0.0.1", agent=told, nic='driver = "none"', more=tls))
    at = f"127.0.0.1:{agent.ready['metrics']}"
    with pytest.raises(OSError):  # noqa: PT011 - the connection is reset or closed
        scrape(f"http://{at}")
    context = ssl.create_default_context(cafile=str(cert))
    assert scrape(f"https://{at}", context=context)["polyrhythm_agent_connected",] == 0
    # A certificate that was renewed is used without a restart.
    subprocess.run(openssl, check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(cert))
    assert scrape(f"https://{at}", context=context)["polyrhythm_agent_connected",] == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0.0.0.0:9561", "other hosts reach this address"),
        ("[::]:9561", "other hosts reach this address"),
        ("9561", "legal: an IP address and :PORT"),
        ("host:9561", "legal: an IP address and :PORT"),
        ("127.0.0.1:70000", "legal: an IP address and :PORT"),
        ("127.0.0.1:-1", "legal: an IP address and :PORT"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(address: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        metrics_address(AgentSettings(host="h", ip="10.0.0.1", metrics=address), TlsSettings())


def test_addresses() -> None:
    tls = TlsSettings(ca="a", cert="b", key="c")
    for text, want in (
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:2", ("::1", 2)),
        ("localhost:3", ("127.0.0.1", 3)),
    ):
        assert metrics_address(AgentSettings(host="h", ip="10.0.0.1", metrics=text), TlsSettings()) == want
    assert metrics_address(AgentSettings(host="h", ip="10.0.0.1", metrics="0.0.0.0:4"), tls)[0] == "0.0.0.0"
