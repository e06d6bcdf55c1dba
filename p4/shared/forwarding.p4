// SPDX-License-Identifier: Apache-2.0
// Where a packet goes: longest prefix -> next hop, or -> ECMP group -> hash bucket -> next hop.
//
// The target defines FLOW_HASH(result, fields...): CRC-32 as in zlib over the fields, first field in the
// most significant bits, result 32 bits wide. Every tier of the fabric reads a byte of its own: were two
// tiers to read the same bits, the second would see only the flows that the first sent its way, and
// would spread them over a fraction of its links (a seed does not help, for CRC is affine).

#ifndef POLYRHYTHM_FORWARDING_P4
#define POLYRHYTHM_FORWARDING_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// 13 bytes; the controller computes the same to choose source ports.
#define HASH_FLOW() \
    FLOW_HASH(meta.flow_hash, hdr.ipv4.src_addr, hdr.ipv4.dst_addr, hdr.ipv4.protocol, \
              meta.l4_src_port, meta.l4_dst_port)

control Forwarding(inout headers_t hdr, inout metadata_t meta) {
    @name(".drop") @id(DROP_ACTION_ID)
    action drop() {
        meta.egress_port = NO_PORT;
    }

    @name(".set_next_hop") @id(SET_NEXT_HOP_ACTION_ID)
    action set_next_hop(next_hop_id_t next_hop_id) {
        meta.use_next_hop = 1;
        meta.next_hop_id = next_hop_id;
    }

    // The hash is worked out only for packets that need it, so each action asks for it.
    @name(".set_ecmp_group_tier0") @id(SET_ECMP_GROUP_TIER0_ACTION_ID)
    action set_ecmp_group_tier0(group_id_t group_id) {
        HASH_FLOW();
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[7:0];
    }

    @name(".set_ecmp_group_tier1") @id(SET_ECMP_GROUP_TIER1_ACTION_ID)
    action set_ecmp_group_tier1(group_id_t group_id) {
        HASH_FLOW();
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[15:8];
    }

    @name(".set_ecmp_group_tier2") @id(SET_ECMP_GROUP_TIER2_ACTION_ID)
    action set_ecmp_group_tier2(group_id_t group_id) {
        HASH_FLOW();
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[23:16];
    }

    @name(".forward") @id(FORWARD_ACTION_ID)
    action forward(port_t port, mac_addr_t src_mac, mac_addr_t dst_mac) {
        meta.egress_port = port;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    @name(".routing") @id(ROUTING_TABLE_ID)
    table routing {
        key = { hdr.ipv4.dst_addr : lpm @name("ipv4_dst"); }
        actions = {
            set_next_hop;
            set_ecmp_group_tier0;
            set_ecmp_group_tier1;
            set_ecmp_group_tier2;
            drop;
        }
        const default_action = drop();
        size = ROUTING_SIZE;
    }

    @name(".ecmp") @id(ECMP_TABLE_ID)
    table ecmp {
        key = {
            meta.group_id : exact @name("group_id");
            meta.bucket : exact @name("bucket");
        }
        actions = { set_next_hop; @defaultonly drop; }
        const default_action = drop();
        size = ECMP_SIZE;
    }

    @name(".next_hop") @id(NEXT_HOP_TABLE_ID)
    table next_hop {
        key = { meta.next_hop_id : exact @name("next_hop_id"); }
        actions = { forward; @defaultonly drop; }
        const default_action = drop();
        size = NEXT_HOP_SIZE;
    }

    apply {
        routing.apply();
        if (meta.use_group == 1) {
            ecmp.apply();
        }
        if (meta.use_next_hop == 1) {
            next_hop.apply();
        }
    }
}

#endif
