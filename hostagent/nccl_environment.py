# SPDX-License-Identifier: Apache-2.0
"""The environment variables of a job on this host, for NCCL and for the shims: `polyrhythm agent env JOB`."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostagent.config import BUILT_SHIM, BUILT_SOCKET_SHIM, Config
from hostagent.socket_map import reports_path, shim_name
from polyrhythm_files import ConfigError

DEFAULT_DSCP = 26
"""The DSCP of jobs without a level (AF31), if there is no agent to ask."""
_PATIENCE_S = 1.0


def nccl_environment(config: Config, job: str) -> Mapping[str, str]:
    """The variables for one job, with the DSCP that the controller gave it, if the agent knows it.

    A queue pair keeps the traffic class with which it is made; if the plan changes it later, the switches
    remark. Raises ConfigError for an illegal job name.
    """
    if not job or "/" in job:
        raise ConfigError(f"env: {job!r} is no name of a job; legal: text without '/'")
    nic, nccl = config.nic, config.nccl
    many = nccl.qps_per_connection > 1
    variables = {
        "NCCL_IB_TC": str(_dscp(config, job) << 2),
        "NCCL_IB_QPS_PER_CONNECTION": str(nccl.qps_per_connection),
        "NCCL_IB_SPLIT_DATA_ON_QPS": "1" if many else "0",
        "POLYRHYTHM_AGENT": config.agent.socket,
    }
    ports = [f"{n.device}:{n.port}" for n in (config.rails or (nic,)) if n.device]
    if ports:
        variables["NCCL_IB_HCA"] = f"={','.join(ports)}"
    if nccl.gid_index >= 0:
        variables["NCCL_IB_GID_INDEX"] = str(nccl.gid_index)
    shim = Path(nccl.shim) if nccl.shim else BUILT_SHIM
    if nic.driver in ("auto", "shim") and shim.is_file():
        variables["NCCL_IBVERBS_LIB"] = str(shim.resolve())
        variables["POLYRHYTHM_PORT_MAP"] = nic.port_map
    if config.sockets.map and BUILT_SOCKET_SHIM.is_file():
        variables["LD_PRELOAD"] = str(BUILT_SOCKET_SHIM.resolve())
        variables["POLYRHYTHM_SOCKET_JOB"] = shim_name(job)
        variables["POLYRHYTHM_SOCKET_MAP"] = config.sockets.map
        variables["POLYRHYTHM_SOCKET_REPORTS"] = str(reports_path(Path(config.sockets.map)))
        if config.sockets.pace_mbps:
            variables["POLYRHYTHM_SOCKET_PACE"] = str(max(1, int(config.sockets.pace_mbps * 1e6 / 8)))
    if nccl.inspector:
        variables["NCCL_PROFILER_PLUGIN"] = nccl.inspector
        variables["NCCL_INSPECTOR_ENABLE"] = "1"
        variables["NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"] = "500"
        if config.sources.inspector_dir:
            variables["NCCL_INSPECTOR_DUMP_DIR"] = config.sources.inspector_dir
    return variables


def _dscp(config: Config, job: str) -> int:
    """The DSCP of the job's flows as the agent knows it, else of jobs without a level."""
    status = _status(config.agent.socket)
    dscps = [f["dscp"] for name, f in status.get("flows", {}).items() if name.startswith(f"{job}/")]
    return int(dscps[0] if dscps else status.get("equal_dscp") or DEFAULT_DSCP)


def _status(path: str) -> Mapping[str, Any]:
    """The agent's state; empty if there is no agent."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.settimeout(_PATIENCE_S)
            made.connect(path)
            made.sendall(b'{"op": "status"}\n')
            said = json.loads(made.makefile().readline())
            return said if isinstance(said, dict) else {}
    except (OSError, ValueError):
        return {}
