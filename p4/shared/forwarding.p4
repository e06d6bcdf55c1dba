// SPDX-License-Identifier: Apache-2.0
// Where a packet goes: longest prefix -> next hop, or -> ECMP group -> pinned flow or hash bucket -> next
// hop, or -> its backup while the port it would leave by is down.
//
// The target defines HASH_IN_ROUTE(result, fields...), or leaves it empty and sets meta.flow_hash from
// FLOW_FIELDS (of an IPv6 packet: FLOW_FIELDS_IPV6) before: CRC-32 as in zlib over the fields, first field in the most
// significant bits, result 32 bits wide. Every tier of the fabric reads a byte of its own: were two
// tiers to read the same bits, the second would see only the flows that the first sent its way, and
// would spread them over a fraction of its links (a seed does not help, for CRC is affine).

#ifndef POLYRHYTHM_FORWARDING_P4
#define POLYRHYTHM_FORWARDING_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// 13 bytes; the controller computes the same to choose source ports.
#define FLOW_FIELDS \
    hdr.ipv4.src_addr, hdr.ipv4.dst_addr, hdr.ipv4.protocol, meta.l4_src_port, meta.l4_dst_port
// 37 bytes. The flow label is left out: a sender may choose it as it likes, and a probe could not know it.
#define FLOW_FIELDS_IPV6 \
    hdr.ipv6.src_addr, hdr.ipv6.dst_addr, hdr.ipv6.next_header, meta.l4_src_port, meta.l4_dst_port

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

    // `port` is the one that next_hop_id leaves by; port_state decides which of the two it is.
    @name(".set_next_hop_with_backup") @id(SET_NEXT_HOP_WITH_BACKUP_ACTION_ID)
    action set_next_hop_with_backup(next_hop_id_t next_hop_id, port_t port,
                                    next_hop_id_t backup_next_hop_id) {
        meta.use_next_hop = 1;
        meta.next_hop_id = next_hop_id;
        meta.has_backup = 1;
        meta.watched_port = port;
        meta.backup_next_hop_id = backup_next_hop_id;
    }

    @name(".set_port_down") @id(SET_PORT_DOWN_ACTION_ID)
    action set_port_down() {
        meta.use_backup = 1;
    }

    // A software target works the hash out only for packets that need it, so each action asks for it.
    @name(".set_ecmp_group_tier0") @id(SET_ECMP_GROUP_TIER0_ACTION_ID)
    action set_ecmp_group_tier0(group_id_t group_id) {
        HASH_IN_ROUTE(meta.flow_hash, FLOW_FIELDS)
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[7:0];
    }

    @name(".set_ecmp_group_tier1") @id(SET_ECMP_GROUP_TIER1_ACTION_ID)
    action set_ecmp_group_tier1(group_id_t group_id) {
        HASH_IN_ROUTE(meta.flow_hash, FLOW_FIELDS)
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[15:8];
    }

    @name(".set_ecmp_group_tier2") @id(SET_ECMP_GROUP_TIER2_ACTION_ID)
    action set_ecmp_group_tier2(group_id_t group_id) {
        HASH_IN_ROUTE(meta.flow_hash, FLOW_FIELDS)
        meta.use_group = 1;
        meta.group_id = group_id;
        meta.bucket = meta.flow_hash[23:16];
    }

    @name(".forward") @id(FORWARD_ACTION_ID)
    action forward(port_t port, mac_addr_t src_mac, mac_addr_t dst_mac) {
        meta.egress_port = port;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        IP_TTL = IP_TTL - 1;
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

    // Flows that no source port would lead to their path; looked up only where there is a choice.
    @name(".pinned_flow") @id(PINNED_FLOW_TABLE_ID)
    table pinned_flow {
        key = {
            hdr.ipv4.src_addr : exact @name("ipv4_src");
            hdr.ipv4.dst_addr : exact @name("ipv4_dst");
            hdr.ipv4.protocol : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { set_next_hop; set_next_hop_with_backup; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PINNED_FLOW_SIZE;
    }

    @name(".ecmp") @id(ECMP_TABLE_ID)
    table ecmp {
        key = {
            meta.group_id : exact @name("group_id");
            meta.bucket : exact @name("bucket");
        }
        actions = { set_next_hop; set_next_hop_with_backup; @defaultonly drop; }
        const default_action = drop();
        size = ECMP_SIZE;
    }

    // The ports that are down: one entry turns every bucket and pinned flow of a port to its backup.
    @name(".port_state") @id(PORT_STATE_TABLE_ID)
    table port_state {
        key = { meta.watched_port : exact @name("port"); }
        actions = { set_port_down; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORT_STATE_SIZE;
    }

    @name(".next_hop") @id(NEXT_HOP_TABLE_ID)
    table next_hop {
        key = { meta.next_hop_id : exact @name("next_hop_id"); }
        actions = { forward; @defaultonly drop; }
        const default_action = drop();
        size = NEXT_HOP_SIZE;
    }

#ifdef IPV6
    @name(".routing_ipv6") @id(ROUTING_IPV6_TABLE_ID)
    table routing_ipv6 {
        key = { hdr.ipv6.dst_addr : lpm @name("ipv6_dst"); }
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

    @name(".pinned_flow_ipv6") @id(PINNED_FLOW_IPV6_TABLE_ID)
    table pinned_flow_ipv6 {
        key = {
            hdr.ipv6.src_addr : exact @name("ipv6_src");
            hdr.ipv6.dst_addr : exact @name("ipv6_dst");
            hdr.ipv6.next_header : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { set_next_hop; set_next_hop_with_backup; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PINNED_FLOW_SIZE;
    }
#endif

    // A target may define SPREADING: a control that changes meta.bucket for some packets.
#ifdef SPREADING
    SPREADING() spreading;
#endif

    apply {
#ifdef IPV6
        if (hdr.ipv6.isValid()) {
            routing_ipv6.apply();
        } else {
            routing.apply();
        }
        if (meta.use_group == 1) {
            if (hdr.ipv6.isValid()) {
                pinned_flow_ipv6.apply();
            } else {
                pinned_flow.apply();
            }
            if (meta.use_next_hop == 0) {
#ifdef SPREADING
                spreading.apply(hdr, meta);
#endif
                ecmp.apply();
            }
        }
#else
        routing.apply();
        if (meta.use_group == 1) {
            if (!pinned_flow.apply().hit) {
                ecmp.apply();
            }
        }
#endif
        if (meta.use_next_hop == 1) {
            if (meta.has_backup == 1) {
                port_state.apply();
                if (meta.use_backup == 1) {
                    meta.next_hop_id = meta.backup_next_hop_id;
                }
            }
            next_hop.apply();
        }
    }
}

#endif
