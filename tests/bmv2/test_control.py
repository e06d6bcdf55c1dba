# SPDX-License-Identifier: Apache-2.0
"""What the control plane sees of the rarer objects: profiles, meters, digests, value sets, ages, sessions."""

from pathlib import Path

import pytest
from bmv2_rig import Rig

from bmv2.calculations import CUSTOM, CrcParameters, CustomCrc, crc16
from bmv2.entries import EntryFault, Exact, GroupMember, MeterConfig, TableEntry, TableEntryError
from bmv2.meters import MeterCells

PROGRAMS = Path(__file__).parents[1] / "data" / "stf"
OWN = TableEntry((Exact(9),), 0, "In.direct_meter_action")
PROFILE, SELECTOR = "In.shared", "In.choice"


@pytest.fixture
def rig() -> Rig:
    return Rig((PROGRAMS / "copies.json").read_text())


def op(number: int, arg: int = 0) -> bytes:
    return bytes((number, arg, 0, 0))


def ports(rig: Rig) -> list[int]:
    return [port for _, port, _ in rig.sent]


def fault(refusal: pytest.ExceptionInfo[TableEntryError]) -> EntryFault:
    return refusal.value.fault


def test_a_member_leads_all_entries_that_name_it(rig: Rig) -> None:
    rig.switch.add_member(PROFILE, 7, "In.out_of", (2,))
    for number in (40, 41):
        rig.switch.insert("In.member", TableEntry((Exact(number),), 0, "", member=7))
    rig.switch.receive(1, op(40))
    rig.switch.modify_member(PROFILE, 7, "In.out_of", (3,))
    rig.switch.receive(1, op(41))
    assert ports(rig) == [2, 3]


def test_members_and_groups_in_use_stay(rig: Rig) -> None:
    switch = rig.switch
    switch.add_member(SELECTOR, 1, "In.out_of", (1,))
    switch.add_group(SELECTOR, 5, (GroupMember(1),))
    entry = TableEntry((Exact(50),), 0, "", group=5)
    switch.insert("In.group", entry)
    for refused in (
        lambda: switch.delete_member(SELECTOR, 1),
        lambda: switch.delete_group(SELECTOR, 5),
    ):
        with pytest.raises(TableEntryError) as refusal:
            refused()
        assert fault(refusal) is EntryFault.IN_USE
    switch.delete("In.group", entry)
    switch.delete_group(SELECTOR, 5)
    switch.delete_member(SELECTOR, 1)
    assert switch.profile(SELECTOR).members() == {}


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (TableEntry((Exact(1),), 0, "In.out_of", (1,)), "names a member or a group"),
        (TableEntry((Exact(1),), 0, "", member=9), "has no member 9"),
        (TableEntry((Exact(1),), 0, "", group=9), "has no group 9"),
    ],
)
def test_entries_of_profile_tables_name_what_exists(rig: Rig, entry: TableEntry, what: str) -> None:
    with pytest.raises(TableEntryError, match=what):
        rig.switch.insert("In.group", entry)
    assert rig.switch.table("In.group").entries() == []


def test_a_group_chooses_by_the_selectors_hash_in_the_order_of_handles(rig: Rig) -> None:
    switch = rig.switch
    # Handles, not numbers, give the order: 30 came first.
    for member, port in ((30, 1), (10, 2), (20, 3)):
        switch.add_member(SELECTOR, member, "In.out_of", (port,))
    switch.add_group(SELECTOR, 1, (GroupMember(10), GroupMember(20), GroupMember(30)))
    switch.insert("In.group", TableEntry((Exact(60),), 0, "", group=1))
    expected = []
    for arg in range(40):
        rig.switch.receive(1, op(60, arg))
        expected.append((1, 2, 3)[crc16(bytes((arg,))) % 3])
    assert ports(rig) == expected
    assert set(expected) == {1, 2, 3}


def test_weights_and_watched_ports(rig: Rig) -> None:
    switch = rig.switch
    for member, port in ((1, 1), (2, 2)):
        switch.add_member(SELECTOR, member, "In.out_of", (port,))
    switch.add_group(SELECTOR, 1, (GroupMember(1, weight=2, watch_port=1), GroupMember(2)))
    switch.insert("In.group", TableEntry((Exact(60),), 0, "", group=1))

    def shares() -> tuple[int, int]:
        rig.sent.clear()
        for arg in range(256):
            switch.receive(3, op(60, arg))
        return ports(rig).count(1), ports(rig).count(2)

    first, second = shares()
    assert first + second == 256
    assert 1.5 * second < first < 2.5 * second
    switch.set_port_up(1, False)
    assert shares() == (0, 256)
    switch.set_port_up(1, True)
    assert shares() == (first, second)
    switch.modify_group(SELECTOR, 1, ())
    # An empty group is a hit without an action: egress_spec stays 0, where there is no port.
    assert shares() == (0, 0)
    assert switch.misdirected == 256


