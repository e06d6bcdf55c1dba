# SPDX-License-Identifier: Apache-2.0
"""Desired state, differences and encoding."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.southbound.artefacts import ArtefactError, load_artefacts
from controller.southbound.codec import Codec, PipelineError, canonical
from controller.southbound.desired import (
    ALWAYS_MARK,
    MAX_DEPTH,
    EcnProfile,
    Entry,
    backups,
    desired_entries,
)
from controller.southbound.diff import UpdateType, difference
from topo.generate import leaf_spine

CODEC = Codec(load_artefacts())
ECN = EcnProfile(5, 50, 0.1)


def wanted(down=frozenset(), name="leaf1"):
    topology = leaf_spine(3, 3, 2, host_bps=1, fabric_bps=1)
    table = forwarding(topology, down, frozenset())
    dead = {p for p, peer in topology.ports[name].items() if tuple(sorted((name, peer.node))) in down}
    return desired_entries(topology.switch[name], table[name], TRAFFIC_CLASSES, ECN, down_ports=dead)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 1000), st.floats(0, 1))
def test_the_ecn_ramp_is_a_rising_staircase_without_gaps(kmin, width, pmax):
    ramp = EcnProfile(kmin, kmin + width, pmax).ramp()
    assert ramp[0][0] == kmin + 1 or width == 1
    assert ramp[-1] == (kmin + width, MAX_DEPTH, ALWAYS_MARK)
    for (_, high, before), (low, _, after) in pairwise(ramp):
        assert low == high + 1
        assert before <= after
    assert all(low <= high for low, high, _ in ramp)
    # The mean of a step stays within a step of the line it stands for.
    for low, high, probability in ramp[:-1]:
        assert (low - kmin - 1) / width * pmax * ALWAYS_MARK - 1 <= probability
        assert probability <= (high - kmin + 1) / width * pmax * ALWAYS_MARK + 1


@pytest.mark.parametrize("profile", [(5, 5, 0.1), (-1, 5, 0.1), (1, 5, 1.5), (1, MAX_DEPTH + 1, 0.1)])
def test_an_impossible_ecn_profile_is_refused(profile):
    with pytest.raises(ValueError, match="kmin"):
        EcnProfile(*profile)


def with_depth_unit(unit):
    """The artefacts of a program that counts depth in another unit."""
    artefacts = load_artefacts()
    told = rb"@depth_unit(\"packets\")"
    assert told in artefacts.p4info
    return replace(artefacts, p4info=artefacts.p4info.replace(told, told.replace(b"packets", unit)))


def test_depths_are_told_in_the_units_that_the_program_names():
    assert Codec(load_artefacts()).depth_cell_bytes is None
    assert Codec(with_depth_unit(b"cells of 80 bytes")).depth_cell_bytes == 80
    # 1,082 bytes take 14 cells.
    assert EcnProfile(5, 50, 0.2).in_cells(80) == EcnProfile(70, 700, 0.2)
    with pytest.raises(PipelineError, match="cells of N bytes"):
        Codec(with_depth_unit(b"bushels"))


def test_every_queue_but_the_top_one_is_marked():
    marked = {dict(e.match)["qid"] for e in wanted() if e.table == "ecn"}
    assert marked == set(range(7))


def test_tcp_has_a_ramp_of_its_own_that_begins_at_an_empty_queue():
    """Where ecn_tcp has no entry, ecn decides: so the depths that are not marked need one too."""
    topology = leaf_spine(3, 3, 2, host_bps=1, fabric_bps=1)
    table = forwarding(topology, frozenset(), frozenset())
    ecn = EcnProfile(5, 50, 0.1, tcp=EcnProfile(8, 30, 1.0))
    entries = desired_entries(topology.switch["leaf1"], table["leaf1"], TRAFFIC_CLASSES, ecn)
    own = [e for e in entries if e.table == "ecn_tcp"]
    assert {e.action for e in own} == {"set_tcp_mark_probability"}
    for queue in range(7):
        ranges = [dict(e.match)["depth"] for e in own if dict(e.match)["qid"] == queue]
        assert (ranges[0], ranges[-1][1]) == ((0, 8), MAX_DEPTH)
        assert all(low == high + 1 for (_, high), (low, _) in pairwise(ranges))
    assert [e.params for e in own if dict(e.match)["depth"] in ((0, 8), (30, MAX_DEPTH))] == [
        (0,),
        (ALWAYS_MARK,),
    ] * 7
    shared = replace(ecn, tcp=None)
    others = desired_entries(topology.switch["leaf1"], table["leaf1"], TRAFFIC_CLASSES, shared)
    assert tuple(e for e in entries if e.table != "ecn_tcp") == others
    assert ecn.in_cells(80).tcp == EcnProfile(112, 420, 1.0)


def test_the_desired_state_names_each_key_once_and_refers_to_nothing_missing():
    entries = wanted()
    assert len({e.key for e in entries}) == len(entries)
    assert dangling(entries) == set()
    assert sum(e.table == "ecmp" for e in entries) % 256 == 0


def dangling(entries):
    """References to next hops and groups that are not there."""
    hops = {dict(e.match)["next_hop_id"] for e in entries if e.table == "next_hop"}
    groups = {dict(e.match)["group_id"] for e in entries if e.table == "ecmp"}
    missing = set()
    for e in entries:
        if e.action.startswith("set_next_hop"):
            named = {e.params[0], e.params[-1]}
            missing |= {("next_hop", hop) for hop in named - hops}
        if e.action.startswith("set_ecmp_group") and e.params[0] not in groups:
            missing.add(("group", e.params[0]))
    return missing


def play(held, stages):
    """Apply stage after stage; checks that each update is legal and nothing ever dangles."""
    state = {e.key: e for e in held}
    for stage in stages:
        for change in stage:
            key = change.entry.key
            if change.operation == UpdateType.INSERT:
                assert key not in state
                state[key] = change.entry
            elif change.operation == UpdateType.MODIFY:
                assert key in state or change.entry.is_default
                state[key] = change.entry
            else:
                del state[key]
        yield state


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8, unique=True))
def test_a_member_is_backed_up_by_all_others_alike(members):
    buckets = [members[b % len(members)] for b in range(256)]
    spare = backups(buckets)
    if len(members) == 1:
        assert set(spare) == {None}
        return
    assert all(b is not None and b != m for m, b in zip(buckets, spare, strict=True))
    for member in members:
        shares = Counter(b for m, b in zip(buckets, spare, strict=True) if m == member)
        assert set(shares) == set(members) - {member}
        assert max(shares.values()) - min(shares.values()) <= 1


def test_every_bucket_names_its_port_and_a_live_backup():
    down = frozenset({("leaf1", "spine1")})
    for entries, ways in ((wanted(), 3), (wanted(down), 2)):
        hops = {dict(e.match)["next_hop_id"]: e.params[0] for e in entries if e.table == "next_hop"}
        buckets = [e for e in entries if e.table == "ecmp"]
        assert {e.action for e in buckets} == {"set_next_hop_with_backup"}
        assert all(hops[e.params[0]] == e.params[1] for e in buckets)
        # Towards each of the two other leaves.
        assert len({e.params[0] for e in buckets}) == len({e.params[2] for e in buckets}) == ways
    # Where there is one way only, there is no group and no backup.
    two_down = down | {("leaf1", "spine2")}
    assert [e for e in wanted(two_down) if e.table == "ecmp"] == []


def test_a_dead_port_is_entered_first_and_taken_out_last():
    down = frozenset({("leaf1", "spine1")})
    dead, alive = wanted(down), wanted()
    first = difference(alive, dead)[0]
    assert [str(c.entry) for c in first] == ["port_state[port=3] -> set_port_down()"]
    last = difference(dead, alive)[-1]
    assert [(c.operation, c.entry.table) for c in last] == [(UpdateType.DELETE, "port_state")]


LINKS = [(f"leaf{i}", f"spine{k}") for i in (1, 2, 3) for k in (1, 2, 3)]
DOWN = st.frozensets(st.sampled_from(LINKS), max_size=4)


@settings(deadline=None)
@given(DOWN, DOWN, st.sampled_from(["leaf1", "spine2"]))
def test_a_difference_leads_there_and_never_dangles(before, after, name):
    held, target = wanted(before, name), wanted(after, name)
    state = {e.key: e for e in held}
    for state in play(held, difference(held, target)):
        assert dangling(state.values()) == set()
    assert set(state.values()) == set(target)


@settings(deadline=None)
@given(
    st.frozensets(st.sampled_from(wanted()), max_size=60),
    st.frozensets(st.sampled_from(wanted()), max_size=60),
)
def test_a_difference_is_the_smallest(held, target):
    stages = difference(held, target)
    keys = [c.entry.key for stage in stages for c in stage]
    assert len(keys) == len(set(keys))
    moved = {e.key for e in held ^ target if not (e.is_default and e in held)}
    assert set(keys) == moved


def test_rights_that_come_and_go_take_one_stage():
    def right(host):
        return Entry("planned_pair", (("port", host), ("src_ipv4", host), ("dst_ipv4", 9)), "set_sends")

    (stage,) = difference([right(1), right(2)], [right(2), right(3)])
    assert [(c.operation, c.entry) for c in stage] == [
        (UpdateType.INSERT, right(3)),
        (UpdateType.DELETE, right(1)),
    ]


def test_entries_of_tables_that_are_not_ours_stay():
    theirs = Entry("acl", (("ipv4_src", 1),), "deny")
    assert difference((theirs, *wanted()), wanted()) == ()


def test_nothing_to_do_is_no_stage():
    assert difference(wanted(), wanted()) == ()


@settings(deadline=None)
@given(st.sampled_from(wanted() + wanted(name="spine1")))
def test_an_entry_survives_the_wire(entry):
    assert CODEC.decode(p4r.TableEntry.FromString(CODEC.encode(entry).SerializeToString())) == entry


@settings(deadline=None)
@given(st.integers(0, 2**64))
def test_canonical_bytes_are_the_shortest(value):
    data = canonical(value)
    assert int.from_bytes(data, "big") == value
    assert len(data) == 1 or data[0] != 0


def test_writes_come_in_chunks_that_keep_the_stages():
    stages = difference((), wanted())
    requests = CODEC.write_requests(7, stages, chunk=100)
    assert len(requests) == len(stages)
    for stage, chunks in zip(stages, requests, strict=True):
        messages = [p4r.WriteRequest.FromString(data) for data in chunks]
        assert all(len(m.updates) <= 100 and m.device_id == 7 for m in messages)
        assert sum(len(m.updates) for m in messages) == len(stage)


@pytest.mark.parametrize(
    "entry",
    [
        Entry("no_table", (("x", 1),), "drop"),
        Entry("queue", (("dscp", 1),), "no_action"),
        Entry("queue", (("dscp", 1),), "set_queue", (1, 2)),
        Entry("queue", (("depth", 1),), "set_queue", (1,)),
        Entry("queue", (("dscp", (1, 2)),), "set_queue", (1,)),
    ],
)
def test_what_the_program_lacks_is_named(entry):
    with pytest.raises(PipelineError):
        CODEC.encode(entry)


def test_missing_artefacts_are_said(tmp_path):
    with pytest.raises(ArtefactError, match="make p4"):
        load_artefacts(tmp_path)


def test_a_folder_of_artefacts_holds_one_program(tmp_path):
    info = tmp_path / "mine.p4info.txtpb"
    info.write_bytes(b"p4info")
    with pytest.raises(ArtefactError, match=r"mine\.p4info\.txtpb: no device config was found beside it"):
        load_artefacts(tmp_path)
    (tmp_path / "mine.json").write_bytes(b"json")
    first = load_artefacts(tmp_path)
    assert (first.p4info, first.device_config) == (b"p4info", b"json")
    (tmp_path / "mine.bin").write_bytes(b"packed")
    second = load_artefacts(tmp_path)
    assert (second.device_config, second.cookie == first.cookie) == (b"packed", False)
    (tmp_path / "mine.bin").write_bytes(b"")
    with pytest.raises(ArtefactError, match=r"mine\.bin: the file is empty"):
        load_artefacts(tmp_path)
    (tmp_path / "other.p4info.txtpb").write_bytes(b"")
    with pytest.raises(ArtefactError, match=r"found: mine\.p4info\.txtpb, other\.p4info\.txtpb"):
        load_artefacts(tmp_path)
    with pytest.raises(ArtefactError, match="must hold exactly one compiled P4 program"):
        load_artefacts(tmp_path / "nowhere")
