// SPDX-License-Identifier: Apache-2.0
// Which DSCPs the hosts behind a port may use: those that the plan gave. Everything else travels as mice.
// And how often they may call on the controller.
//
// The controller names, for each port that faces hosts, the DSCPs that lead to more than the lowest queue.
// A port or DSCP that host_dscp does not name has nothing to ask for, or is not a host's.
//
// The target defines HAS_LENGTH(bytes): the UDP datagram, and the frame as far as the target knows, has that
// length; PORT_METER(size): a meter of packets by port; METER_COLOUR(meter, index): its answer; METER_RED.

#ifndef POLYRHYTHM_HOST_TRUST_P4
#define POLYRHYTHM_HOST_TRUST_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

#define HOST_DSCP_SIZE    8192    // 512 ports x 16 DSCPs
#define PLANNED_PAIR_SIZE 65536
#define PLANNED_FLOW_SIZE 4096
#define HOST_METER_SIZE   512     // every port

// Columns of the counter of strays; they continue those of constants.p4.
const stray_t STRAY_ANSWER    = 2;   // the DSCP of acknowledgements or CNPs on what is neither
const stray_t STRAY_RATE      = 3;   // more acknowledgements and CNPs than the port may send
const stray_t STRAY_CONTROL   = 4;   // a DSCP that only switches and the controller use
const stray_t STRAY_UNPLANNED = 5;   // a level's DSCP on, or an answer to, what no plan knows
const stray_t STRAY_TO_CPU    = 6;   // more packets to the controller than the port may send

// Answers of a RoCEv2 receiver (InfiniBand volume 1, 9.2.1, table 38; annex A17.9.3). Lengths are
// of UDP datagrams: headers of 8 and 12 bytes, then AETH (4), AETH and AtomicAckETH (12) or 16 reserved
// bytes, then the ICRC (4).
const bit<8>  BTH_OPCODE_ACK        = 0x11;
const bit<8>  BTH_OPCODE_ATOMIC_ACK = 0x12;
const bit<16> ACK_BYTES             = 28;
const bit<16> ATOMIC_ACK_BYTES      = 36;
const bit<16> CNP_BYTES             = 40;
const bit<16> IPV4_BYTES            = 20;

// What a packet has to be to keep its DSCP.
typedef bit<2> right_t;
const right_t RIGHT_NONE   = 0;      // it need not be anything, or has lost its DSCP already
const right_t RIGHT_FLOW   = 1;      // of a 5-tuple in planned_flow
const right_t RIGHT_SEND   = 2;      // from the sender to the receiver of a planned RoCE flow
const right_t RIGHT_ANSWER = 3;      // back from the receiver, within the rate of answers

