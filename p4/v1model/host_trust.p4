// SPDX-License-Identifier: Apache-2.0
// Which DSCPs the hosts behind a port may use: those that the plan gave. Everything else travels as mice.
//
// The controller names, for each port that faces hosts, the DSCPs that lead to more than the lowest queue.
// A port or DSCP that host_dscp does not name has nothing to ask for, or is not a host's.

#ifndef POLYRHYTHM_HOST_TRUST_P4
#define POLYRHYTHM_HOST_TRUST_P4

#include "ids.p4"
#include "target.p4"

#define HOST_DSCP_SIZE    8192    // 512 ports x 16 DSCPs
#define PLANNED_PAIR_SIZE 65536
#define ANSWER_RATE_SIZE  512     // every port

// Columns of the counter of strays; they continue those of constants.p4.
const stray_t STRAY_ANSWER    = 2;   // the DSCP of acknowledgements or CNPs on what is neither
const stray_t STRAY_RATE      = 3;   // more acknowledgements and CNPs than the port may send
const stray_t STRAY_CONTROL   = 4;   // a DSCP that only switches and the controller use
const stray_t STRAY_UNPLANNED = 5;   // a level's DSCP on what is not a planned RoCE flow

// Answers of a RoCEv2 receiver (InfiniBand volume 1, 9.2.1, table 38; annex A17.9.3). Lengths are
// of UDP datagrams: headers of 8 and 12 bytes, then AETH (4), AETH and AtomicAckETH (12) or 16 reserved
// bytes, then the ICRC (4).
const bit<8>  BTH_OPCODE_ACK        = 0x11;
const bit<8>  BTH_OPCODE_ATOMIC_ACK = 0x12;
const bit<16> ACK_BYTES             = 28;
const bit<16> ATOMIC_ACK_BYTES      = 36;
const bit<16> CNP_BYTES             = 40;
const bit<32> ETHERNET_BYTES        = 14;
const bit<16> IPV4_BYTES            = 20;
const bit<32> IPV6_BYTES            = 40;

const bit<2> METER_RED = 2;

// A frame longer than its IP packet would bring its own load under a short packet's rights.
#define HAS_LENGTH(bytes) \
    ((hdr.ipv4.isValid() && hdr.ipv4.total_len == IPV4_BYTES + bytes \
      && standard_metadata.packet_length == ETHERNET_BYTES + (bit<32>) (IPV4_BYTES + bytes)) \
     || (hdr.ipv6.isValid() && hdr.ipv6.payload_len == bytes \
         && standard_metadata.packet_length == ETHERNET_BYTES + IPV6_BYTES + (bit<32>) bytes))

control HostTrust(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Index: the port that the host is behind. Red packets are too many.
    @name(".answer_rate") @id(ANSWER_RATE_METER_ID)
    meter<bit<9>>(ANSWER_RATE_SIZE, MeterType.packets) answer_rate;

    // Acknowledgements and CNPs, by opcode and size, as many as the meter of the port allows. In all three
    // actions, `dscp` is what packets get that may not use theirs.
    @name(".trust_answers") @id(TRUST_ANSWERS_ACTION_ID)
    action trust_answers(dscp_t dscp) {
        meta.other_dscp = dscp;
    }

    // RoCE between the pairs of hosts in planned_pair.
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

    @name(".trust_pair") @id(TRUST_PAIR_ACTION_ID)
    action trust_pair() {
    }

    @name(".planned_pair") @id(PLANNED_PAIR_TABLE_ID)
    table planned_pair {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv4.src_addr : exact @name("ipv4_src");
            hdr.ipv4.dst_addr : exact @name("ipv4_dst");
        }
        actions = { trust_pair; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_PAIR_SIZE;
    }

    @name(".planned_pair_ipv6") @id(PLANNED_PAIR_IPV6_TABLE_ID)
    table planned_pair_ipv6 {
        key = {
            meta.ingress_port : exact @name("port");
            hdr.ipv6.src_addr : exact @name("ipv6_src");
            hdr.ipv6.dst_addr : exact @name("ipv6_dst");
        }
        actions = { trust_pair; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PLANNED_PAIR_SIZE;
    }

    apply {
        switch (host_dscp.apply().action_run) {
            trust_answers: {
                if (hdr.bth.isValid()
                    && ((hdr.bth.opcode == BTH_OPCODE_ACK && HAS_LENGTH(ACK_BYTES))
                        || (hdr.bth.opcode == BTH_OPCODE_ATOMIC_ACK && HAS_LENGTH(ATOMIC_ACK_BYTES))
                        || (hdr.bth.opcode == BTH_OPCODE_CNP && HAS_LENGTH(CNP_BYTES)))) {
                    bit<2> colour;
                    answer_rate.execute_meter<bit<2>>(meta.ingress_port, colour);
                    if (colour == METER_RED) {
                        meta.is_stray = 1;
                        meta.stray = STRAY_RATE;
                    }
                } else {
                    meta.is_stray = 1;
                    meta.stray = STRAY_ANSWER;
                }
            }
            trust_planned: {
                meta.is_stray = 1;
                meta.stray = STRAY_UNPLANNED;
                if (hdr.bth.isValid()) {
                    if (hdr.ipv6.isValid()) {
                        if (planned_pair_ipv6.apply().hit) {
                            meta.is_stray = 0;
                        }
                    } else if (planned_pair.apply().hit) {
                        meta.is_stray = 0;
                    }
                }
            }
            trust_nothing: {
                meta.is_stray = 1;
                meta.stray = STRAY_CONTROL;
            }
        }
        if (meta.is_stray == 1) {
            IP_DSCP = meta.other_dscp;
        }
    }
}

#endif
