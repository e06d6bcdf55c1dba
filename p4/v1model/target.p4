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
#define TARGET_METADATA
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
