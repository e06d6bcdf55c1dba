// SPDX-License-Identifier: Apache-2.0
// What v1model calls the things that the shared controls leave to the target.

#ifndef POLYRHYTHM_V1MODEL_TARGET_P4
#define POLYRHYTHM_V1MODEL_TARGET_P4

#define IPV6   // both families

#include "../shared/constants.p4"

// Ports count from 1: P4Runtime front ends refuse port 0, so 0 can stand for "no port chosen".
const port_t NO_PORT  = 0;
const port_t CPU_PORT = 255;

// What the controller has to know of the target's own units; they stand in P4Info's pkg_info.
#define DEPTH_UNIT "packets"
#define TIME_UNIT  "microseconds"

// The result is base + hash % max, so the full 32 bits need a 33-bit max of 2^32.
#define HASH_IN_ROUTE(result, ...) \
    if (hdr.ipv6.isValid()) { \
        hash(result, HashAlgorithm.crc32, 32w0, { FLOW_FIELDS_IPV6 }, 33w0x100000000); \
    } else { \
        hash(result, HashAlgorithm.crc32, 32w0, { __VA_ARGS__ }, 33w0x100000000); \
    }

// A frame longer than its IP packet would bring its own load under a short packet's rights.
const bit<32> ETHERNET_BYTES = 14;
const bit<32> IPV6_BYTES     = 40;
#define HAS_LENGTH(bytes) \
    ((hdr.ipv4.isValid() && hdr.ipv4.total_len == IPV4_BYTES + bytes \
      && meta.frame_bytes == ETHERNET_BYTES + (bit<32>) (IPV4_BYTES + bytes)) \
     || (hdr.ipv6.isValid() && hdr.ipv6.payload_len == bytes \
         && meta.frame_bytes == ETHERNET_BYTES + IPV6_BYTES + (bit<32>) bytes))

#define PORT_METER(size)                   meter<port_t>(size, MeterType.packets)
#define METER_COLOUR(meter, index, colour) meter.execute_meter<bit<2>>(index, colour)
const bit<2> METER_RED = 2;

// Anything for the controller: `reason` is one of REASON_*.
#define TO_CPU(why, out_port) \
    hdr.packet_in.setValid(); \
    hdr.packet_in.ingress_port = meta.ingress_port; \
    hdr.packet_in.reason = why; \
    hdr.packet_in.pad = 0; \
    hdr.packet_in.egress_port = out_port; \
    meta.egress_port = CPU_PORT; \
    meta.qid = CONTROL_QID

// Ingress and egress share one set of headers and metadata, and checksums are no business of the parser.
#define TARGET_HEADERS
#define TARGET_METADATA \
    bit<32>   frame_bytes;    /* as received, with what follows the IP packet */ \
    bit<48>   arrival;        /* microseconds */ \
    bit<1>    has_flowlets;   /* set by Spreading, as what follows */ \
    flowlet_t flowlet;

// The flowlet of a packet, while its port is chosen and counted.
struct flowlet_t {
    bit<12> number;
    bit<48> pause;            // microseconds since the packet before
    bit<48> shortest_pause;   // one that ends a flowlet
    bit<48> load_epoch;       // of now
    bit<6>  group_cell;
    bit<6>  last_member;
    bit<6>  member;
    bit<6>  least;
    bit<32> least_load;
    bit<6>  other;
    bit<32> other_load;
}

#define PARSER_CHECKSUM_UNIT
#define VERIFY_IPV4_CHECKSUM

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// Sets standard_metadata.checksum_error.
control VerifyIpv4(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_CHECKSUM_FIELDS, hdr.ipv4.header_checksum,
                        HashAlgorithm.csum16);
    }
}

// Covers TTL, ECN and total length, whichever changed.
control UpdateIpv4(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_CHECKSUM_FIELDS, hdr.ipv4.header_checksum,
                        HashAlgorithm.csum16);
    }
}

#endif