def test_group_sizes_and_doubles_are_refused(rig: Rig) -> None:
    rig.switch.add_member(SELECTOR, 1, "In.out_of", (1,))
    with pytest.raises(TableEntryError, match="takes 2 members with their weights, got 3"):
        rig.switch.add_group(SELECTOR, 1, (GroupMember(1, weight=3),), max_size=2)
    with pytest.raises(TableEntryError, match="holds a member twice"):
        rig.switch.add_group(SELECTOR, 1, (GroupMember(1), GroupMember(1)))
    rig.switch.add_member(PROFILE, 1, "In.out_of", (1,))
    with pytest.raises(TableEntryError, match="has no selector"):
        rig.switch.add_group(PROFILE, 1, (GroupMember(1),))
    for member in range(2, 9):
        rig.switch.add_member(PROFILE, member, "In.out_of", (1,))
    with pytest.raises(TableEntryError, match=r"is full \(8 members\)"):
        rig.switch.add_member(PROFILE, 9, "In.out_of", (1,))


def test_a_direct_meter_colours_what_hits_its_entry(rig: Rig) -> None:
    rig.switch.insert("In.own", OWN)
    config = MeterConfig(cir=1, cburst=1, pir=1, pburst=2)
    assert rig.switch.read_direct_meter("In.own", OWN) is None
    rig.switch.set_direct_meter("In.own", OWN, config)
    for _ in range(4):
        rig.switch.receive(2, op(9))
    assert [frame[3] for frame in rig.frames(1)] == [0, 1, 2, 2]
    assert rig.switch.read_direct_meter("In.own", OWN) == config
    assert rig.switch.read_direct_counter("In.own", OWN) == (4, 16)
    rig.switch.set_direct_meter("In.own", OWN, None)
    rig.switch.receive(2, op(9))
    assert rig.frames(1)[-1][3] == 0


@pytest.mark.parametrize("config", [MeterConfig(2, 1, 1, 1), MeterConfig(-1, 1, 1, 1)])
def test_meters_without_sense_are_refused(rig: Rig, config: MeterConfig) -> None:
    with pytest.raises(TableEntryError) as refusal:
        rig.switch.set_meter("In.police", 0, config)
    assert fault(refusal) is EntryFault.INVALID
    assert rig.switch.read_meter("In.police") == [None] * 4


def test_the_meters_of_an_array_are_configured_one_by_one_or_all() -> None:
    """Those that nobody used take no memory: the array may have millions."""
    tight, wide = MeterConfig(0, 1, 0, 1), MeterConfig(9, 9, 9, 9)
    meters = MeterCells(1 << 24, by_bytes=False)
    meters[3].set(wide)
    assert [meters[3].execute(1, 0), meters[4].execute(1, 0)] == [0, 0]
    meters.set_all(tight)
    meters[5].set(None)
    for index, colours in ((3, [0, 2]), (1 << 23, [0, 2]), (5, [0, 0])):
        assert [meters[index].execute(1, 0) for _ in colours] == colours
    assert len(meters) == 3
    with pytest.raises(TableEntryError):
        meters.set_all(MeterConfig(2, 1, 1, 1))
    assert MeterCells(2, by_bytes=True).configs() == [None, None]


def test_entries_age_from_their_last_hit(rig: Rig) -> None:
    aging = TableEntry((Exact(9),), 0, "In.direct_meter_action", timeout_ns=5_000_000)
    rig.clock.now = 1_000_000
    rig.switch.insert("In.own", aging)
    assert rig.switch.entry_hit_time("In.own", aging) == 1_000_000
    rig.clock.now = 4_000_000
    rig.switch.receive(1, op(9))
    rig.clock.now = 8_999_000
    assert rig.switch.idle_entries("In.own") == []
    rig.clock.now = 9_000_000
    assert rig.switch.idle_entries("In.own") == [aging]
    assert rig.switch.entry_hit_time("In.own", aging) == 4_000_000
    with pytest.raises(TableEntryError, match="do not age"):
        rig.switch.insert("In.work", TableEntry((Exact(1),), 0, "NoAction", timeout_ns=1))


