# SPDX-License-Identifier: Apache-2.0
"""A session with a switch: what becomes of writes that have no answer, and of switches that lost their
pipeline."""

from __future__ import annotations

import grpc
import pytest
from control_rig import SilentServer, eventually, running
from finsy.proto import U128, p4r, p4r_grpc
from silent_proxy import SilentProxy

from bmv2.server.dataplane import DataPlane
from bmv2.server.p4runtime import P4RuntimeService
from bmv2.server.pipelines import Pipelines
from controller.southbound.election_ids import ALONE


@pytest.mark.slow
def test_a_write_without_an_answer_cannot_land_in_the_next_session(fabric, start_controller):
    server = fabric.servers["spine2"]
    proxy = SilentProxy(server.address)
    described = fabric.description()
    described["switches"]["spine2"]["address"] = proxy.address
    controller = start_controller(described)
    try:
        eventually(lambda: controller.says("spine2 is in service"))
        proxy.silence()
        # The failure changes the entries of all switches, so a write is on its way to the silent one.
        fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(3, False))
        eventually(lambda: controller.says("switch spine2: the session is lost (silent"))
        # As after a power failure of the switch: it has forgotten the old session and its election id.
        proxy.abandon()
        eventually(lambda: controller.log.read_text().count("spine2 is in service") == 2)
    finally:
        proxy.close()
    late = p4r.WriteRequest(device_id=described["switches"]["spine2"]["device_id"])
    late.election_id.CopyFrom(U128.encode(ALONE))
    with grpc.insecure_channel(server.address) as channel:
        write = p4r_grpc.P4RuntimeStub(channel).Write
        with pytest.raises(grpc.RpcError, match=str(ALONE)) as refused:
            write(late, timeout=5)
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


class ForgetfulService(P4RuntimeService):
    """A switch that can lose its pipeline or its primary while its streams stay, as one may that restarts."""

    deposes = False

    def depose(self) -> None:
        """Refuse writes as those of a backup, once, and say nothing on the stream."""
        self.deposes = True

    def Write(self, request, context):
        if self.deposes:
            self.deposes = False
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not the primary")
        return super().Write(request, context)

    def forget(self) -> None:
        with self._lock:
            self._pipelines = Pipelines(DataPlane(self._switch, self._notify), lambda effect: effect())

    @property
    def filled(self) -> int:
        """How many entities it has."""
        with self._lock:
            return len(list(self._pipelines.committed().store.entities()))


class ForgetfulServer(SilentServer):
    """Serves a ForgetfulService alone."""

    service_class = ForgetfulService


@pytest.mark.slow
@pytest.mark.parametrize("called", ["write", "read"])
def test_a_switch_that_lost_its_pipeline_gets_it_in_a_new_session(topology, start_controller, called):
    with running(topology, ForgetfulServer) as fabric:
        described = fabric.description(read_back_ms=300 if called == "read" else 3_600_000)
        controller = start_controller(described)
        eventually(lambda: controller.says("spine1 is in service"))
        spine = fabric.servers["spine1"].service
        before = eventually(lambda: spine.filled)
        spine.forget()
        if called == "write":
            fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(3, False))
        eventually(lambda: controller.says("switch spine1: the session is lost (the switch has lost its"))
        eventually(lambda: controller.log.read_text().count("spine1 is in service") == 2)
        eventually(lambda: spine.filled >= before)


def test_a_session_ends_if_the_switch_refuses_its_writes(topology, start_controller):
    with running(topology, ForgetfulServer) as fabric:
        controller = start_controller(fabric.description(read_back_ms=3_600_000))
        eventually(lambda: controller.says("spine1 is in service"))
        fabric.servers["spine1"].service.depose()
        fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(3, False))
        eventually(lambda: controller.says("switch spine1: the session is lost (this controller is not its"))
        eventually(lambda: controller.log.read_text().count("spine1 is in service") == 2)
