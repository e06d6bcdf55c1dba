# SPDX-License-Identifier: Apache-2.0
"""Tables: matching, writing, refusing."""

import pytest
from bmv2_programs import assign, forwarder, param, std
from bmv2_rig import Rig

from bmv2.entries import (
    EntryFault,
    Exact,
    Lpm,
    MatchValue,
    Optional,
    Range,
    TableEntry,
    TableEntryError,
    Ternary,
)


def rig_with(kind: str, *, size: int = 1024, default_const: bool = False) -> Rig:
    """`t` matches on the source address (48 bits) and sends to a port; nothing matches: port 1."""
    b = forwarder()
    send = b.add_action("send", [assign(std("egress_spec"), param(0))], port=9)
    other = b.add_action("other", [assign(std("egress_spec"), param(0))], port=9)
    b.add_table(
        "ingress",
        "t",
        [(kind, ("eth", "src"))],
        [send, other],
        default=(send, [1]),
        const=default_const,
        max_size=size,
        with_counters=True,
    )
    b.nodes["ingress"]["tables"][0]["next_tables"] = {"go_act": "t"}
    return Rig(b.json())


def entry(match: MatchValue, port: int, priority: int = 0, action: str = "send") -> TableEntry:
    return TableEntry((match,), priority, action, (port,))


def out(rig: Rig, source: int) -> int:
    rig.sent.clear()
    rig.switch.receive(4, bytes(6) + source.to_bytes(6) + bytes(2))
    assert len(rig.sent) == 1
    return rig.sent[0][1]


def test_exact() -> None:
    rig = rig_with("exact")
    rig.switch.insert("t", entry(Exact(5), 2))
    assert [out(rig, 5), out(rig, 6)] == [2, 1]
    rig.switch.modify("t", entry(Exact(5), 3, action="other"))
    assert out(rig, 5) == 3
    rig.switch.delete("t", entry(Exact(5), 0))
    assert out(rig, 5) == 1


def test_the_longest_prefix_wins_whatever_was_seen_before() -> None:
    rig = rig_with("lpm")
    assert out(rig, 0x0A0000000001) == 1
    rig.switch.insert("t", entry(Lpm(0x0A0000000000, 8), 2))
    assert out(rig, 0x0A0000000001) == 2
    rig.switch.insert("t", entry(Lpm(0x0A0000000001, 48), 3))
    rig.switch.insert("t", entry(Lpm(0, 0), 4))
    assert [out(rig, 0x0A0000000001), out(rig, 0x0A0000000002), out(rig, 1)] == [3, 2, 4]
    rig.switch.delete("t", entry(Lpm(0x0A0000000001, 48), 0))
    rig.switch.delete("t", entry(Lpm(0, 0), 0))
    assert [out(rig, 0x0A0000000001), out(rig, 1)] == [2, 1]


def test_the_larger_priority_wins_and_not_the_later_write() -> None:
    rig = rig_with("ternary")
    rig.switch.insert("t", entry(Ternary(0x10, 0xF0), 2, 10))
    rig.switch.insert("t", entry(Ternary(0x01, 0x0F), 3, 20))
    rig.switch.insert("t", entry(Ternary(0, 0), 4, 5))
    assert [out(rig, 0x11), out(rig, 0x12), out(rig, 0x21), out(rig, 0x22)] == [3, 2, 3, 4]
    rig.switch.delete("t", entry(Ternary(0x01, 0x0F), 0, 20))
    assert out(rig, 0x11) == 2


def test_optional_fields_match_one_value_or_all() -> None:
    rig = rig_with("ternary")
    rig.switch.insert("t", entry(Optional(7), 2, 2))
    rig.switch.insert("t", entry(Optional(None), 3, 1))
    assert [out(rig, 7), out(rig, 8)] == [2, 3]


def test_ranges_include_both_ends() -> None:
    rig = rig_with("range")
    rig.switch.insert("t", entry(Range(10, 20), 2, 1))
    rig.switch.insert("t", entry(Range(20, 30), 3, 2))
    assert [out(rig, n) for n in (9, 10, 19, 20, 30, 31)] == [1, 2, 2, 3, 3, 1]


