# SPDX-License-Identifier: Apache-2.0
"""Checks of what runs: the agent's socket, the clocks, the policy, and the switches."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from controller.southbound.fleet import Target
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError, agent_of, fabric_of, listed

# Chosen, in seconds: how long each program may take to answer.
ANSWER_S = 2.0
# Chosen, in seconds: certificates, tokens and logs are of no use with clocks that differ by more. The time in
# an HTTP answer is in whole seconds.
MOST_SKEW_S = 2.0
# Chosen: a host whose fabric time may be wrong by more holds no slot of a period of 100 ms (5 % of it).
MOST_CLOCK_ERROR_S = 0.005
_MOST_ANSWER_BYTES = 64 << 20


def check_agent_socket(deployment: Deployment) -> str:
    """The agent answers on its socket, and has a session with its controller."""
    status = _status(deployment)
    config = agent_of(deployment)
    if not status.get("connected"):
        raise ProblemError(
            f"the agent runs, but has no session with {' or '.join(config.agent.controllers)}",
            "see why in its log; check agent.controller, the network, and [tls] on both sides",
        )
    if status.get("host") != config.agent.host:
        raise ProblemError(
            f"{config.agent.socket} is the socket of host {status.get('host')}, not {config.agent.host}",
            "give each agent a socket of its own (agent.socket)",
        )
    return f"the agent answers on {config.agent.socket} and has a session"


def check_time(deployment: Deployment) -> str:
    """The clocks of this host and the controller, and how exactly the agent knows fabric time."""
    said = []
    if deployment.web:
        before = time.time()
        _, headers = _get(deployment, "healthz")
        after = time.time()
        date = headers.get("date")
        if date is not None:
            try:
                there = parsedate_to_datetime(date).timestamp()
            except ValueError:
                raise UncheckedError(f"the controller's Date header is unreadable: {date[:60]!r}") from None
            # Its clock was somewhere within one second, while the request lasted.
            skew = max(before - there - 1, there - after, 0.0)
            if skew > MOST_SKEW_S:
                raise ProblemError(
                    f"this host's clock and the controller's differ by about {skew:,.0f} s",
                    "run chrony or ntpd on both",
                )
            said.append(f"this host's clock agrees with the controller's within {MOST_SKEW_S:g} s")
    if deployment.agent is not None and deployment.agent.agent.socket:
        try:
            error_s = _status(deployment).get("clock_error_ns", 0) / 1e9
        except ProblemError:
            if not said:
                raise UncheckedError("the agent does not answer, see agent-socket") from None
        else:
            if error_s > MOST_CLOCK_ERROR_S:
                known = f"to {error_s * 1e3:.1f} ms" if error_s < 1e6 else "not at all"
                raise ProblemError(
                    f"the agent knows fabric time {known}, so its workers keep no slots",
                    "check its session; the way to the controller must be fast and even",
                )
            said.append(f"the agent knows fabric time to {error_s * 1e3:.2f} ms")
    if not said:
        raise UncheckedError("it needs the controller's REST API (--web URL), or a running agent (--agent)")
    return "; ".join(said)


def check_policy(deployment: Deployment) -> str:
    """Controller, agent and installed package agree on the policy."""
    names: dict[str, str] = {}
    if deployment.policy:
        names["--policy"] = deployment.policy
    if deployment.agent is not None and deployment.agent.agent.socket:
        try:
            status = _status(deployment)
        except ProblemError:
            status = {}
        if status.get("connected"):
            names["the agent's controller"] = str(status.get("policy"))
    if deployment.web:
        body, _ = _get(deployment, "api/v1/plan?most=1", missing_ok=True)
        if body:
            policy = json.loads(body)["policy"]
            names[f"the plan of {deployment.web}"] = policy["name"]
            _check_version(policy)
    if len(names) < 2:
        raise UncheckedError("it needs two of: --policy NAME, --web URL with a plan, a running agent")
    if len(set(names.values())) > 1:
        raise ProblemError(
            ", ".join(f"{where} has {name}" for where, name in names.items()),
            "start the controller with the --policy that you want; is agent.controller the right one?",
        )
    return f"{' and '.join(names)} have {next(iter(names.values()))}"


def check_switches(deployment: Deployment) -> str:
    """Every switch answers P4Runtime in time."""
    targets = fabric_of(deployment).targets
    with ThreadPoolExecutor(16) as pool:
        found = dict(zip(targets, pool.map(_trouble, targets.values()), strict=True))
    wrong = [f"{name} ({targets[name].address}): {why}" for name, why in found.items() if why]
    if wrong:
        raise ProblemError(
            f"{len(wrong)} of {len(targets)} switches do not answer: {listed(wrong)}",
            "start the switch, or look at its address, its certificate, and firewalls on the way",
        )
    return f"all {len(targets)} switches answer"


def check_hash(deployment: Deployment) -> str:
    """The hash of the switches is described: from it the controller knows paths without probing."""
    used = fabric_of(deployment).topology.hash
    if not used.known:
        raise ProblemError(
            "the hash of the switches is unknown, so the controller cannot compute source ports",
            "describe it in the topology (docs/routing.md); until then probes learn ports, and switches pin "
            "flows by table entries",
        )
    return f"the switches hash by {used.algorithm}"


def _check_version(policy: Mapping[str, Any]) -> None:
    try:
        here = metadata.version(policy["distribution"])
    except metadata.PackageNotFoundError:
        return
    if here != policy["version"]:
        raise ProblemError(
            f"the controller has {policy['distribution']} {policy['version']}; here {here} is installed",
            "install one version everywhere; docs/deploying.md says in which order",
        )


def _status(deployment: Deployment) -> Mapping[str, Any]:
    """The agent's status. Raises ProblemError if it does not answer, UncheckedError without a socket."""
    path = agent_of(deployment).agent.socket
    if not path:
        raise UncheckedError('agent.socket is "": this agent has none')
    start = "start the agent: systemctl start polyrhythm-agent"
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            raise ProblemError(f"{path} is no socket", f"remove it, and {start}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(ANSWER_S)
            client.connect(path)
            client.sendall(b'{"op": "status"}\n')
            line = b""
            while not line.endswith(b"\n"):
                part = client.recv(1 << 16)
                line += part
                if not part or len(line) > _MOST_ANSWER_BYTES:
                    raise ProblemError(f"{path} closes without an answer", "look at the agent's log")
    except TimeoutError:
        raise ProblemError(
            f"{path} does not answer within {ANSWER_S:g} s: the agent hangs", "restart it, and keep its log"
        ) from None
    except PermissionError:
        raise UncheckedError(f"{path}: this user may not connect to it") from None
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror or error}", start) from None
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("event") != "status":
        raise ProblemError(f"{path} is not the socket of an agent", "give the agent a path of its own")
    return found


