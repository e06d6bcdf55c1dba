// SPDX-License-Identifier: Apache-2.0
// Values that clients see otherwise than the program: translated types, names of errors and enums, and what p4c
// declares in ways of its own (unnamed digests, unions used by their members only, tables without effect).

#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("example/port", string)
type bit<9> Port_t;
@p4runtime_translation("example/more_bits", 24)
type bit<16> More_t;
@p4runtime_translation("example/fewer_bits", 8)
type bit<16> Fewer_t;
type bit<8> Plain_t;

enum Reason_t { NONE, LEARNT }
enum bit<8> Colour_t { RED = 3, BLUE = 9 }

@controller_header("packet_out")
header packet_out_t {
    Port_t port;
    bit<7> pad;
    Fewer_t fewer;
}

@controller_header("packet_in")
header packet_in_t {
    Port_t port;
    bit<7> pad;
    More_t more;
}

header frame_t {
    More_t more;
    Fewer_t fewer;
    Plain_t plain;
    Colour_t colour;
}

header one_t { bit<8> one; }
header two_t { bit<16> two; }
header_union tail_t {
    one_t one;
    two_t two;
}

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    frame_t frame;
    tail_t tail;
}

struct meta_t {
    Port_t port;
    error problem;
}

parser Parse(packet_in packet, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    value_set<bit<16>>(4) special;

    state start {
        transition select(s.ingress_port) {
            255: from_controller;
            default: frame;
        }
    }
    state from_controller {
        packet.extract(h.packet_out);
        transition frame;
    }
    state frame {
        packet.extract(h.frame);
        transition select((bit<16>) h.frame.more) {
            special: with_one;
            default: accept;
        }
    }
    state with_one {
        packet.extract(h.tail.one);
        transition accept;
    }
}

control Check(inout headers_t h, inout meta_t m) { apply { } }

control Translated(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    register<Colour_t>(4) colours;

    action send(Port_t port) { s.egress_spec = (bit<9>) port; }
    action stamp(More_t more, Fewer_t fewer) {
        h.frame.more = more;
        h.frame.fewer = fewer;
    }
    table by_port {
        key = { m.port: exact; }
        actions = { send; NoAction; }
        default_action = NoAction();
    }
    table by_masks {
        key = {
            h.frame.more: lpm;
            h.frame.fewer: ternary;
        }
        actions = { stamp; NoAction; }
        default_action = NoAction();
    }
    table by_range {
        key = {
            h.frame.more: range;
            h.frame.fewer: optional;
        }
        actions = { stamp; NoAction; }
        default_action = NoAction();
    }
    table by_error {
        key = { m.problem: exact; }
        actions = { stamp; NoAction; }
        default_action = NoAction();
    }
    table idle {
        key = { }
        actions = { }
    }
    apply {
        s.egress_spec = 255;
        m.port = (Port_t) s.ingress_port;
        m.problem = s.parser_error;
        if (h.packet_out.isValid()) {
            s.egress_spec = (bit<9>) h.packet_out.port;
            h.frame.fewer = h.packet_out.fewer;
            h.packet_out.setInvalid();
        } else {
            by_port.apply();
            by_masks.apply();
            by_range.apply();
            by_error.apply();
            idle.apply();
            colours.write(1, h.frame.colour);
            digest(1, { h.frame.more, Reason_t.LEARNT, s.parser_error, h.tail.one.isValid(), h.frame.colour,
                        m.port, h.frame.plain });
        }
    }
}

control Leaving(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        if (s.egress_port == 255) {
            h.packet_in.setValid();
            h.packet_in.port = (Port_t) s.ingress_port;
            h.packet_in.pad = 0;
            h.packet_in.more = h.frame.more;
        }
    }
}

control Compute(inout headers_t h, inout meta_t m) { apply { } }

control Deparse(packet_out packet, in headers_t h) {
    apply {
        packet.emit(h.packet_in);
        packet.emit(h.frame);
        packet.emit(h.tail);
    }
}

V1Switch(Parse(), Check(), Translated(), Leaving(), Compute(), Deparse()) main;
