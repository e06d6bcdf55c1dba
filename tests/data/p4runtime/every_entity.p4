// SPDX-License-Identifier: Apache-2.0
// One of each P4Runtime entity that v1model can have, for the tests of the P4Runtime server.
//
// Frame: kind (1 byte), number (1), rid (1), colour (1).
//   kind 1: routed by `selected` (action selector)     kind 5: learned (digest of number)
//   kind 2: routed by `profiled` (action profile)      kind 6: multicast to group `number`
//   kind 3: direct meter and idle time-out by `aged`   kind 7: cloned to session `number`, itself dropped
//   kind 4: index_meters[number], seen[number] counts frames       kinds of the value set `bounced`: back to its port

#include <core.p4>
#include <v1model.p4>

header frame_t {
    bit<8> kind;
    bit<8> number;
    bit<8> rid;
    bit<8> colour;
}

struct headers_t {
    frame_t frame;
}

struct metadata_t {
    bit<1>  bounced;
    bit<32> colour;
}

struct learned_t {
    bit<8> number;
    bit<9> port;
}

parser FrameParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(4) bounced;

    state start {
        packet.extract(hdr.frame);
        transition select(hdr.frame.kind) {
            bounced: parse_bounced;
            default: accept;
        }
    }

    state parse_bounced {
        meta.bounced = 1;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control EntityIngress(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    action_selector(HashAlgorithm.crc16, 32w16, 32w14) choice;
    action_profile(4) profile;
    direct_meter<bit<32>>(MeterType.packets) entry_meter;
    direct_counter(CounterType.packets_and_bytes) entry_counter;
    meter(4, MeterType.packets) index_meters;
    register<bit<32>>(4) seen;

    action send(bit<9> port) {
        standard_metadata.egress_spec = port;
        hdr.frame.rid = (bit<8>) port;
    }

    action discard() {
        mark_to_drop(standard_metadata);
    }

    action metered(bit<9> port) {
        standard_metadata.egress_spec = port;
        entry_meter.read(meta.colour);
        entry_counter.count();
    }

    table selected {
        key = { hdr.frame.number : exact; hdr.frame.colour : selector; }
        actions = { send; discard; }
        implementation = choice;
        size = 16;
    }

    table profiled {
        key = { hdr.frame.number : ternary; }
        actions = { send; discard; }
        implementation = profile;
        size = 16;
    }

    table aged {
        key = { hdr.frame.number : exact; }
        actions = { metered; @defaultonly discard; }
        const default_action = discard();
        meters = entry_meter;
        counters = entry_counter;
        support_timeout = true;
        size = 16;
    }

    apply {
        mark_to_drop(standard_metadata);
        if (meta.bounced == 1) {
            standard_metadata.egress_spec = standard_metadata.ingress_port;
        } else if (hdr.frame.kind == 1) {
            selected.apply();
        } else if (hdr.frame.kind == 2) {
            profiled.apply();
        } else if (hdr.frame.kind == 3) {
            aged.apply();
            hdr.frame.colour = (bit<8>) meta.colour;
        } else if (hdr.frame.kind == 4) {
            bit<32> count;
            index_meters.execute_meter((bit<32>) hdr.frame.number, meta.colour);
            seen.read(count, (bit<32>) hdr.frame.number);
            seen.write((bit<32>) hdr.frame.number, count + 1);
            hdr.frame.colour = (bit<8>) meta.colour;
            standard_metadata.egress_spec = 1;
        } else if (hdr.frame.kind == 5) {
            digest<learned_t>(1, { hdr.frame.number, standard_metadata.ingress_port });
        } else if (hdr.frame.kind == 6) {
            standard_metadata.egress_spec = 0;
            standard_metadata.mcast_grp = (bit<16>) hdr.frame.number;
        } else if (hdr.frame.kind == 7) {
            clone(CloneType.I2E, (bit<32>) hdr.frame.number);
        }
    }
}

control EntityEgress(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    apply {
        hdr.frame.rid = (bit<8>) standard_metadata.egress_rid;
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.frame);
    }
}

V1Switch(FrameParser(), Verify(), EntityIngress(), EntityEgress(), Update(), FrameDeparser()) main;
