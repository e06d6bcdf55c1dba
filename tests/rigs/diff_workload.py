# SPDX-License-Identifier: Apache-2.0
"""Random table entries for whatever tables the program has, drawn so that frames of the same seed meet them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random

from diff_frames import (
    CNP_DSCP,
    INT_DSCP,
    ROCE_PORT,
    TCP,
    UDP,
    Flow,
    FrameMaker,
    ethernet,
    ipv4,
    traffic_class,
    udp,
)
from finsy.proto import p4i, p4r

PORTS = list(range(1, 17))
CPU_PORT = 255
# BMv2 has four egress threads, a port's being port % 4; a frame through each of these shows that all that
# went before has left. They come in by the first of them.
SENTINEL_PORTS = (500, 501, 502, 503)
SENTINEL_DSCP = 63
_SENTINEL_HOP = 0xFF00
_SENTINEL_NET = 0xC0000200
_FLOW_FIELDS = {
    "ipv4_src": "src",
    "ipv4_dst": "dst",
    "ipv6_src": "src_ipv6",
    "ipv6_dst": "dst_ipv6",
    "protocol": "protocol",
    "src_port": "sport",
    "dst_port": "dport",
}
_SIZES = {
    "routing": 60,
    "routing_ipv6": 60,
    "ecmp": 700,
    "next_hop": 56,
    "pinned_flow": 40,
    "pinned_flow_ipv6": 40,
    "remark_flow": 200,
    "remark_flow_ipv6": 200,
    "remark": 60,
    "ecn": 24,
    "host_dscp": 160,
    "planned_pair": 120,
    "planned_pair_ipv6": 120,
    "planned_flow": 120,
    "planned_flow_ipv6": 120,
    "spread": 120,
    "ecn_tcp": 24,
}
# Two switches draw differently.
_NOT_COMPARED = {"spray_random"}
_USUAL_SIZE = 8


def canonical(value: int) -> bytes:
    """The shortest byte string of an unsigned value."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def sentinel_frame(worker: int) -> bytes:
    """A frame that leaves by the sentinel port of one egress thread, in queue 0."""
    flow = Flow(0xC0000201, _SENTINEL_NET + worker, UDP, 7, 7)
    return ethernet(0x0800, ipv4(flow, udp(flow, b""), dscp=SENTINEL_DSCP))


CPU_SENTINEL = ethernet(0x88B5, b"everything for the CPU has passed")


