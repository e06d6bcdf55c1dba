# SPDX-License-Identifier: Apache-2.0
"""Write Tofino's queue settings as files: eight strict-priority queues for each port, shaping and queue
depth.

The files contain no WRED: Tofino's traffic manager has thresholds by colour, but no random early detection.
The ramp between Kmin and Kmax is the table `ecn` of the P4 program, which the controller fills.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

QUEUES = 8
# Limits of Tofino 1.
MAX_QUEUE_CELLS = (1 << 19) - 1
SPEEDS_GBPS = (10, 25, 40, 50, 100)
# Chosen: the burst of a shaped port, and the egress pool that all queues share.
BURST_BYTES = 16_384
POOL = 0


class QueueSettingsError(ValueError):
    """A setting is not legal. The message says which one, and what would be legal."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue settings of a switch.

    `ports` are front-panel ports that are not split into channels. `speed_gbps` is their speed, and
    `shape_gbps` the rate to which they are shaped (None: not shaped), both in Gbit/s. `queue_cells` is the
    depth at which a queue drops, in cells of 80 bytes.
    """

    ports: tuple[int, ...]
    speed_gbps: int
    shape_gbps: float | None
    queue_cells: int

    def __post_init__(self) -> None:
        if self.speed_gbps not in SPEEDS_GBPS:
            legal = ", ".join(map(str, SPEEDS_GBPS))
            raise QueueSettingsError(f"--speed {self.speed_gbps}: Tofino 1 has ports of {legal} Gbit/s")
        if self.shape_gbps is not None and not 0 < self.shape_gbps <= self.speed_gbps:
            raise QueueSettingsError(
                f"--shape {self.shape_gbps}: legal: above 0, up to the speed of the port"
            )
        if not 0 < self.queue_cells <= MAX_QUEUE_CELLS:
            raise QueueSettingsError(f"--queue-cells {self.queue_cells}: legal: 1 to {MAX_QUEUE_CELLS}")


def parse_ports(text: str) -> tuple[int, ...]:
    """Read ports from a text such as "1-30,32", ascending.

    Raises:
        QueueSettingsError: the text is no list of ports.
    """
    ports: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        try:
            first = int(low)
            last = int(high) if dash else first
        except ValueError:
            raise QueueSettingsError(
                f"--ports {text}: {part!r} is neither a port nor a range of ports"
            ) from None
        if not 1 <= first <= last <= 65:
            raise QueueSettingsError(
                f"--ports {text}: front-panel ports are 1 to 65, and {part!r} is not in order"
            )
        ports.update(range(first, last + 1))
    return tuple(sorted(ports))


def chassis_config(settings: QueueSettings) -> str:
    """Stratum's chassis configuration as protobuf text: the ports and their traffic manager."""
    lines = [
        "# Stratum on Tofino 1. Written by `polyrhythm pipeline traffic-manager --target stratum`.",
        "# Queue n of a port is served before queue n - 1.",
        'chassis { platform: PLT_GENERIC_BAREFOOT_TOFINO name: "polyrhythm" }',
        "nodes { id: 1 slot: 1 index: 1 }",
    ]
    for port in settings.ports:
        lines += [
            "singleton_ports {",
            f'  id: {port} name: "{port}/0" slot: 1 port: {port} node: 1',
            f"  speed_bps: {settings.speed_gbps * 10**9}",
            "  config_params { admin_state: ADMIN_STATE_ENABLED }",
            "}",
        ]
    lines += ["vendor_config { tofino_config {"]
    if settings.shape_gbps is not None:
        rate = round(settings.shape_gbps * 10**9)
        shape = f"byte_shaping {{ rate_bps: {rate} burst_bytes: {BURST_BYTES} }}"
        lines += ["  node_id_to_port_shaping_config { key: 1 value {"]
        lines += [
            f"    per_port_shaping_configs {{ key: {port} value {{ {shape} }} }}" for port in settings.ports
        ]
        lines += ["  } }"]
    lines += ["  node_id_to_qos_config { key: 1 value {"]
    for port in settings.ports:
        lines += [f"    queue_configs {{ port: {port}"]
        lines += [
            f"      queue_mapping {{ queue_id: {queue} priority: PRIO_{queue} weight: 1"
            f" pool: EGRESS_APP_POOL_{POOL} base_use_limit: {settings.queue_cells} baf: DISABLE_BAF }}"
            for queue in range(QUEUES)
        ]
        lines += ["    }"]
    lines += ["  } }", "} }"]
    return "\n".join(lines) + "\n"


def bfrt_script(settings: QueueSettings) -> str:
    """A script for the shell of bf_switchd. Run it once after the start: `bfshell -b <absolute path>`."""
    # The script has no functions: bfshell executes it where functions cannot see `bfrt`.
    shaping = ""
    if settings.shape_gbps is not None:
        shaping = f"""
    bfrt.tf1.tm.port.sched_shaping.mod(
        dev_port=dev_port, unit="BPS", provisioning="MIN_ERROR",
        max_rate={round(settings.shape_gbps * 10**6)}, max_burst_size={BURST_BYTES})  # kbit/s, bytes
    bfrt.tf1.tm.port.sched_cfg.mod(dev_port=dev_port, max_rate_enable=True)"""
    return f"""\
# Tofino 1 under bf_switchd. Written by `polyrhythm pipeline traffic-manager --target bf_switchd`.
# Queue n of a port is served before queue n - 1.
for front_panel in {list(settings.ports)}:
    handle = bfrt.port.port_hdl_info.get(CONN_ID=front_panel, CHNL_ID=0, print_ents=False)
    dev_port = handle.data[b"$DEV_PORT"]
    bfrt.port.port.add(
        DEV_PORT=dev_port, SPEED="BF_SPEED_{settings.speed_gbps}G", FEC="BF_FEC_TYP_NONE", PORT_ENABLE=True)
    port = bfrt.tf1.tm.port.cfg.get(dev_port=dev_port, print_ents=False)
    pipe, pg_id = dev_port >> 7, port.data[b"pg_id"]
    for qid in range({QUEUES}):
        pg_queue = port.data[b"egress_qid_queues"][qid]
        bfrt.tf1.tm.queue.sched_cfg.mod(
            pipe=pipe, pg_id=pg_id, pg_queue=pg_queue,
            scheduling_enable=True, min_priority=str(qid), max_priority=str(qid), dwrr_weight=1)
        bfrt.tf1.tm.queue.buffer.mod_with_shared_pool(
            pipe=pipe, pg_id=pg_id, pg_queue=pg_queue, guaranteed_cells=20,
            pool_id="EG_APP_POOL_{POOL}", pool_max_cells={settings.queue_cells},
            dynamic_baf="DISABLE"){shaping}
bfrt.complete_operations()
"""


TRAFFIC_MANAGER_TARGETS: dict[str, Callable[[QueueSettings], str]] = {
    "bf_switchd": bfrt_script,
    "stratum": chassis_config,
}
