// SPDX-License-Identifier: Apache-2.0
// The fields that IPv4 and IPv6 have in common, under one name for both.
//
// With IPV6 defined the parser copies them to metadata and STORE_* write them back: a table that asks for
// the DSCP need not know which header it came from. Without, they are IPv4's.

#ifndef POLYRHYTHM_IP_P4
#define POLYRHYTHM_IP_P4

#include "constants.p4"

#ifdef IPV6
#define IP_DSCP meta.dscp
#define IP_ECN  meta.ecn
#define IP_TTL  meta.ttl
#define IP_METADATA \
    dscp_t dscp; \
    bit<2> ecn; \
    bit<8> ttl;                     /* IPv6's hop limit */
#define LOAD_IPV4 \
    meta.dscp = hdr.ipv4.dscp; \
    meta.ecn = hdr.ipv4.ecn; \
    meta.ttl = hdr.ipv4.ttl;
#define LOAD_IPV6 \
    meta.dscp = hdr.ipv6.dscp; \
    meta.ecn = hdr.ipv6.ecn; \
    meta.ttl = hdr.ipv6.hop_limit;
#define HAS_IP (hdr.ipv4.isValid() || hdr.ipv6.isValid())
#define HAS_LEGAL_IP_VERSION \
    ((hdr.ipv4.isValid() && hdr.ipv4.version_ihl == IPV4_NO_OPTIONS) \
     || (hdr.ipv6.isValid() && hdr.ipv6.version == IPV6_VERSION))
// Ingress, at its end, and egress once the mark is decided.
#define STORE_DSCP_AND_TTL \
    if (hdr.ipv6.isValid()) { \
        hdr.ipv6.dscp = meta.dscp; \
        hdr.ipv6.hop_limit = meta.ttl; \
    } else if (hdr.ipv4.isValid()) { \
        hdr.ipv4.dscp = meta.dscp; \
        hdr.ipv4.ttl = meta.ttl; \
    }
#define STORE_ECN \
    if (hdr.ipv6.isValid()) { \
        hdr.ipv6.ecn = meta.ecn; \
    } else { \
        hdr.ipv4.ecn = meta.ecn; \
    }
#else
#define IP_DSCP hdr.ipv4.dscp
#define IP_ECN  hdr.ipv4.ecn
#define IP_TTL  hdr.ipv4.ttl
#define IP_METADATA
#define LOAD_IPV4
#define HAS_IP hdr.ipv4.isValid()
#define HAS_LEGAL_IP_VERSION hdr.ipv4.version_ihl == IPV4_NO_OPTIONS
#define STORE_DSCP_AND_TTL
#define STORE_ECN
#endif

#endif
