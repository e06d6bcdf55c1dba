// SPDX-License-Identifier: Apache-2.0
// Every header the pipeline reads or writes, in the order of the wire.

#ifndef POLYRHYTHM_HEADERS_P4
#define POLYRHYTHM_HEADERS_P4

#include "constants.p4"

// Controller -> switch. The controller fills every field; the deparser never emits it.
@controller_header("packet_out")
header packet_out_header_t {
    port_t egress_port;         // where to send it when submit_to_ingress = 0
    bit<1> submit_to_ingress;   // 1: as if it had come in on the CPU port
    bit<6> pad;
}

// Switch -> controller. `egress_port` is the port an INT probe would have left by, otherwise 0.
@controller_header("packet_in")
header packet_in_header_t {
    port_t  ingress_port;
    bit<3>  reason;             // REASON_*
    bit<4>  pad;
    bit<16> egress_port;
}

header ethernet_t {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16>    ether_type;
}

header ipv4_t {
    bit<8>      version_ihl;
    bit<6>      dscp;
    bit<2>      ecn;
    bit<16>     total_len;
    bit<16>     identification;
    bit<16>     flags_fragment;   // 3 bits of flags, 13 of fragment offset
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     header_checksum;
    ipv4_addr_t src_addr;
    ipv4_addr_t dst_addr;
}

#ifdef IPV6
// RFC 8200. What follows an extension header stays payload.
header ipv6_t {
    bit<4>      version;
    bit<6>      dscp;
    bit<2>      ecn;
    bit<20>     flow_label;
    bit<16>     payload_len;
    bit<8>      next_header;
    bit<8>      hop_limit;
    ipv6_addr_t src_addr;
    ipv6_addr_t dst_addr;
}
#endif

// Of TCP only the ports are read; the rest stays payload.
header tcp_ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// Fields of the IPv4 header under its checksum.
#define IPV4_CHECKSUM_FIELDS \
    { hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, \
      hdr.ipv4.identification, hdr.ipv4.flags_fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, \
      hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

// InfiniBand base transport header, the first of RoCEv2's after UDP.
header bth_t {
    bit<8>  opcode;
    bit<1>  solicited_event;
    bit<1>  migrated;
    bit<2>  pad_count;
    bit<4>  version;
    bit<16> partition_key;
    bit<1>  fecn;
    bit<1>  becn;
    bit<6>  reserved;
    bit<24> dest_qp;
    bit<1>  ack_request;
    bit<7>  reserved2;
    bit<24> psn;
}

// INT v2.1 shim for UDP, told by DSCP (next protocol type 0).
header int_shim_t {
    bit<4>  type;
    bit<2>  next_protocol_type;
    bit<2>  reserved;
    bit<8>  length;               // 4-byte words of MD header and stack, without this shim
    bit<8>  reserved2;
    bit<6>  original_dscp;
    bit<2>  reserved3;
}

// INT v2.1 INT-MD header. The probe's maker fills it; a hop changes `exceeded` and `remaining_hops`.
header int_md_t {
    bit<4>  version;
    bit<1>  discard;              // the sink does not pass the packet on
    bit<1>  exceeded;             // E: a hop found no hop count left
    bit<1>  mtu_exceeded;
    bit<12> reserved;
    bit<5>  hop_words;
    bit<8>  remaining_hops;
    bit<16> instructions;
    bit<16> domain_id;
    bit<16> domain_instructions;
    bit<16> domain_flags;
}

// What one hop pushes for instructions 0xFC00, newest right behind the MD header.
header int_hop_t {
    bit<32> node_id;
    bit<16> ingress_port_id;
    bit<16> egress_port_id;
    bit<32> hop_latency;
    bit<8>  queue_id;
    bit<24> queue_occupancy;
    bit<64> ingress_timestamp;
    bit<64> egress_timestamp;
}

struct headers_t {
    TARGET_HEADERS
    packet_out_header_t packet_out;
    packet_in_header_t  packet_in;
    ethernet_t          ethernet;
    ipv4_t              ipv4;
#ifdef IPV6
    ipv6_t              ipv6;
#endif
    tcp_ports_t         tcp;
    udp_t               udp;
    bth_t               bth;
    int_shim_t          int_shim;
    int_md_t            int_md;
    int_hop_t           int_hop;
}

#endif
