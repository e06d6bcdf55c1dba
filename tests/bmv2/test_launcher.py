# SPDX-License-Identifier: Apache-2.0
"""The command line of a switch: the same for both switches where their options overlap, and legal for ours."""

import sys
from pathlib import Path

from bmv2.command_line import read_settings
from bmv2.launcher import SwitchOptions, TlsFiles, launch
from polyrhythm.subcommands import CommandParser

OPTIONS = SwitchOptions(
    device_id=3,
    grpc_address="127.0.0.1:9559",
    interfaces={2: "leaf1-eth2", 1: "leaf1-eth1"},
    thrift_port=9090,
    log_console=True,
    port_rates_bps={1: 1000, 2: 2000},
    queue_packets=64,
    seed=5,
)
SHARED_HEAD = ["--device-id", "3", "-i", "1@leaf1-eth1", "-i", "2@leaf1-eth2", "--thrift-port", "9090"]
SHARED_TAIL = ["--", "--grpc-server-addr", "127.0.0.1:9559", "--cpu-port", "255", "--drop-port", "511"]
SHARED_TAIL += ["--priority-queues", "8"]


def test_bmv2_is_taken_where_it_is_installed():
    made = launch(OPTIONS, which=lambda name: f"/opt/bin/{name}")
    assert not made.embedded
    head, tail = ["/opt/bin/simple_switch_grpc", *SHARED_HEAD, "--log-console", "--no-p4"], SHARED_TAIL
    assert list(made.argv) == head + tail


def test_the_embedded_switch_is_taken_elsewhere_and_understands_its_command_line():
    made = launch(OPTIONS, which=lambda name: None)
    assert made.embedded
    argv = list(made.argv)
    assert argv[:4] == [sys.executable, "-m", "polyrhythm", "switch"]
    assert argv[4:].index("--") > 0
    assert argv[-len(SHARED_TAIL) :] == SHARED_TAIL
    parser = CommandParser()
    parser.module = "bmv2.standalone"
    args = parser.parse_args(argv[4:])
    assert args.interface == ["1@leaf1-eth1", "2@leaf1-eth2"]
    assert (args.device_id, args.queue_packets, args.seed) == (3, 64, 5)
    assert args.port_rate == ["1=1000", "2=2000"]
    assert args.no_p4


def test_a_program_takes_the_place_of_no_p4():
    made = launch(SwitchOptions(1, "h:1", program=Path("a.json")), which=lambda name: name)
    assert list(made.argv) == ["simple_switch_grpc", "--device-id", "1", "a.json", "--", *launch_tail("h:1")]


def launch_tail(address):
    return ["--grpc-server-addr", address, *SHARED_TAIL[3:]]


def test_certificates_and_captures_reach_either_switch(tmp_path):
    for name, kind in (("cert.pem", "CERTIFICATE"), ("key.pem", "PRIVATE KEY"), ("ca.pem", "CERTIFICATE")):
        (tmp_path / name).write_text(f"-----BEGIN {kind}-----\n-----END {kind}-----\n")
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    tls = TlsFiles(cert, key, ca, client_auth=True)
    options = SwitchOptions(1, "h:1", {1: "veth1"}, tls=tls, pcap=tmp_path)
    theirs = launch(options, which=lambda name: name).argv
    ours = launch(options, which=lambda name: None).argv
    assert ours[4:] == theirs[1:]
    assert f"--pcap={tmp_path}" in theirs[: theirs.index("--")]
    told = ["--grpc-server-ssl", "--grpc-server-cert", str(cert), "--grpc-server-key", str(key)]
    told += ["--grpc-server-cacert", str(ca), "--grpc-server-with-client-auth"]
    assert list(theirs[theirs.index("--") + 3 :])[: len(told)] == told
    parser = CommandParser()
    parser.module = "bmv2.standalone"
    settings = read_settings(parser.parse_args(list(ours[4:])))
    assert settings.pcap == tmp_path
    assert settings.tls is not None
    assert settings.tls.client_auth
    assert settings.tls.authorities == ca
    plain = launch(SwitchOptions(1, "h:1", tls=TlsFiles(cert, key)), which=lambda name: name).argv
    assert "--grpc-server-cacert" not in plain
    assert "--grpc-server-with-client-auth" not in plain
