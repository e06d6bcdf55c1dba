# SPDX-License-Identifier: Apache-2.0
"""Run by test_standalone_switch.py in a network namespace of its own: the switch on real veth pairs.

Prints what it saw as JSON. Arguments: P4Info, device config, a directory for captures.
"""

import json
import queue
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from finsy.proto import gnmi, p4i, p4r
from google.protobuf import text_format
from p4rt_rig import PATIENCE_S, Client

PROBE = b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x88\xb5" + b"are you there?" + b"\0" * 32
ETH_P_ALL = 3


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def far_end(name):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((name, ETH_P_ALL))
    sock.settimeout(PATIENCE_S)
    return sock


def next_probe(sock):
    while True:
        frame, source = sock.recvfrom(65536)
        if source[2] != socket.PACKET_OUTGOING and frame[12:14] == b"\x88\xb5":
            return frame


def next_packet(client):
    # The namespace's own chatter (IPv6 discovery) may come up too.
    while True:
        message = client.next()
        if message.packet.payload[12:14] == b"\x88\xb5":
            return message.packet


def start_switch(captures):
    ports = ["-i", "1@a0", "-i", "2@b0", "--port-rate", "100000000", "--thrift-port", "9090", "--log-console"]
    ports += [f"--pcap={captures}"]
    target = ["--grpc-server-addr", "127.0.0.1:0", "--cpu-port", "255", "--priority-queues", "8"]
    switch = [sys.executable, "-m", "polyrhythm", "switch", "--device-id", "1"]
    return subprocess.Popen([*switch, *ports, "--no-p4", "--", *target], stdout=subprocess.PIPE, text=True)


def address_of(process):
    for line in process.stdout:
        if found := re.search(r"serves .* on (\S+:\d+)", line):
            return found[1]
    raise SystemExit(f"the switch ended with {process.wait()}")


def main(p4info, device_config, captures):
    ip("link", "set", "lo", "up")
    for near, far in (("a0", "a1"), ("b0", "b1")):
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        ip("link", "set", near, "up")
        ip("link", "set", far, "up")
    process = start_switch(captures)
    try:
        seen = converse(Client(address_of(process)), p4info, device_config)
        process.send_signal(signal.SIGTERM)
        seen["exit"] = process.wait(PATIENCE_S)
    finally:
        process.kill()
    print(json.dumps(seen))


def converse(client, p4info, device_config):
    seen = {}
    client.arbitrate(1000)
    client.set_config(
        p4r.ForwardingPipelineConfig(
            p4info=text_format.Parse(p4info.read_text(), p4i.P4Info()),
            p4_device_config=device_config.read_bytes(),
        )
    )
    far_a, far_b = far_end("a1"), far_end("b1")

    packet = p4r.PacketOut(payload=PROBE)
    for field, value in ((1, b"\x02"), (2, b"\x00"), (3, b"\x00")):
        packet.metadata.add(metadata_id=field, value=value)
    client.send(packet=packet)
    seen["out"] = next_probe(far_b) == PROBE

    far_a.send(PROBE)
    came = next_packet(client)
    seen["in"] = [came.payload == PROBE, int.from_bytes(came.metadata[0].value, "big")]

    asked = queue.SimpleQueue()
    path = gnmi.Path(elem=[gnmi.PathElem(name="..."), gnmi.PathElem(name="oper-status")])
    item = gnmi.Subscription(path=path, mode="ON_CHANGE")
    asked.put(gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(subscription=[item])))
    states = client.gnmi.Subscribe(iter(asked.get, None), timeout=PATIENCE_S)
    seen["at first"] = [update.val.string_val for update in next(states).update.update]
    assert next(states).sync_response
    ip("link", "set", "b1", "down")
    (change,) = next(states).update.update
    seen["then"] = [change.path.elem[1].key["name"], change.val.string_val]
    asked.put(None)
    states.cancel()

    client.close()
    return seen


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