def _get(deployment: Deployment, path: str, *, missing_ok: bool = False) -> tuple[bytes, Mapping[str, str]]:
    """A GET of the REST API. Raises ProblemError if there is no answer, UncheckedError if it is no use."""
    headers = {"Authorization": f"Bearer {deployment.token}"} if deployment.token else {}
    context = None
    if deployment.web_ca is not None:
        try:
            context = ssl.create_default_context(cafile=str(deployment.web_ca))
        except OSError as error:
            raise UncheckedError(f"--web-ca {deployment.web_ca}: {error.strerror or error}") from None
    try:
        request = urllib.request.Request(f"{deployment.web}/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=context) as answer:
            return answer.read(_MOST_ANSWER_BYTES), {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as error:
        if missing_ok and error.code in (404, 503):
            return b"", {}
        if error.code == 503:
            return error.read(_MOST_ANSWER_BYTES), {k.lower(): v for k, v in error.headers.items()}
        raise UncheckedError(f"{deployment.web}/{path}: {error.code} {error.reason}") from None
    except HTTPException as error:
        # Also a connection that is closed without an answer.
        raise UncheckedError(f"{deployment.web}/{path} is no REST API: {error!r:.200}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ProblemError(
            f"{deployment.web} does not answer: {getattr(reason, 'strerror', None) or reason}",
            "start the controller, or look at --web, --web-ca, its log, and firewalls on the way",
        ) from None
    except ValueError as error:
        raise UncheckedError(f"{deployment.web}/{path}: {error}") from None


def channel_to(target: Target) -> grpc.Channel:
    """A channel to a switch, which the caller closes."""
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    if target.tls is None:
        return grpc.insecure_channel(target.address, options)
    if target.tls.target_name_override:
        options.append(("grpc.ssl_target_name_override", target.tls.target_name_override))
    return grpc.secure_channel(target.address, target.tls.to_client_credentials(), options)


def _trouble(target: Target) -> str:
    """Why a switch does not answer; empty: it does."""
    with channel_to(target) as channel:
        try:
            p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=ANSWER_S)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                return ""
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"silent: no answer within {ANSWER_S:g} s"
            return str(error.details()).rpartition("last error: ")[2][:200]
    return ""
