// SPDX-License-Identifier: Apache-2.0
// From Ethernet to RoCEv2's BTH or INT's MD header, and back to the wire.

#ifndef POLYRHYTHM_PARSER_P4
#define POLYRHYTHM_PARSER_P4

#include "headers.p4"
#include "metadata.p4"

parser FrameParser(packet_in packet, inout headers_t hdr, inout metadata_t meta) {
    PARSER_CHECKSUM_UNIT

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
#ifdef IPV6
            ETHERTYPE_IPV6: parse_ipv6;
#endif
            default: accept;
        }
    }

    // All fragments of a datagram must hash alike, and only the first holds ports: none is read.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        VERIFY_IPV4_CHECKSUM
        LOAD_IPV4
        transition select(hdr.ipv4.flags_fragment, hdr.ipv4.protocol) {
            (0 &&& 0x3FFF, IP_PROTOCOL_UDP): parse_udp;
            (0 &&& 0x3FFF, IP_PROTOCOL_TCP): parse_tcp;
            default: accept;
        }
    }

#ifdef IPV6
    // A fragment has an extension header, and so no ports, like all fragments of IPv4.
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        LOAD_IPV6
        transition select(hdr.ipv6.next_header) {
            IP_PROTOCOL_UDP: parse_udp_of_ipv6;
            IP_PROTOCOL_TCP: parse_tcp;
            default: accept;
        }
    }

    // As parse_udp: a parser of Tofino selects by what it extracts, not by metadata.
    state parse_udp_of_ipv6 {
        packet.extract(hdr.udp);
        meta.l4_src_port = hdr.udp.src_port;
        meta.l4_dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port, hdr.ipv6.dscp) {
            (UDP_PORT_ROCE, DSCP_INT_PROBE): parse_int;
            (UDP_PORT_ROCE, DSCP_CNP): parse_under_cnp;
            (UDP_PORT_ROCE, _): parse_bth;
            default: accept;
        }
    }
#endif

    state parse_tcp {
        packet.extract(hdr.tcp);
        meta.l4_src_port = hdr.tcp.src_port;
        meta.l4_dst_port = hdr.tcp.dst_port;
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.l4_src_port = hdr.udp.src_port;
        meta.l4_dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port, hdr.ipv4.dscp) {
            (UDP_PORT_ROCE, DSCP_INT_PROBE): parse_int;
            (UDP_PORT_ROCE, DSCP_CNP): parse_under_cnp;
            (UDP_PORT_ROCE, _): parse_bth;
            default: accept;
        }
    }

    // Only here does anyone care for the opcode, so only here is it looked at.
    state parse_under_cnp {
        transition select(packet.lookahead<bit<8>>()) {
            BTH_OPCODE_CNP: parse_cnp;
            default: parse_bth;
        }
    }

    state parse_cnp {
        meta.is_cnp = 1;
        transition parse_bth;
    }

    state parse_bth {
        packet.extract(hdr.bth);
        transition accept;
    }

    // A hop pushes right behind the MD header, so what earlier hops pushed stays payload.
    state parse_int {
        packet.extract(hdr.int_shim);
        packet.extract(hdr.int_md);
        transition accept;
    }
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
#ifdef IPV6
        packet.emit(hdr.ipv6);
#endif
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.int_shim);
        packet.emit(hdr.int_md);
        packet.emit(hdr.int_hop);
    }
}

#endif
