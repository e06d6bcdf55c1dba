// SPDX-License-Identifier: Apache-2.0
// What the controls tell one another about a packet; all zero when parsing begins.

#ifndef POLYRHYTHM_METADATA_P4
#define POLYRHYTHM_METADATA_P4

#include "constants.p4"
#include "ip.p4"

struct metadata_t {
    // Set by the parser: the ports of the flow hash, 0 where the packet has none.
    bit<16> l4_src_port;
    bit<16> l4_dst_port;
    bit<1>  is_cnp;                 // BTH's opcode is the CNP's, under the CNP's DSCP
    IP_METADATA

    // Set by the target in ingress; whoever splits the pipeline carries it to egress.
    port_t ingress_port;

    // Set by EdgeGuard.
    bit<1>  is_stray;
    bit<1>  stopped;                // 1: drop
    stray_t stray;

    // Set by Remarking: what a flow without an entry of its own gets.
    dscp_t other_dscp;

    // Set by Forwarding.
    bit<32>       flow_hash;
    bit<1>        use_group;        // 1: next_hop_id comes from the ECMP group
    group_id_t    group_id;
    bucket_t      bucket;
    bit<1>        use_next_hop;     // 1: route, pinned flow or group led to a next hop; 0 drops
    next_hop_id_t next_hop_id;
    bit<1>        has_backup;       // 1: backup_next_hop_id stands by, should watched_port be down
    port_t        watched_port;
    next_hop_id_t backup_next_hop_id;
    bit<1>        use_backup;

    // Set by Forwarding, by packet-out or on the way to the CPU; the target obeys them. NO_PORT drops.
    port_t egress_port;
    qid_t  qid;

    // Set by IntSink: the port an INT probe leaves, or would leave, by; NO_PORT: INT stays out of it.
    port_t int_egress_port;

    // Set by the target in egress.
    depth_t queue_depth;
    bit<48> ingress_time;
    bit<48> egress_time;

    // Set by Ecn: the packet is marked with probability x / 65535.
    bit<16> mark_probability;

    // Set by IntTransit.
    bit<32> switch_id;

    TARGET_METADATA
}

#endif
