# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm topo`: show a fabric, in JSON with all that is needed to compute a source port by hand; and
import one from another program's file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from controller.routing.affine_hash import FIELDS, polarisation_of, polarised_words
from controller.routing.forwarding import BUCKETS
from controller.routing.hash import UDP
from controller.wire.rocev2 import ROCE_PORT, ROCE_SOURCE_PORTS
from polyrhythm_files import ConfigError
from topo.addresses import is_ipv6
from topo.files import load_topology
from topo.graph import Topology
from topo.jsonio import topology_to_json
from topo.wiring import DEFAULT_BPS

MOST_GBPS = 10_000
"""As for the rates in a topology file."""

_FIELD_BITS = (32, 32, 8, 16, 16)
_RULE = (
    "hash the fields in network byte order; the slice is `bits` bits of the hash from bit `lsb` (0: the "
    "least significant) upward, and its value is a bucket; of the n live ports of this switch on shortest "
    "up/down paths to the destination's leaf, in ascending port order, bucket b uses port number b mod n, "
    "counting from 0"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm topo`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print hosts, switches, hashes and links of a topology file")
    show.add_argument("file", metavar="FILE", type=Path, help="a topology file, also of another program")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    form.add_argument(
        "--graphml",
        action="store_true",
        help="print the graph as GraphML; a topology file may also be GraphML",
    )
    text = "write the fabric of another program's file as a topology file, to edit it"
    imported = actions.add_parser("import", help=text, description=text[0].upper() + text[1:] + ".")
    imported.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="p4lang's topology.json, a containerlab YAML, ONOS's netcfg.json, Slurm's topology.conf or "
        "topology.yaml, Lingjun's topo.csv, or GraphML",
    )
    for option, what in (("--host-gbps", "NICs"), ("--fabric-gbps", "cables between switches")):
        imported.add_argument(
            option,
            type=float,
            default=DEFAULT_BPS / 1e9,
            metavar="G",
            help=f"rate of {what} where the file has none, in Gbit/s (default %(default)g)",
        )
    imported.add_argument(
        "--out", metavar="FILE", type=Path, help="file to write, in JSON (default: standard output)"
    )
    imported.add_argument("--json", action="store_true", help="print JSON, as without --out")


def run(args: argparse.Namespace) -> int:
    """Print the fabric, or write it. Returns 2 for a file that describes no fabric."""
    try:
        if args.action == "import":
            return _import(args)
        topology = load_topology(args.file)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if args.json:
        json.dump(to_json(topology), sys.stdout, indent=1)
        print()
    elif args.graphml:
        from topo.export import graphml

        print(graphml(topology))
    else:
        print(summary(topology))
    return 0


def _import(args: argparse.Namespace) -> int:
    """Write the fabric of a file as a whole fabric. Raises ConfigError."""
    for option in ("host_gbps", "fabric_gbps"):
        if not 1e-3 <= (gbps := getattr(args, option)) <= MOST_GBPS:
            raise ConfigError(f"--{option.replace('_', '-')} {gbps:g}; legal: 0.001 to {MOST_GBPS:g}")
    if args.out is not None and args.out.suffix.lower() not in (".json", ".yaml", ".yml"):
        raise ConfigError(f"--out {args.out}: legal: a name that ends with .json or .yaml")
    topology = load_topology(
        args.file, default_bps=round(args.host_gbps * 1e9), fabric_bps=round(args.fabric_gbps * 1e9)
    )
    text = json.dumps(topology_to_json(topology), indent=1)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")
    if args.out is None or args.json:
        print(text)
    else:
        print(summary(topology))
    return 0


def summary(topology: Topology) -> str:
    """The fabric in one or two lines."""
    tiers: dict[str, int] = {}
    for switch in topology.switches:
        tiers[switch.tier.value] = tiers.get(switch.tier.value, 0) + 1
    counts = ", ".join(f"{count} {tier}" for tier, count in tiers.items())
    line = (
        f"{topology.name}: {len(topology.machines)} hosts with {len(topology.hosts)} NICs; switches: "
        f"{counts}; {len(topology.links)} links between switches"
    )
    if not topology.hash.known:
        return f"{line}\nhash unknown: the controller must find source ports by probes"
    return "\n".join(filter(None, (line, polarised_words(topology))))


def to_json(topology: Topology) -> dict[str, Any]:
    """Hosts, links, and switches with their hash functions as JSON values."""
    level = {s.name: s.tier.level for s in topology.switches}
    hosts = [
        {
            "name": name,
            "ip": nics[0].ip,
            "leaf": nics[0].leaf,
            "nics": [
                {
                    "name": n.name,
                    "ip": n.ip,
                    "mac": n.mac,
                    "leaf": n.leaf,
                    "leaf_port": n.leaf_port,
                    "gbps": n.rate_bps / 1e9,
                }
                for n in nics
            ],
        }
        for name, nics in topology.machines.items()
    ]
    spec = topology.hash
    has_ipv6 = any(is_ipv6(h.ip) for h in topology.hosts)
    switches = [
        {
            "name": s.name,
            "tier": s.tier.value,
            "device_id": s.device_id,
            "hash": {
                "fields": list(FIELDS),
                "field_bits": list(_FIELD_BITS),
                **({"field_bits_ipv6": [128, 128, *_FIELD_BITS[2:]]} if has_ipv6 else {}),
                "constants": {"protocol": UDP, "dst_port": ROCE_PORT},
                "algorithm": spec.algorithm,
                "slice": {"lsb": spec.slices[s.tier.level], "bits": 8} if topology.hash.known else None,
                "buckets": BUCKETS,
                "order": [
                    peer.node
                    for peer in topology.ports[s.name].values()
                    if level.get(peer.node, -1) > s.tier.level
                ],
                "rule": _RULE,
            },
        }
        for s in topology.switches
    ]
    links = [
        {"a": k.a, "a_port": k.a_port, "b": k.b, "b_port": k.b_port, "gbps": k.rate_bps / 1e9}
        for k in topology.links
    ]
    return {
        "name": topology.name,
        "source_ports": [ROCE_SOURCE_PORTS.start, ROCE_SOURCE_PORTS.stop - 1],
        "hosts": hosts,
        "switches": switches,
        "links": links,
        "prefixes": dict(topology.prefixes),
        "polarisation": _polarisation(topology),
    }


def _polarisation(topology: Topology) -> dict[str, Any] | None:
    found = polarisation_of(topology)
    if found is None:
        return None
    return {
        "polarised": found.polarised,
        "reached": found.reached,
        "possible": found.possible,
        "why": polarised_words(topology) or None,
    }
