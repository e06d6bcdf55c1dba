// SPDX-License-Identifier: Apache-2.0
// Header stacks, unions, fields of variable width, value sets and whole-header comparison.
//
// A packet is: kind(1) port(1), then by kind
//   1: labels of 2 bytes (value, more), up to 3, until `more` is 0     -> pushed, popped or indexed by value
//   2: which(1), then a short(1) or a long(2) member of a union
//   3: length(1) in bytes, then options of that length and a tail(2)
//   9 (a member of the value set): nothing
#include <core.p4>
#include <v1model.p4>

header head_t { bit<8> kind; bit<8> port; }
header label_t { bit<8> value; bit<8> more; }
header which_t { bit<8> which; }
header short_t { bit<8> s; }
header long_t { bit<16> l; }
header options_t { bit<8> length; varbit<64> options; bit<16> tail; }
header note_t { bit<8> text; }
header_union either_t { short_t short; long_t long; }

struct headers_t {
    head_t head;
    note_t note;
    label_t[3] labels;
    which_t which;
    either_t either;
    options_t first;
    options_t second;
}
struct metadata_t { bit<8> parser_error; }

parser Read(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) known_kinds;
    state start {
        packet.extract(h.head);
        transition select(h.head.kind) {
            known_kinds: known;
            1: label;
            2: union_kind;
            3: options;
            default: accept;
        }
    }
    state known {
        h.note.setValid();
        h.note.text = 0x4b;
        transition accept;
    }
    state label {
        packet.extract(h.labels.next);
        transition select(h.labels.last.more) {
            0: accept;
            default: label;
        }
    }
    state union_kind {
        packet.extract(h.which);
        transition select(h.which.which) {
            0: read_short;
            1: read_long;
            2: read_both;
            default: accept;
        }
    }
    state read_short { packet.extract(h.either.short); transition accept; }
    state read_long { packet.extract(h.either.long); transition accept; }
    state read_both { packet.extract(h.either.short); packet.extract(h.either.long); transition accept; }
    state options {
        bit<8> length = packet.lookahead<bit<8>>();
        packet.extract(h.first, (bit<32>) length * 8);
        transition accept;
    }
}

control Verify(inout headers_t h, inout metadata_t m) { apply { } }
control Compute(inout headers_t h, inout metadata_t m) { apply { } }

control In(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action push() { h.labels.push_front(1); h.labels[0].setValid(); h.labels[0].value = 0xaa; h.labels[0].more = 0xbb; }
    action pop() { h.labels.pop_front(2); }
    action pick() { h.note.setValid(); h.note.text = h.labels[(bit<32>) h.labels[0].value].value; }
    action set(bit<8> value) { h.labels[(bit<32>) h.labels[0].value].value = value; }
    action swap_union() { h.either.long.setValid(); h.either.long.l = 0x1234; }
    action copy() { h.second = h.first; h.second.tail = 0xfeed; }
    table work {
        key = { h.head.kind: exact; h.head.port: exact; }
        actions = { push; pop; pick; set; swap_union; copy; NoAction; }
        default_action = NoAction();
    }
    apply {
        s.egress_spec = 1;
        work.apply();
        if (h.head.port == 0xee) {
            h.note.setValid();
            h.note.text = 0;
            if (h.first == h.second) { h.note.text = 1; }
            if (h.either.isValid()) { h.note.text = h.note.text | 2; }
        }
        if (s.parser_error != error.NoError) { s.egress_spec = 2; }
    }
}
control Out(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control Write(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(Read(), Verify(), In(), Out(), Compute(), Write()) main;
