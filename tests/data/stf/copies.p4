// SPDX-License-Identifier: Apache-2.0
// Clones, resubmission, recirculation, digests, truncation, replication, meters, registers, selectors.
//
// A packet is: op(1) arg(1) mark(2). Egress writes into `mark` what kind of packet it is and what was kept.
#include <core.p4>
#include <v1model.p4>

const bit<8> KEPT = 1;

header op_t { bit<8> op; bit<8> arg; bit<8> kind; bit<8> kept; }
struct headers_t { op_t op; }
struct metadata_t {
    @field_list(KEPT) bit<8> kept;
    bit<8> lost;
    bit<2> colour;
}
struct news_t { bit<8> op; bit<8> arg; }

parser Read(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { packet.extract(h.op); transition accept; }
}
control Verify(inout headers_t h, inout metadata_t m) { apply { } }
control Compute(inout headers_t h, inout metadata_t m) { apply { } }

control In(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    meter(4, MeterType.packets) police;
    direct_meter<bit<2>>(MeterType.packets) own_police;
    direct_counter(CounterType.packets_and_bytes) own_count;
    counter(4, CounterType.packets_and_bytes) seen;
    register<bit<8>>(4) cells;
    action_selector(HashAlgorithm.crc16, 32w16, 32w16) choice;
    action_profile(8) shared;

    action clone_it() {
        m.kept = h.op.arg;
        m.lost = 1;
        clone_preserving_field_list(CloneType.I2E, 5, KEPT);
        h.op.arg = 0;
        s.egress_spec = 1;
    }
    action come_again() {
        m.kept = h.op.arg;
        resubmit_preserving_field_list(KEPT);
    }
    action tell() { digest<news_t>(1, { h.op.op, h.op.arg }); s.egress_spec = 1; }
    action cut() { truncate((bit<32>) h.op.arg); s.egress_spec = 1; }
    action replicate() { s.mcast_grp = (bit<16>) h.op.arg; truncate(5); }
    action metered() { police.execute_meter((bit<32>) h.op.arg, m.colour); h.op.kept = (bit<8>) m.colour; s.egress_spec = 1; }
    action note() {
        bit<8> before;
        cells.read(before, (bit<32>) h.op.arg);
        cells.write((bit<32>) h.op.arg, before + 3);
        seen.count((bit<32>) h.op.arg);
        log_msg("cell {} held {}", { h.op.arg, before });
        s.egress_spec = 1;
    }
    action claim() { assert(h.op.arg != 0xff); s.egress_spec = 1; }
    action round() { s.egress_spec = 4; }
    table work {
        key = { h.op.op: exact; }
        actions = { clone_it; come_again; tell; cut; replicate; metered; note; claim; round; NoAction; }
        default_action = NoAction();
    }
    action direct_meter_action() { own_police.read(m.colour); own_count.count(); h.op.kept = (bit<8>) m.colour; s.egress_spec = 1; }
    table own {
        key = { h.op.op: exact; }
        actions = { direct_meter_action; NoAction; }
        default_action = NoAction();
        meters = own_police;
        counters = own_count;
        support_timeout = true;
    }
    action out_of(bit<9> port) { s.egress_spec = port; }
    table group {
        key = { h.op.op: exact; h.op.arg: selector; }
        actions = { out_of; NoAction; }
        implementation = choice;
    }
    table member {
        key = { h.op.op: exact; }
        actions = { out_of; NoAction; }
        implementation = shared;
    }
    apply {
        if (s.instance_type == 6) {
            h.op.kind = 6;
            h.op.kept = m.kept;
            s.egress_spec = 1;
        } else if (s.instance_type == 4) {
            s.egress_spec = 1;
        } else {
            work.apply();
            own.apply();
            group.apply();
            member.apply();
        }
    }
}
control Out(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        if (s.instance_type == 1) { h.op.kind = 1; h.op.kept = m.kept + m.lost; }
        else if (s.instance_type == 2) { h.op.kind = 2; h.op.kept = m.kept; }
        else if (s.instance_type == 5) { h.op.kind = 5; h.op.kept = (bit<8>) s.egress_rid; }
        else if (h.op.op == 0x20 && h.op.kind == 0) {
            m.kept = 0x2a;
            clone_preserving_field_list(CloneType.E2E, 6, KEPT);
        }
        else if (s.egress_port == 4) {
            h.op.kind = 4;
            recirculate_preserving_field_list(KEPT);
        }
    }
}
control Write(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(Read(), Verify(), In(), Out(), Compute(), Write()) main;
