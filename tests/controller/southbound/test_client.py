# SPDX-License-Identifier: Apache-2.0
"""A session with a switch: what becomes of writes that have no answer."""

from __future__ import annotations

import grpc
import pytest
from control_rig import eventually
from finsy.proto import U128, p4r, p4r_grpc
from silent_proxy import SilentProxy

from controller.southbound.election_ids import ALONE


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
