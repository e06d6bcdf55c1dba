// SPDX-License-Identifier: Apache-2.0
// Value sets whose members match otherwise than exactly, and one of one exact field.
//
// Frame: kind (1 byte), number (2), flag (1). Leaves by port 3 where `wild` holds kind and number, by 4 where
// `plain` holds the flag, else by 1.

#include <core.p4>
#include <v1model.p4>

header frame_t {
    bit<8>  kind;
    bit<16> number;
    bit<8>  flag;
}

struct headers_t {
    frame_t frame;
}

struct metadata_t {
    bit<9> port;
}

struct wild_t {
    @match(ternary) bit<8>  kind;
    @match(range)   bit<16> number;
}

parser Read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<wild_t>(4) wild;
    value_set<bit<8>>(4) plain;

    state start {
        meta.port = 1;
        packet.extract(hdr.frame);
        transition select(hdr.frame.kind, hdr.frame.number) {
            wild: third;
            default: flag;
        }
    }

    state flag {
        transition select(hdr.frame.flag) {
            plain: fourth;
            default: accept;
        }
    }

    state third {
        meta.port = 3;
        transition accept;
    }

    state fourth {
        meta.port = 4;
        transition accept;
    }
}

control Check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control In(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = meta.port;
    }
}

control Out(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control Sum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Write(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.frame);
    }
}

V1Switch(Read(), Check(), In(), Out(), Sum(), Write()) main;
