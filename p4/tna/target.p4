// SPDX-License-Identifier: Apache-2.0
// What TNA calls the things that the shared controls leave to the target.

#ifndef POLYRHYTHM_TNA_TARGET_P4
#define POLYRHYTHM_TNA_TARGET_P4

// The profile IPV6 (-DIPV6) divides the memories between the families: 2,048 prefixes each take 4 of a stage's
// 24 TCAMs for IPv4 and 12 for IPv6, whose 128 bits are three TCAMs wide.
#ifdef IPV6
#define ROUTING_SIZE     2048
#define PINNED_FLOW_SIZE 1024
#define ECMP_SIZE        32768
#define REMARK_FLOW_SIZE 1024
#endif

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

// SwitchIngress has one hash unit for all packets, ahead of every table: an action only chooses a byte.
#define HASH_IN_ROUTE(result, ...)

// Despite its name verify() is true where the checksum is wrong.
#define PARSER_CHECKSUM_UNIT Checksum() ipv4_checksum;
#define VERIFY_IPV4_CHECKSUM \
    ipv4_checksum.add(hdr.ipv4); \
    meta.checksum_error = ipv4_checksum.verify();

// Ahead of the frame from ingress to egress: the two share nothing else. Each field ends at a byte, with
// none but padding beside it: what shares a container has to be written by the same few sources.
header bridge_t {
    @padding bit<7> pad1;
    bit<1>  is_raw;             // a packet-out for a port: egress looks into nothing
    @padding bit<5> pad2;
    qid_t   qid;                // the queue asked for; the intrinsic one is numbered by the device
    bit<16> reason_bits;        // of the packet_in that egress builds, in their place; 0: none
    bit<16> ingress_port;
    @padding bit<7> pad3;
    port_t  int_egress_port;
    bit<48> ingress_time;
}

// packet_in in words, for an ALU writes whole ones: port 9 bits, reason 3, pad 4; then the egress port.
header packet_in_words_t {
    bit<16> port_and_reason;
    bit<16> egress_port;
}

// Egress builds the packet_in, where nothing else depends on it; the port an INT probe leaves by is
// bridged in any case.
#define TO_CPU(why, out_port) \
    meta.reason_bits = (bit<16>) why << 4; \
    meta.egress_port = CPU_PORT; \
    meta.qid = CONTROL_QID

#define TARGET_HEADERS bridge_t bridge; packet_in_words_t packet_in_words;
#define TARGET_METADATA \
    bool            checksum_error; \
    bit<16>         reason_bits; \
    bit<1>          is_raw; \
    counter_index_t counter_cell; \
    bit<16>         mark_draw; \
    bit<16>         mark_margin;

#ifdef HOST_TRUST
// Ingress does not know how long a frame is: what follows the IP packet is not seen.
#ifdef IPV6
#define HAS_LENGTH(bytes) \
    ((hdr.ipv4.isValid() && hdr.ipv4.total_len == IPV4_BYTES + bytes) \
     || (hdr.ipv6.isValid() && hdr.ipv6.payload_len == bytes))
#else
#define HAS_LENGTH(bytes) (hdr.ipv4.total_len == IPV4_BYTES + bytes)
#endif

#define PORT_METER(size)                   Meter<port_t>(size, MeterType_t.PACKETS)
#define METER_COLOUR(meter, index, colour) colour = (bit<2>) meter.execute(index)
const bit<2> METER_RED = 3;   // MeterColor_t.RED
#endif

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

#endif
