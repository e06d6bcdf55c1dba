# SPDX-License-Identifier: Apache-2.0
"""The servers of `polyrhythm bench p4runtime`: `python -m polyrhythm.bench.switch_servers KIND`.

KIND `switch`: one embedded switch with its P4Runtime server. KIND `stand-ins`: a P4Runtime server for each
switch of `polyrhythm.bench.p4runtime.reconcile_fabric`, which answers a read of the tables with the entries
that the controller wants there, encoded by protobuf before the start; it takes no writes.

The process prints its addresses as one line of JSON, and for each line that it reads another line with its
processor time in seconds and the write requests that it has taken. It ends when its input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from finsy.proto import p4r

from bmv2 import EmbeddedSwitch
from bmv2.hostloop import HostLoop
from bmv2.server import serve
from controller.southbound.artefacts import Artefacts, load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import Entry
from polyrhythm.bench.p4runtime import DEVICE_ID, reconcile_entries, reconcile_fabric

# Entities of one ReadResponse: those of the embedded switch's server.
_ENTITIES_OF_REPLY = 1000
# Threads for 64 streams and the calls beside them.
_THREADS = 160


class SwitchStandIn:
    """The P4Runtime server of one switch that holds fixed entries. `writes` counts requests by name."""

    def __init__(self, artefacts: Artefacts, entries: tuple[Entry, ...], writes: Counter[str]) -> None:
        self._cookie = artefacts.cookie
        self._writes = writes
        codec = Codec(artefacts)
        entities = [_entity(codec.message(entry)) for entry in entries]
        self._replies = [
            p4r.ReadResponse(entities=entities[at : at + _ENTITIES_OF_REPLY]).SerializeToString()
            for at in range(0, len(entities), _ENTITIES_OF_REPLY)
        ]

    def add_to(self, server: grpc.Server) -> None:
        """Serve the calls that the controller makes."""

        def unary(call: Callable[[bytes], Any]) -> grpc.RpcMethodHandler[bytes, Any]:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, _: call(request), response_serializer=lambda reply: reply.SerializeToString()
            )

        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Capabilities": unary(lambda _: p4r.CapabilitiesResponse(p4runtime_api_version="1.5.0")),
            "GetForwardingPipelineConfig": unary(self._pipeline),
            "Write": unary(self._write),
            "Read": grpc.unary_stream_rpc_method_handler(lambda *_: iter(self._replies)),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                self._stream,
                request_deserializer=p4r.StreamMessageRequest.FromString,
                response_serializer=lambda reply: reply.SerializeToString(),
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("p4.v1.P4Runtime", handlers),))

    def _pipeline(self, _: bytes) -> p4r.GetForwardingPipelineConfigResponse:
        cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=self._cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(cookie=cookie))

    def _write(self, _: bytes) -> p4r.WriteResponse:
        self._writes["write"] += 1
        return p4r.WriteResponse()

    def _stream(
        self, requests: Iterator[p4r.StreamMessageRequest], _: grpc.ServicerContext
    ) -> Iterator[p4r.StreamMessageResponse]:
        for request in requests:
            if request.HasField("arbitration"):
                yield p4r.StreamMessageResponse(arbitration=request.arbitration)


def _entity(message: p4r.TableEntry | p4r.MeterEntry) -> p4r.Entity:
    if isinstance(message, p4r.TableEntry):
        return p4r.Entity(table_entry=message)
    return p4r.Entity(meter_entry=message)


def main(kind: str, count: str = "0") -> None:
    """Serve until the input is closed. `count`: how many stand-ins."""
    writes: Counter[str] = Counter()
    addresses: dict[str, str] = {}
    if kind == "switch":
        loop = HostLoop()
        switch = EmbeddedSwitch("leaf1", loop)
        switch.add_port(1, rate_bps=None, transmit=lambda frame: None)
        # gRPC ends a server that nobody refers to.
        server = serve(switch, loop, device_id=DEVICE_ID)
        addresses["leaf1"] = server.address
        threading.Thread(target=loop.run, daemon=True).start()
    else:
        artefacts = load_artefacts()
        _, names, _ = reconcile_fabric()
        servers = []
        for name in names[: int(count)]:
            stand_in = grpc.server(ThreadPoolExecutor(_THREADS // int(count) + 2))
            SwitchStandIn(artefacts, reconcile_entries(name), writes).add_to(stand_in)
            addresses[name] = f"127.0.0.1:{stand_in.add_insecure_port('127.0.0.1:0')}"
            stand_in.start()
            servers.append(stand_in)
    print(json.dumps(addresses), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"cpu_s": time.process_time(), "writes": writes["write"]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
