# SPDX-License-Identifier: Apache-2.0
"""/readyz of a real controller: with real agents, a switch that falls silent, and a store that is full."""

import json
import sqlite3
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from control_rig import PATIENCE_S, eventually, job, join_message
from silent_proxy import SilentProxy

from controller.process.status import ControllerStatus
from topo.generate import leaf_spine


def asked(controller, path):
    """The status and the body of a GET at the root."""
    try:
        with urllib.request.urlopen(f"{controller.web}/{path}", timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.slow
def test_readyz_names_agents_switches_and_store_and_healthz_only_the_process(
    fabric, start_controller, connect, tmp_path
):
    proxy = SilentProxy(fabric.servers["spine2"].address)
    description = fabric.description()
    description["switches"]["spine2"]["address"] = proxy.address
    state = tmp_path / "state.sqlite"
    controller = start_controller(description, f"--state={state}")

    def not_ready():
        status, body = asked(controller, "readyz")
        assert (status == 200) is body["ready"]
        assert body["ready"] is (not body["not_ready"])
        return {(n["part"], n["name"]): n["why"] for n in body["not_ready"]}

    def alarms():
        """The alarms by name; the state of one moment may be a view old."""
        return {a["name"]: a["text"] for a in asked(controller, "api/v1/alarms")[1].get("alarms", ())}

    hosts = [h.name for h in fabric.topology.hosts]
    no_agent = "its agent has no session"
    eventually(lambda: not_ready() == {("agent", h): no_agent for h in hosts}, "switches ready")
    eventually(lambda: alarms().keys() == {"silent_agents"}, "an alarm of the agents")
    assert "of 4 hosts have no session, and 4 hosts need one: h1, h2, h3, h4" in alarms()["silent_agents"]
    agents = {host: connect(controller.agents, host) for host in hosts}
    eventually(lambda: not_ready() == {}, "all ready")
    eventually(lambda: alarms() == {}, "no alarm")

    agents["h2"].close()
    eventually(lambda: not_ready() == {("agent", "h2"): no_agent}, "agent gone")
    eventually(lambda: alarms().keys() == {"silent_agents"}, "an alarm of the agent")
    again = connect(controller.agents, "h2")

    proxy.silence()
    why = eventually(lambda: not_ready().get(("switch", "spine2")), "silent switch named")
    assert why.startswith("no session: ")
    text = eventually(lambda: alarms().get("silent_switch/spine2"), "an alarm of the switch")
    assert text == f"switch spine2: {why}; its entries stay in force"
    assert asked(controller, "healthz") == (200, {"status": "ok", "why": ""})
    proxy.resume()
    eventually(lambda: not_ready() == {}, "switch back")

    # Another process holds the store's file, so that nothing can be committed.
    holder = sqlite3.connect(state, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for rank, agent in enumerate((agents["h1"], agents["h3"])):
        agent.send(join_message(job("a", "h1", "h3"), rank))
    why = eventually(lambda: not_ready().get(("store", "state")), "store named")
    assert "locked" in why
    eventually(lambda: "locked" in alarms().get("history_off", ""), "an alarm of the store")
    assert asked(controller, "healthz")[0] == 200
    holder.execute("ROLLBACK")
    holder.close()
    eventually(lambda: not_ready() == {}, "store back")
    with urllib.request.urlopen(f"{controller.web}/metrics", timeout=PATIENCE_S) as answer:
        metrics = answer.read().decode()
    assert 'polyrhythm_switch_sessions_lost_total{switch="spine2"} 1.0' in metrics
    assert 'polyrhythm_switch_sessions_lost_total{switch="leaf1"} 0.0' in metrics
    assert "polyrhythm_agent_sessions_total 5.0" in metrics
    assert "polyrhythm_agents_connected 4.0" in metrics
    again.close()
    proxy.close()


def test_fewer_agents_may_be_needed(fabric, start_controller):
    controller = start_controller(fabric.description(), "--agents-needed", "0")
    eventually(lambda: asked(controller, "readyz")[0] == 200, "ready without agents")
    assert asked(controller, "readyz")[1]["agents"] == {"ready": 0, "needed": 0, "of": 4}
    # Before the first view there is an answer 503 without alarms.
    eventually(lambda: asked(controller, "api/v1/alarms")[1].get("alarms") == [], "no alarm")


def test_who_hears_that_all_is_ready_sees_the_present_state_next():
    """On a busy machine the first view came after the answer, and a restored job was not in it yet."""
    topology = leaf_spine(1, 0, 2, host_bps=10**9, fabric_bps=10**9)
    outdated = []
    loop = SimpleNamespace(
        progress=SimpleNamespace(plan_failure=""), outdate_views=lambda: outdated.append(True)
    )
    fleet, agents = SimpleNamespace(clients={}, not_ready=dict), SimpleNamespace(connected={"h1"})
    status = ControllerStatus(topology, loop, fleet, agents)
    assert [n.name for n in status.readiness().not_ready] == ["h2"]
    assert not outdated
    agents.connected.add("h2")
    assert not status.readiness().not_ready
    assert outdated
