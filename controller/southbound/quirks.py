# SPDX-License-Identifier: Apache-2.0
"""Where targets differ from P4Runtime, or leave something out, and what the controller does about it.

The table is the only list of such differences; docs/southbound.md shows it. `where` names the code that copes
with one, as "file: name".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirk:
    """A difference of some targets, what the controller does about it, and who says so."""

    targets: str
    what: str
    answer: str
    where: str
    source: str


QUIRKS = (
    Quirk(
        "BMv2",
        "when the primary leaves, the server makes the next best stream the primary by itself, also one "
        "with election id 0",
        "being primary with id 0 counts as being asked to bid",
        "controller/southbound/arbitration.py: Arbitration",
        "p4lang/PI issue 553",
    ),
    Quirk(
        "older Stratum",
        "the same, and two streams may use one election id without an error",
        "a controller asks as a backup before it bids",
        "controller/southbound/arbitration.py: Arbitration",
        "stratum/stratum pull requests 781 and 857",
    ),
    Quirk(
        "servers before P4Runtime 1.3",
        "election id 0, or none, may be refused",
        "the controller asks with id 1 at its next session",
        "controller/southbound/arbitration.py: LOWEST",
        "P4Runtime specification 1.3, 5.3; stratum/stratum issue 380",
    ),
    Quirk(
        "servers before P4Runtime 1.1",
        "the Capabilities call is unknown",
        "the answer UNIMPLEMENTED is a sign of life too",
        "controller/southbound/client.py: SwitchClient",
        "P4Runtime specification 1.1, Capabilities",
    ),
    Quirk(
        "BMv2",
        "its gNMI server lists no interface, and P4Runtime carries no port states",
        "link probes watch the links",
        "controller/southbound/gnmi.py: NoPortStatesError",
        "observed with simple_switch_grpc",
    ),
    Quirk(
        "BMv2",
        "registers cannot be read by P4Runtime, and default actions have no direct counters",
        "all that the controller reads is an indexed counter or a packet-in",
        "controller/southbound/codec.py: EGRESS_COUNTER",
        "observed with simple_switch_grpc",
    ),
    Quirk(
        "BMv2, Stratum",
        "of a batch only CONTINUE_ON_ERROR is known, and its order is not promised",
        "updates that depend on others are in a later stage",
        "controller/southbound/diff.py: difference",
        "P4Runtime specification 1.3, 12; observed with simple_switch_grpc",
    ),
    Quirk(
        "older Stratum for Tofino (bfrt)",
        "numbers are read back with leading zero bytes",
        "entries whose bytes differ are decoded and compared by value",
        "controller/southbound/table_writes.py: reconcile",
        "stratum/stratum pull requests 677 and 918",
    ),
    Quirk(
        "Stratum for Broadcom",
        "VERIFY_AND_COMMIT keeps the entries of some tables",
        "a switch that refuses an entry is read back before it is written again",
        "controller/southbound/fleet.py: RETRIES",
        "stratum/stratum issue 223",
    ),
    Quirk(
        "Tofino (bf_switchd)",
        "queue depth counts buffer cells and not packets",
        "the program names its unit, and the ECN thresholds are converted",
        "controller/southbound/desired.py: EcnProfile",
        "the annotation depth_unit in p4/tna",
    ),
    Quirk(
        "Tofino (bf_switchd)",
        "the device config is a pipeline packed for its loader; pushing it unpacked ends bf_switchd",
        "`polyrhythm pipeline pack` writes NAME.bin, which is taken before NAME.json",
        "controller/southbound/artefacts.py: load_artefacts",
        "stratum/stratum pull request 461",
    ),
    Quirk(
        "gRPC servers with default settings",
        "a connection with an HTTP/2 ping every second is ended",
        "the heartbeat is a P4Runtime call",
        "controller/southbound/heartbeat.py: Heartbeat",
        "gRPC guide on keepalive: too_many_pings",
    ),
)


def markdown() -> str:
    """The table for docs/southbound.md."""
    lines = [
        "| target | what is different | what the controller does | where | source |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {q.targets} | {q.what} | {q.answer} | `{q.where}` | {q.source} |" for q in QUIRKS]
    return "\n".join(lines)
