// SPDX-License-Identifier: Apache-2.0
// What v1model calls the things that the shared controls leave to the target.

#ifndef POLYRHYTHM_V1MODEL_TARGET_P4
#define POLYRHYTHM_V1MODEL_TARGET_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// The result is base + hash % max, so the full 32 bits need a 33-bit max of 2^32.
#define FLOW_HASH(result, ...) \
    hash(result, HashAlgorithm.crc32, 32w0, { __VA_ARGS__ }, 33w0x100000000)

// Fields of the IPv4 header under its checksum.
#define IPV4_CHECKSUM_FIELDS \
    { hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, \
      hdr.ipv4.identification, hdr.ipv4.flags_fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, \
      hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

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
