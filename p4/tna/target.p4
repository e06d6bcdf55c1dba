// SPDX-License-Identifier: Apache-2.0
// What TNA calls the things that the shared controls leave to the target.

#ifndef POLYRHYTHM_TNA_TARGET_P4
#define POLYRHYTHM_TNA_TARGET_P4

#include "../shared/constants.p4"

// The PCIe port of a Tofino 1 with four pipes; another is chosen on the compiler's command line.
#ifndef CPU_PORT_ID
#define CPU_PORT_ID 192
#endif

// Device port 0 is a port like any other here; no pipe has a port 511.
const port_t NO_PORT  = 0x1FF;
const port_t CPU_PORT = CPU_PORT_ID;

// What the controller has to know of the target's own units; they stand in P4Info's pkg_info.
#define DEPTH_UNIT "cells of 80 bytes"
#define TIME_UNIT  "nanoseconds"

// One hash unit for all packets, ahead of the table whose actions choose a byte of its result.
#define FLOW_HASH_UNIT Hash<bit<32>>(HashAlgorithm_t.CRC32) flow_hash_unit;
#define HASH_BEFORE_ROUTE(result, ...) result = flow_hash_unit.get({ __VA_ARGS__ });
#define HASH_IN_ROUTE(result, ...)

// Despite its name verify() is true where the checksum is wrong.
#define PARSER_CHECKSUM_UNIT Checksum() ipv4_checksum;
#define VERIFY_IPV4_CHECKSUM \
    ipv4_checksum.add(hdr.ipv4); \
    meta.checksum_error = ipv4_checksum.verify();

// Ahead of the frame from ingress to egress: the two share nothing else. Fields start at bytes, so that
// none has to be pieced together from two containers.
header bridge_t {
    bit<3>  pad;
    bit<1>  is_raw;             // a packet-out for a port: egress looks into nothing
    bit<1>  has_packet_in;      // the packet_in header stands between this and the frame
    qid_t   qid;                // the queue asked for; the intrinsic one is numbered by the device
    bit<7>  pad2;
    port_t  ingress_port;
    bit<7>  pad3;
    port_t  int_egress_port;
    bit<48> ingress_time;
}

#define TARGET_HEADERS bridge_t bridge;
#define TARGET_METADATA \
    bool            checksum_error; \
    counter_index_t counter_cell; \
    bit<16>         mark_draw; \
    bit<16>         mark_margin;

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

#endif