class Workload:
    """One scenario's entries, changes of them, and frames; the same for the same seed and P4Info."""

    def __init__(self, seed: int, info: p4i.P4Info) -> None:
        self._rng = rng = Random(seed)
        self._tables = {table.preamble.name: table for table in info.tables}
        self._actions = {action.preamble.id: action for action in info.actions}
        hosts = [0x0A000000 + rng.randrange(1 << 12) for _ in range(24)]
        self._flows = [
            Flow(
                rng.choice(hosts),
                rng.choice(hosts),
                rng.choice((UDP, UDP, TCP)),
                rng.randrange(1, 65536),
                ROCE_PORT,
            )
            for _ in range(48)
        ]
        self._frames = FrameMaker(rng, self._flows, PORTS)
        self._present: dict[bytes, p4r.TableEntry] = {}
        self._priority = 0

    def setup(self, *, sentinels: bool = True, without: Collection[str] = ()) -> list[p4r.Update]:
        """The entries that the sentinels need, if they are to pass, and random ones in every table but some."""
        updates = [*self._sentinel_entries()] if sentinels else []
        for table in self._tables.values():
            if table.preamble.name in without:
                continue
            if not table.match_fields:
                updates.append(self._default(table))
                continue
            for _ in range(_SIZES.get(table.preamble.name, _USUAL_SIZE)):
                updates.extend(self._insert(table))
        return updates

    def changes(self) -> list[p4r.Update]:
        """Some entries go, some get another action, some are new."""
        updates = []
        for key, entry in self._rng.sample(sorted(self._present.items()), len(self._present) // 8):
            if self._rng.random() < 0.5:
                del self._present[key]
                updates.append(_update(p4r.Update.DELETE, entry))
            else:
                entry.action.CopyFrom(self._action(self._table_of(entry)))
                updates.append(_update(p4r.Update.MODIFY, entry))
        for table in self._tables.values():
            if not table.match_fields:
                updates.append(self._default(table))
                continue
            for _ in range(_SIZES.get(table.preamble.name, _USUAL_SIZE) // 8):
                updates.extend(self._insert(table))
        return updates

    def packets(self, count: int) -> list[tuple[int, bytes]]:
        """Frames with the port they come in by; from the CPU's they carry the packet_out header."""
        packets = []
        for _ in range(count):
            port, frame = self._frames.draw()
            if self._rng.random() < 0.04:
                egress = self._rng.choice((0, *PORTS, CPU_PORT))
                header = egress << 7 | self._rng.randrange(2) << 6
                port, frame = CPU_PORT, header.to_bytes(2, "big") + frame
            packets.append((port, frame))
        return packets

    def plain_packets(self, count: int) -> list[tuple[int, bytes]]:
        """Frames that fare alike however many wait: no probe, no ECT, none from the CPU."""
        packets: list[tuple[int, bytes]] = []
        while len(packets) < count:
            port, frame = self._frames.draw()
            found = traffic_class(frame)
            if (found is None and len(frame) > 15) or (
                found is not None and not found & 3 and found >> 2 != INT_DSCP
            ):
                packets.append((port, frame))
        return packets

    def _sentinel_entries(self) -> Iterator[p4r.Update]:
        for worker, port in enumerate(SENTINEL_PORTS):
            hop = _SENTINEL_HOP + worker
            yield self._named("routing", {"lpm": (_SENTINEL_NET + worker, 32)}, "set_next_hop", hop)
            yield self._named("next_hop", {"exact": (hop,)}, "forward", port, 1, 2)
        yield self._named("queue", {"exact": (SENTINEL_DSCP,)}, "set_queue", 0)

    def _named(self, table: str, match: dict[str, tuple[int, ...]], action: str, *values: int) -> p4r.Update:
        entry = p4r.TableEntry(table_id=self._tables[table].preamble.id)
        ((kind, found),) = match.items()
        field = entry.match.add(field_id=1)
        if kind == "lpm":
            field.lpm.value, field.lpm.prefix_len = canonical(found[0]), found[1]
        else:
            field.exact.value = canonical(found[0])
        call = next(known for known in self._actions.values() if known.preamble.name == action)
        entry.action.action.action_id = call.preamble.id
        for param, value in zip(call.params, values, strict=True):
            entry.action.action.params.add(param_id=param.id, value=canonical(value))
        return _update(p4r.Update.INSERT, entry)

    def _insert(self, table: p4i.Table) -> Iterator[p4r.Update]:
        entry = p4r.TableEntry(table_id=table.preamble.id)
        flow = self._rng.choice(self._flows)
        for field in table.match_fields:
            self._match(entry, field, flow)
        key = entry.SerializeToString(deterministic=True)
        if key in self._present:
            return
        if any(
            field.match_type in (field.TERNARY, field.RANGE, field.OPTIONAL) for field in table.match_fields
        ):
            # Which of two entries of one priority wins is nobody's promise.
            self._priority += 1
            entry.priority = self._priority
        entry.action.CopyFrom(self._action(table))
        self._present[key] = entry
        yield _update(p4r.Update.INSERT, entry)

    def _match(self, entry: p4r.TableEntry, field: p4i.MatchField, flow: Flow) -> None:
        rng, full = self._rng, (1 << field.bitwidth) - 1
        value = self._value(field.name, field.bitwidth, flow)
        if field.match_type == field.EXACT:
            entry.match.add(field_id=field.id).exact.value = canonical(value)
        elif field.match_type == field.LPM:
            length = rng.choice((0, 8, *range(field.bitwidth - 12, field.bitwidth + 1)))
            if length:
                lpm = entry.match.add(field_id=field.id).lpm
                lpm.value = canonical(value & full >> (field.bitwidth - length) << (field.bitwidth - length))
                lpm.prefix_len = length
        elif field.match_type == field.RANGE:
            low, high = sorted(
                (rng.choice((0, 1, rng.randrange(full))), rng.choice((0, rng.randrange(full))))
            )
            span = entry.match.add(field_id=field.id).range
            span.low, span.high = canonical(low), canonical(high)
        elif field.match_type == field.TERNARY:
            if mask := rng.choice((0, full, rng.randrange(full))):
                ternary = entry.match.add(field_id=field.id).ternary
                ternary.value, ternary.mask = canonical(value & mask), canonical(mask)
        elif rng.random() < 0.7:
            entry.match.add(field_id=field.id).optional.value = canonical(value)

    def _value(self, name: str, width: int, flow: Flow) -> int:
        rng = self._rng
        if name in _FLOW_FIELDS:
            return getattr(flow, _FLOW_FIELDS[name])
        if name == "port":
            return rng.choice((*PORTS, *PORTS, CPU_PORT))
        if name == "dscp":
            return rng.choice((INT_DSCP, CNP_DSCP, *range(63)))
        if name == "group_id":
            return rng.randrange(1, 5)
        if "next_hop_id" in name:
            return rng.randrange(1, 64)
        if name == "probability":
            return rng.choice((0, 0xFFFF))
        # Two switches have different clocks: every packet starts a flowlet, or none, and bytes stay.
        if name == "gap":
            return rng.choice((0, 0, 0xFFFFFFFF))
        if name == "half_life":
            return rng.randrange(48, 256)
        return rng.randrange(1 << width)

    def _action(self, table: p4i.Table) -> p4r.TableAction:
        refs = [
            ref
            for ref in table.action_refs
            if ref.scope != ref.DEFAULT_ONLY and self._actions[ref.id].preamble.name not in _NOT_COMPARED
        ]
        return self._call(self._rng.choice(refs).id)

    def _call(self, action_id: int) -> p4r.TableAction:
        call = p4r.TableAction()
        call.action.action_id = action_id
        flow = self._rng.choice(self._flows)
        for param in self._actions[action_id].params:
            value = self._value(param.name, param.bitwidth, flow)
            call.action.params.add(param_id=param.id, value=canonical(value))
        return call

    def _default(self, table: p4i.Table) -> p4r.Update:
        entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        entry.action.CopyFrom(self._call(table.action_refs[0].id))
        return _update(p4r.Update.MODIFY, entry)

    def _table_of(self, entry: p4r.TableEntry) -> p4i.Table:
        return next(table for table in self._tables.values() if table.preamble.id == entry.table_id)


def _update(kind: int, entry: p4r.TableEntry) -> p4r.Update:
    update = p4r.Update(type=kind)  # type: ignore[arg-type]
    update.entity.table_entry.CopyFrom(entry)
    return update