// Ingress, IP packets that are no suspects of EdgeGuard.
control HostTrust(inout headers_t hdr, inout metadata_t meta) {
    right_t right = RIGHT_NONE;
    bit<1>  may_send = 0;
    bit<1>  may_answer = 0;

    // Index: the port that the host is behind. Red packets are too many.
    @name(".answer_rate") @id(ANSWER_RATE_METER_ID)
    PORT_METER(HOST_METER_SIZE) answer_rate;

    // Acknowledgements and CNPs, by opcode and size, between pairs of hosts in planned_pair, as many as the
    // meter of the port allows. In all three actions, `dscp` is what packets get that may not use theirs.
    @name(".trust_answers") @id(TRUST_ANSWERS_ACTION_ID)
    action trust_answers(dscp_t dscp) {
        meta.other_dscp = dscp;
    }

    // RoCE between the pairs of hosts in planned_pair, and the flows in planned_flow.
    @name(".trust_planned") @id(TRUST_PLANNED_ACTION_ID)
    action trust_planned(dscp_t dscp) {
        meta.other_dscp = dscp;
    }

    @name(".trust_nothing") @id(TRUST_NOTHING_ACTION_ID)
    action trust_nothing(dscp_t dscp) {
        meta.other_dscp = dscp;
    }

    @name(".host_dscp") @id(HOST_DSCP_TABLE_ID)
    table host_dscp {
        key = {
            meta.ingress_port : exact @name("port");
            IP_DSCP : exact @name("dscp");
        }
        actions = { trust_answers; trust_planned; trust_nothing; @defaultonly NoAction; }
        const default_action = NoAction();
        size = HOST_DSCP_SIZE;
    }

    // The host sends planned flows to the other one.
    @name(".trust_pair") @id(TRUST_PAIR_ACTION_ID)
    action trust_pair() {
        may_send = 1;
    }

    // The host receives planned flows from the other one.
    @name(".trust_answering_pair") @id(TRUST_ANSWERING_PAIR_ACTION_ID)
    action trust_answering_pair() {
        may_answer = 1;
    }

    @name(".trust_pair_both_ways") @id(TRUST_PAIR_BOTH_WAYS_ACTION_ID)
    action trust_pair_both_ways() {
        may_send = 1;
        may_answer = 1;
    }

    @name(".planned_pair") @id(PLANNED_PAIR_TABLE_ID)
    table planned_pair {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv4.src_addr : exact @name("ipv4_src");
            hdr.ipv4.dst_addr : exact @name("ipv4_dst");
        }
        actions = { trust_pair; trust_answering_pair; trust_pair_both_ways; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_PAIR_SIZE;
    }

#ifdef IPV6
    @name(".planned_pair_ipv6") @id(PLANNED_PAIR_IPV6_TABLE_ID)
    table planned_pair_ipv6 {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv6.src_addr : exact @name("ipv6_src");
            hdr.ipv6.dst_addr : exact @name("ipv6_dst");
        }
        actions = { trust_pair; trust_answering_pair; trust_pair_both_ways; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_PAIR_SIZE;
    }
#endif

    @name(".trust_flow") @id(TRUST_FLOW_ACTION_ID)
    action trust_flow() {
        right = RIGHT_NONE;
    }

    // Planned flows that are not RoCE; ports are 0 as for the flow hash.
    @name(".planned_flow") @id(PLANNED_FLOW_TABLE_ID)
    table planned_flow {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv4.src_addr : exact @name("ipv4_src");
            hdr.ipv4.dst_addr : exact @name("ipv4_dst");
            hdr.ipv4.protocol : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { trust_flow; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_FLOW_SIZE;
    }

#ifdef IPV6
    @name(".planned_flow_ipv6") @id(PLANNED_FLOW_IPV6_TABLE_ID)
    table planned_flow_ipv6 {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv6.src_addr : exact @name("ipv6_src");
            hdr.ipv6.dst_addr : exact @name("ipv6_dst");
            hdr.ipv6.next_header : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { trust_flow; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_FLOW_SIZE;
    }
#endif

    apply {
        switch (host_dscp.apply().action_run) {
            trust_answers: {
                if (hdr.bth.isValid()
                    && ((hdr.bth.opcode == BTH_OPCODE_ACK && HAS_LENGTH(ACK_BYTES))
                        || (hdr.bth.opcode == BTH_OPCODE_ATOMIC_ACK && HAS_LENGTH(ATOMIC_ACK_BYTES))
                        || (hdr.bth.opcode == BTH_OPCODE_CNP && HAS_LENGTH(CNP_BYTES)))) {
                    right = RIGHT_ANSWER;
                } else {
                    meta.is_stray = 1;
                    meta.stray = STRAY_ANSWER;
                }
            }
            trust_planned: {
                if (hdr.bth.isValid()) {
                    right = RIGHT_SEND;
                } else {
                    right = RIGHT_FLOW;
                }
            }
            trust_nothing: {
                meta.is_stray = 1;
                meta.stray = STRAY_CONTROL;
            }
        }
#ifdef IPV6
        if (hdr.ipv6.isValid()) {
            if (right == RIGHT_FLOW) {
                planned_flow_ipv6.apply();
            } else if (right != RIGHT_NONE) {
                planned_pair_ipv6.apply();
            }
        } else
#endif
        if (right == RIGHT_FLOW) {
            planned_flow.apply();
        } else if (right != RIGHT_NONE) {
            planned_pair.apply();
        }
        if (right == RIGHT_FLOW || (right == RIGHT_SEND && may_send == 0)
            || (right == RIGHT_ANSWER && may_answer == 0)) {
            meta.is_stray = 1;
            meta.stray = STRAY_UNPLANNED;
        } else if (right == RIGHT_ANSWER) {
            bit<2> colour;
            METER_COLOUR(answer_rate, meta.ingress_port, colour);
            if (colour == METER_RED) {
                meta.is_stray = 1;
                meta.stray = STRAY_RATE;
            }
        }
        if (meta.is_stray == 1) {
            IP_DSCP = meta.other_dscp;
        }
    }
}

// Ingress, what would go to the controller: a host that sends packets whose TTL ends, or link probes, as
// fast as it can would take the place of the fabric's own probes.
control CpuGuard(inout metadata_t meta) {
    // Index: the port received on. Red packets are dropped.
    @name(".cpu_rate") @id(CPU_RATE_METER_ID)
    PORT_METER(HOST_METER_SIZE) cpu_rate;

    apply {
        bit<2> colour;
        METER_COLOUR(cpu_rate, meta.ingress_port, colour);
        if (colour == METER_RED) {
            meta.is_stray = 1;
            meta.stray = STRAY_TO_CPU;
            meta.egress_port = NO_PORT;
        }
    }
}

#endif