def test_digests_carry_the_fields_when_the_packet_left_ingress(rig: Rig) -> None:
    rig.switch.insert("In.work", TableEntry((Exact(3),), 0, "In.tell"))
    rig.switch.receive(1, op(3, 0x42))
    news: list[tuple[str, tuple[int, ...]]] = []
    rig.switch.digest = lambda name, values: news.append((name, values))
    rig.switch.receive(1, op(3, 0x43))
    assert news == [("news_t", (3, 0x43))]


def test_a_session_may_cut_its_clones(rig: Rig) -> None:
    rig.switch.insert("In.work", TableEntry((Exact(1),), 0, "In.clone_it"))
    rig.switch.set_clone_session(5, ((2, 0), (3, 9)), truncate=6)
    rig.switch.receive(1, op(1, 0x30) + b"payload")
    assert rig.frames(2) == rig.frames(3) == [bytes((1, 0x30, 1, 0x30)) + b"pa"]
    assert rig.frames(1) == [bytes((1, 0, 0, 0)) + b"payload"]
    rig.switch.set_clone_session(5, ())
    rig.switch.receive(1, op(1))
    assert len(rig.frames(2)) == 1
    with pytest.raises(TableEntryError, match=r"in 0\.\.32767"):
        rig.switch.set_clone_session(40_000, ((1, 0),))


def test_a_packet_that_comes_again_takes_time(rig: Rig) -> None:
    rig.switch.insert("In.work", TableEntry((Exact(2),), 0, "In.come_again"))
    rig.switch.receive(1, op(2, 7))
    assert rig.sent == []
    rig.clock.run()
    assert rig.sent == [(1000, 1, bytes((2, 7, 6, 7)))]


def test_logs_and_failed_assertions_are_told(rig: Rig) -> None:
    lines: list[str] = []
    rig.switch.log = lines.append
    rig.switch.insert("In.work", TableEntry((Exact(7),), 0, "In.note"))
    rig.switch.insert("In.work", TableEntry((Exact(8),), 0, "In.claim"))
    rig.switch.write_register("In.cells", 1, 0x21)
    rig.switch.receive(1, op(7, 1))
    rig.switch.receive(1, op(8, 0xFF))
    assert lines[0] == "cell 1 held 33"
    assert "assert failed in action 'In.claim'" in lines[1]
    assert "copies.p4" in lines[1]
    assert rig.switch.failed_assertions == 1
    assert rig.switch.read_register("In.cells") == [0, 0x24, 0, 0]
    with pytest.raises(TableEntryError, match="8 bits wide"):
        rig.switch.write_register("In.cells", 0, 256)


def test_value_sets_decide_where_the_parser_goes() -> None:
    rig = Rig((PROGRAMS / "structures.json").read_text())
    name = "Read.known_kinds"
    assert rig.switch.read_value_set(name) == ()
    rig.switch.receive(2, b"\x09\x00")
    rig.switch.set_value_set(name, ((9,), (8,)))
    rig.switch.insert_value_set_member(name, (7,))
    for kind in (9, 8, 7, 6):
        rig.switch.receive(2, bytes((kind, 0)))
    kept = [bytes((kind, 0)) for kind in (9, 6)]
    told = [bytes((kind, 0, 0x4B)) for kind in (9, 8, 7)]
    assert rig.frames(1) == [kept[0], *told, kept[1]]
    for members, what in (
        (((1,), (2,), (3,), (4,), (5,)), "takes 4 members, got 5"),
        (((256,),), "8 bits wide"),
        (((1, 2),), "has 1 fields, got 2"),
    ):
        with pytest.raises(TableEntryError, match=what):
            rig.switch.set_value_set(name, members)
    assert len(rig.switch.read_value_set(name)) == 3


def test_custom_checks_start_as_the_known_ones() -> None:
    data = b"123456789"
    assert CustomCrc(CUSTOM["crc32_custom"])(data) == 0xCBF43926
    assert CustomCrc(CUSTOM["crc16_custom"])(data) == crc16(data) == 0xBB3D
    assert CustomCrc(CUSTOM["crc8_custom"])(data) == 0xF4
    assert CustomCrc(CrcParameters(16, 0x1021, 0xFFFF, 0, False, False))(data) == 0x29B1


@pytest.mark.parametrize("name", ["no", "In.cells"])
def test_unknown_names_are_not_found(rig: Rig, name: str) -> None:
    for call in (
        lambda: rig.switch.read_meter(name),
        lambda: rig.switch.read_value_set(name),
        lambda: rig.switch.add_member(name, 1, "In.out_of", (1,)),
        lambda: rig.switch.read_counter(name),
    ):
        with pytest.raises(TableEntryError) as refusal:
            call()
        assert fault(refusal) is EntryFault.MISSING
