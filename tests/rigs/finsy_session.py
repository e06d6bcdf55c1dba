# SPDX-License-Identifier: Apache-2.0
"""Run by test_p4rt_finsy.py in a process of its own: a session of finsy's Switch with our server.

grpc.aio stays bound to the first event loop of a process, so this one must not share pytest's.
Prints what it saw as JSON. Arguments: address, P4Info, device config; for TLS also the CA's certificate, and
for mutual TLS the client's certificate and key.
"""

import asyncio
import json
import sys
from pathlib import Path

import finsy


async def session(address: str, p4info: Path, p4blob: Path, tls: list[Path]) -> dict[str, object]:
    seen: dict[str, object] = {}
    cacert, cert, key = (*tls, None, None, None)[:3]
    credentials = finsy.GRPCCredentialsTLS(cacert=cacert, cert=cert, private_key=key) if tls else None
    options = finsy.SwitchOptions(
        p4info=p4info, p4blob=p4blob, initial_election_id=1000, channel_credentials=credentials
    )
    async with finsy.Switch("leaf1", address, options) as switch:
        seen["primary"] = switch.is_primary
        seen["version"] = str(switch.p4runtime_version)
        seen["ports"] = {port.name: [port.id, port.up] for port in switch.ports}
        await switch.delete_all()
        hop = finsy.P4TableEntry(
            "next_hop",
            match=finsy.P4TableMatch(next_hop_id=3),
            action=finsy.P4TableAction("forward", port=2, src_mac=1, dst_mac=2),
        )
        route = finsy.P4TableEntry(
            "routing",
            match=finsy.P4TableMatch(ipv4_dst="10.0.0.0/8"),
            action=finsy.P4TableAction("set_next_hop", next_hop_id=3),
        )
        await switch.insert([hop, route])
        try:
            await switch.insert([hop])
        except finsy.P4ClientError as error:
            seen["error"] = {str(at): item.canonical_code.name for at, item in error.details.items()}
        seen["entries"] = sorted([entry.table_id async for entry in switch.read(finsy.P4TableEntry())])
        counters = [cell async for cell in switch.read(finsy.P4CounterEntry("egress_packets"))]
        seen["cells"] = len(counters)

        async with asyncio.timeout(15), asyncio.TaskGroup() as group:
            first = group.create_task(anext(switch.read_packets()))
            probe = bytes.fromhex("ffffffffffff" + "020000000001" + "88b5") + bytes(50)
            # Out of port 1, which the test has wired to port 2: it comes back as a packet-in.
            while not first.done():
                out = finsy.P4PacketOut(probe, egress_port=1, submit_to_ingress=0, pad=0)
                await switch.write(out)
                await asyncio.sleep(0.05)
        packet = first.result()
        seen["packet"] = [packet["ingress_port"], packet["reason"], packet.payload == probe]
        await switch.delete_all()
        seen["left"] = len([entry async for entry in switch.read(finsy.P4TableEntry())])
    return seen


if __name__ == "__main__":
    address, info, blob, *certificates = sys.argv[1:]
    print(json.dumps(asyncio.run(session(address, Path(info), Path(blob), [Path(c) for c in certificates]))))
