# SPDX-License-Identifier: Apache-2.0
"""The switches of the Mininet fabric, one process each: simple_switch_grpc or the embedded switch."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from bmv2.launcher import BMV2, Launch, SwitchOptions, launch, speaks_thrift
from bmv2.thrift import QueueControl, ThriftError
from controller.model import TRAFFIC_CLASSES
from polyrhythm.emulation.folder import last_line
from polyrhythm.emulation.shaping import htb_commands
from polyrhythm.scenario import Scenario
from polyrhythm.scenario.failures import End
from topo.mininet import MininetError, MininetFabric, port_interface, port_interfaces

# Chosen.
READY_TIMEOUT_S = 30.0
_PORT_TABLE = "port_state=set_port_down"
_ASK_S = 0.2
_THRIFT_PORT = 9090
"""Each switch has a network namespace of its own, so all use BMv2's default port."""


class Switches:
    """All switches of a fabric, each in its namespace. They serve P4Runtime on UNIX sockets in `folder`.

    `embedded` says whether they are the embedded switch, `queue_rates` whether each queue of BMv2 has its own
    rate.

    Raises:
        MininetError: a switch ended or does not serve.
    """

    def __init__(self, fabric: MininetFabric, scenario: Scenario, folder: Path, *, seed: int) -> None:
        self.address: dict[str, str] = {}
        self.embedded = True
        self._fabric = fabric
        self._scenario = scenario
        self._commands: dict[str, Launch] = {}
        self._starting: set[str] = set()
        self._cut: set[End] = set()
        self._logs: dict[str, Path] = {}
        self._processes: dict[str, subprocess.Popen[Any]] = {}
        topology = scenario.topology
        bmv2 = shutil.which(BMV2)
        self.queue_rates = bmv2 is not None and speaks_thrift(bmv2)
        for number, (name, interfaces) in enumerate(port_interfaces(topology).items()):
            self.address[name] = f"unix:{folder / f's{topology.switch[name].device_id}.sock'}"
            command = launch(
                SwitchOptions(
                    device_id=topology.switch[name].device_id,
                    grpc_address=self.address[name],
                    interfaces=interfaces,
                    port_rates_bps={p: peer.rate_bps for p, peer in topology.ports[name].items()},
                    queue_packets=scenario.buffer_packets,
                    port_table=_PORT_TABLE,
                    thrift_port=_THRIFT_PORT if self.queue_rates else None,
                    seed=seed * 1_000 + number,
                )
            )
            self.embedded = command.embedded
            if not command.embedded:
                _shape(fabric, scenario, name, interfaces)
            self._commands[name], self._logs[name] = command, folder / f"{name}.log"
            self._start(name)
        for name in self.address:
            self._wait(name)
            if self.queue_rates:
                _limit_queues(fabric, scenario, name)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures must know of these switches."""
        if self.embedded:
            return ()
        if self.queue_rates:
            return (
                "BMv2 has no port scheduler: each queue has the rate of its port (set by Thrift), so ECN "
                "marks "
                "only by the load of one class; Linux HTB gives the port its rate and its priorities by DSCP",
            )
        return (
            "BMv2 has no port scheduler: Linux HTB gives each port its rate and its priorities by DSCP, and "
            "nothing marks ECN",
        )

    def check(self) -> None:
        """Check that all switches run.

        Raises:
            MininetError: a switch has ended.
        """
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise MininetError(
                    f"switch {name} ended with {process.returncode}: {last_line(self._logs[name])}"
                )

    def power_off(self, name: str) -> None:
        """End a switch."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def power_on(self, name: str) -> None:
        """Start a switch again if it is off. It begins without a pipeline and without tables."""
        if name in self._processes:
            return
        if not self.embedded:
            # BMv2 does not open an interface that is down. The living ends of its cables are still cut.
            for port in self._scenario.topology.ports[name]:
                self._set_link(name, port, "up")
        # The dead process has left its socket.
        Path(self.address[name].removeprefix("unix:")).unlink(missing_ok=True)
        self._starting.add(name)
        self._start(name)

    def programmed(self, name: str) -> bool:
        """Whether the controller has given the switch a pipeline."""
        with grpc.insecure_channel(self.address[name]) as channel:
            request = p4r.GetForwardingPipelineConfigRequest(
                device_id=self._scenario.topology.switch[name].device_id,
                response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE,
            )
            try:
                found = p4r_grpc.P4RuntimeStub(channel).GetForwardingPipelineConfig(request, timeout=_ASK_S)
            except grpc.RpcError:
                return False
        if self.queue_rates and name in self._starting:
            _limit_queues(self._fabric, self._scenario, name)
        self._starting.discard(name)
        return bool(found.config.HasField("p4info"))

    def cut(self, end: End) -> None:
        """Let nothing through at one end of a cable.

        If an interface goes down, BMv2 receives nothing from any port any more (libpcap waits for packets of
        that interface). So its packets are dropped in the interface's queue instead.
        """
        name, port = end
        if self.embedded or name not in self._processes:
            self._set_link(name, port, "down")
        elif end not in self._cut:
            self._cut.add(end)
            queue = ["tc", "qdisc", "replace", "dev", port_interface(port), "root", "pfifo", "limit", "0"]
            self._fabric.run(name, queue)

    def mend(self, end: End) -> None:
        """Undo `cut`."""
        name, port = end
        self._set_link(name, port, "up")
        if end in self._cut:
            self._cut.discard(end)
            _shape(self._fabric, self._scenario, name, {port: port_interface(port)})

    def _set_link(self, name: str, port: int, state: str) -> None:
        self._fabric.run(name, ["ip", "link", "set", "dev", port_interface(port), state])

    def _start(self, name: str) -> None:
        with self._logs[name].open("ab") as sink:
            self._processes[name] = self._fabric.spawn(
                name,
                self._commands[name].argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        with grpc.insecure_channel(self.address[name]) as channel:
            ready = grpc.channel_ready_future(channel)
            while True:
                try:
                    ready.result(timeout=0.2)
                    return
                except grpc.FutureTimeoutError:
                    self.check()
                    if time.monotonic() > deadline:
                        raise MininetError(
                            f"switch {name} does not serve P4Runtime: {last_line(self._logs[name])}"
                        ) from None


def _limit_queues(fabric: MininetFabric, scenario: Scenario, name: str) -> None:
    """Give each job queue its depth and its port's rate by Thrift, in packets of full size.

    The queues then fill inside the switch, where ECN is marked.

    Raises:
        MininetError: the switch refused.
    """
    connection = fabric.inside(name, lambda: socket.create_connection(("127.0.0.1", _THRIFT_PORT), 5.0))
    control = QueueControl(connection)
    frame_bits = 8 * scenario.frame_bytes
    levels = sorted({TRAFFIC_CLASSES.queues[dscp] for dscp in TRAFFIC_CLASSES.levels})
    try:
        for port, peer in fabric.topology.ports[name].items():
            control.set_depth(port, scenario.buffer_packets)
            for queue in levels:
                control.set_rate(port, queue, max(1, peer.rate_bps // frame_bits))
    except (ThriftError, OSError) as error:
        raise MininetError(f"switch {name}: queue rates by Thrift: {error}") from None
    finally:
        control.close()


def _shape(fabric: MininetFabric, scenario: Scenario, name: str, interfaces: Mapping[int, str]) -> None:
    frame = scenario.frame_bytes
    for port, interface in interfaces.items():
        lines = htb_commands(
            interface,
            fabric.topology.ports[name][port].rate_bps,
            TRAFFIC_CLASSES.queues,
            scenario.buffer_packets,
            frame,
        )
        fabric.run(name, ["tc", "-batch", "-"], "\n".join(lines) + "\n")
