// SPDX-License-Identifier: Apache-2.0
// Sizes, widths and protocol numbers that every target shares.

#ifndef POLYRHYTHM_CONSTANTS_P4
#define POLYRHYTHM_CONSTANTS_P4

// Table sizes: what the controller may count on, on every target.
#define ROUTING_SIZE  4096
#define ECMP_SIZE     65536
#define NEXT_HOP_SIZE 1024
#define QUEUE_SIZE    64     // every DSCP
#define ECN_SIZE      1024   // 8 queues x 128 depth ranges
#define EDGE_SIZE     512    // every port
#define COUNTER_SIZE  4096   // 512 ports x 8 queues

typedef bit<9>  port_t;
typedef bit<3>  qid_t;
typedef bit<12> counter_index_t;   // port * 8 + qid
typedef bit<16> next_hop_id_t;
typedef bit<16> group_id_t;
typedef bit<8>  bucket_t;
typedef bit<19> depth_t;           // packets (v1model)
typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;

// Ports count from 1: P4Runtime front ends refuse port 0, so 0 can stand for "no port chosen".
const port_t NO_PORT  = 0;
const port_t CPU_PORT = 255;

// Packets between switch and controller wait behind nothing.
const qid_t CONTROL_QID = 7;

const bit<16> ETHERTYPE_IPV4       = 0x0800;
const bit<16> ETHERTYPE_LINK_PROBE = 0x88B5;   // IEEE 802 local experimental 1

const bit<8>  IPV4_NO_OPTIONS = 0x45;          // version 4, five words
const bit<8>  IP_PROTOCOL_TCP = 6;
const bit<8>  IP_PROTOCOL_UDP = 17;
const bit<16> UDP_PORT_ROCE   = 4791;

const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE      = 3;

// A packet to UDP port 4791 under this DSCP is an INT probe and carries no RoCE.
const bit<6> DSCP_INT_PROBE = 52;

// INT v2.1, INT-MD: the only instruction set this pipeline executes.
const bit<4>  INT_TYPE_MD      = 1;
const bit<4>  INT_VERSION      = 2;
const bit<16> INT_INSTRUCTIONS = 0xFC00;
const bit<5>  INT_HOP_WORDS    = 8;
const bit<16> INT_HOP_BYTES    = 32;
const bit<8>  INT_MAX_LENGTH   = 247;          // the shim's length field holds one more hop up to here

// packet_in.reason
const bit<3> REASON_INT_SINK   = 1;
const bit<3> REASON_LINK_PROBE = 2;
const bit<3> REASON_TO_CPU     = 3;            // TTL expired, or the next hop is the CPU

#endif
