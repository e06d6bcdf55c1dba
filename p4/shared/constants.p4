// SPDX-License-Identifier: Apache-2.0
// Sizes, widths and protocol numbers that every target shares.

#ifndef POLYRHYTHM_CONSTANTS_P4
#define POLYRHYTHM_CONSTANTS_P4

// Table sizes: what the controller may count on, on every target; a profile that has less room says so first.
#ifndef ROUTING_SIZE
#define ROUTING_SIZE      4096
#define PINNED_FLOW_SIZE  4096
#define ECMP_SIZE         65536
#define REMARK_FLOW_SIZE  4096
#endif
#define PORT_STATE_SIZE   512    // every port
#define NEXT_HOP_SIZE     1024
#define REMARK_SIZE       4096
#define QUEUE_SIZE        64     // every DSCP
#define ECN_SIZE          1024   // 8 queues x 128 depth ranges
#define EDGE_SIZE         512    // every port
#define EDGE_INGRESS_SIZE 512    // every port
#define COUNTER_SIZE      4096   // 512 ports x 8 queues, or x 8 kinds of stray

typedef bit<9>  port_t;
typedef bit<3>  qid_t;
typedef bit<12> counter_index_t;   // port * 8 + qid, or port * 8 + stray_t
typedef bit<6>  dscp_t;
typedef bit<16> next_hop_id_t;
typedef bit<16> group_id_t;
typedef bit<8>  bucket_t;
typedef bit<19> depth_t;           // in the target's DEPTH_UNIT
typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;

// Packets between switch and controller wait behind nothing.
const qid_t CONTROL_QID = 7;

const bit<16> ETHERTYPE_IPV4       = 0x0800;
const bit<16> ETHERTYPE_LINK_PROBE = 0x88B5;   // IEEE 802 local experimental 1

const bit<8>  IPV4_NO_OPTIONS = 0x45;          // version 4, five words
const bit<8>  IP_PROTOCOL_TCP = 6;
const bit<8>  IP_PROTOCOL_UDP = 17;
const bit<16> UDP_PORT_ROCE   = 4791;

#ifdef IPV6
typedef bit<128> ipv6_addr_t;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<4>  IPV6_VERSION   = 6;
#endif

const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE      = 3;

// A packet to UDP port 4791 under this DSCP is an INT probe and carries no RoCE.
const dscp_t DSCP_INT_PROBE = 52;

// Congestion notification packets (RoCEv2 annex A17) and the DSCP that hosts send them under.
const bit<8> BTH_OPCODE_CNP = 0x81;
const dscp_t DSCP_CNP       = 48;

// INT v2.1, INT-MD: the only instruction set this pipeline executes.
const bit<4>  INT_TYPE_MD      = 1;
const bit<4>  INT_VERSION      = 2;
const bit<16> INT_INSTRUCTIONS = 0xFC00;
const bit<5>  INT_HOP_WORDS    = 8;
const bit<16> INT_HOP_BYTES    = 32;
const bit<8>  INT_MAX_LENGTH   = 247;          // the shim's length field holds one more hop up to here

// What EdgeGuard found; also the column of the counter of strays.
typedef bit<3> stray_t;
const stray_t STRAY_INT = 0;                   // an INT probe that a host made
const stray_t STRAY_CNP = 1;                   // the CNP's DSCP on what is no CNP

// packet_in.reason
const bit<3> REASON_INT_SINK   = 1;
const bit<3> REASON_LINK_PROBE = 2;
const bit<3> REASON_TO_CPU     = 3;            // TTL expired, or the next hop is the CPU

#endif