@pytest.mark.parametrize("kind", ["exact", "lpm", "ternary", "range"])
def test_a_new_default_counts_at_once_and_none_is_the_programs(kind: str) -> None:
    rig = rig_with(kind)
    assert out(rig, 9) == 1
    rig.switch.set_default("t", "other", (3,))
    assert out(rig, 9) == 3
    rig.switch.set_default("t", None)
    assert out(rig, 9) == 1


def test_a_direct_counter_outlives_modify_and_skips_misses() -> None:
    rig = rig_with("exact")
    one = entry(Exact(5), 2)
    rig.switch.insert("t", one)
    for source in (5, 5, 6):
        out(rig, source)
    assert rig.switch.read_direct_counter("t", one) == (2, 28)
    rig.switch.modify("t", entry(Exact(5), 3))
    out(rig, 5)
    assert rig.switch.read_direct_counter("t", one) == (3, 42)
    rig.switch.write_direct_counter("t", one, 1, 2)
    assert rig.switch.read_direct_counter("t", one) == (1, 2)


@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        ("exact", entry(Lpm(1, 8), 1), "'eth.src' of table 't' is matched exact, got Lpm"),
        ("exact", entry(Exact(1 << 48), 1), "'eth.src' of table 't' is 48 bits wide"),
        ("exact", TableEntry((), 0, "send", (1,)), "matches on 1 fields, got 0"),
        ("exact", entry(Exact(1), 512), "parameter 'port' of 'send' is 9 bits wide, got 512"),
        ("exact", TableEntry((Exact(1),), 0, "send", ()), "action 'send' takes 1 parameters, got 0"),
        ("exact", entry(Exact(1), 1, action="fly"), "has no action 'fly'; it has: send, other"),
        ("lpm", entry(Lpm(1, 49), 1), "is matched lpm"),
        ("ternary", entry(Range(1, 2), 1), "is matched ternary"),
    ],
)
def test_entries_that_do_not_fit_are_refused_and_change_nothing(
    kind: str, bad: TableEntry, message: str
) -> None:
    rig = rig_with(kind)
    with pytest.raises(TableEntryError, match=message) as refusal:
        rig.switch.insert("t", bad)
    assert refusal.value.fault is EntryFault.INVALID
    assert rig.switch.table("t").entries() == []


def test_other_refusals() -> None:
    rig = rig_with("exact", size=2)
    rig.switch.insert("t", entry(Exact(1), 2))
    cases = [
        (EntryFault.EXISTS, lambda: rig.switch.insert("t", entry(Exact(1), 3))),
        (EntryFault.MISSING, lambda: rig.switch.modify("t", entry(Exact(2), 3))),
        (EntryFault.MISSING, lambda: rig.switch.delete("t", entry(Exact(2), 3))),
        (EntryFault.MISSING, lambda: rig.switch.insert("u", entry(Exact(2), 3))),
        (EntryFault.INVALID, lambda: rig.switch.set_default("t", "send", ())),
    ]
    for fault, write in cases:
        with pytest.raises(TableEntryError) as refusal:
            write()
        assert refusal.value.fault is fault
    rig.switch.insert("t", entry(Exact(2), 2))
    with pytest.raises(TableEntryError, match="full") as refusal:
        rig.switch.insert("t", entry(Exact(3), 2))
    assert refusal.value.fault is EntryFault.FULL
    assert out(rig, 1) == 2


def test_a_constant_default_stays() -> None:
    rig = rig_with("exact", default_const=True)
    rig.switch.set_default("t", "send", (1,))
    for action, params in (("send", (2,)), ("other", (1,))):
        with pytest.raises(TableEntryError) as refusal:
            rig.switch.set_default("t", action, params)
        assert refusal.value.fault is EntryFault.CONSTANT
    assert out(rig, 9) == 1
