// SPDX-License-Identifier: Apache-2.0
// INT v2.1 INT-MD on probes: every hop pushes 32 bytes, and the last one hands the probe to the CPU.
//
// The target defines TO_CPU(why, out_port): this packet is for the controller, `why` is one of REASON_*.

#ifndef POLYRHYTHM_TELEMETRY_P4
#define POLYRHYTHM_TELEMETRY_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// Ingress, probes only, once a port is chosen: a port that faces a host ends the probe's way.
control IntSink(inout headers_t hdr, inout metadata_t meta) {
    @name(".mark_edge") @id(MARK_EDGE_ACTION_ID)
    action mark_edge() {
        TO_CPU(REASON_INT_SINK, (bit<16>) meta.int_egress_port);
    }

    @name(".edge") @id(EDGE_TABLE_ID)
    table edge {
        key = { meta.egress_port : exact @name("port"); }
        actions = { mark_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = EDGE_SIZE;
    }

    apply {
        meta.int_egress_port = meta.egress_port;
        edge.apply();
    }
}

// Egress, probes only: push this hop's metadata, or leave the stack alone and say why in the E bit.
control IntTransit(inout headers_t hdr, inout metadata_t meta) {
    // The controller sets the default action's parameter to the switch's P4Runtime device id.
    @name(".set_switch_id") @id(SET_SWITCH_ID_ACTION_ID)
    action set_switch_id(bit<32> switch_id) {
        meta.switch_id = switch_id;
    }

    @name(".switch_identity") @id(SWITCH_IDENTITY_TABLE_ID)
    table switch_identity {
        actions = { set_switch_id; }
        default_action = set_switch_id(0);
        size = 1;
    }

    apply {
        if (hdr.int_shim.type == INT_TYPE_MD && hdr.int_md.version == INT_VERSION
            && hdr.int_md.hop_words == INT_HOP_WORDS && hdr.int_md.instructions == INT_INSTRUCTIONS) {
            if (hdr.int_md.remaining_hops == 0 || hdr.int_shim.length > INT_MAX_LENGTH) {
                hdr.int_md.exceeded = 1;
            } else {
                switch_identity.apply();
                hdr.int_hop.setValid();
                hdr.int_hop.node_id = meta.switch_id;
                hdr.int_hop.ingress_port_id = (bit<16>) meta.ingress_port;
                hdr.int_hop.egress_port_id = (bit<16>) meta.int_egress_port;
                // Modulo 2^32 either way, and 32 bits is the widest difference that hardware takes.
                hdr.int_hop.hop_latency = (bit<32>) meta.egress_time - (bit<32>) meta.ingress_time;
                hdr.int_hop.queue_id = (bit<8>) meta.qid;
                hdr.int_hop.queue_occupancy = (bit<24>) meta.queue_depth;
                hdr.int_hop.ingress_timestamp = (bit<64>) meta.ingress_time;
                hdr.int_hop.egress_timestamp = (bit<64>) meta.egress_time;
                hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
                hdr.int_shim.length = hdr.int_shim.length + (bit<8>) INT_HOP_WORDS;
#ifdef IPV6
                if (hdr.ipv6.isValid()) {
                    hdr.ipv6.payload_len = hdr.ipv6.payload_len + INT_HOP_BYTES;
                } else {
                    hdr.ipv4.total_len = hdr.ipv4.total_len + INT_HOP_BYTES;
                }
#else
                hdr.ipv4.total_len = hdr.ipv4.total_len + INT_HOP_BYTES;
#endif
                hdr.udp.length = hdr.udp.length + INT_HOP_BYTES;
                hdr.udp.checksum = 0;   // "none" (RFC 768, and RFC 6935 for IPv6): no hop has to sum the payload
            }
        }
    }
}

#endif
