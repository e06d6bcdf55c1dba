// SPDX-License-Identifier: Apache-2.0
// Polyrhythm's data plane on TNA (Tofino 1).
//
//  wire
//   |   SwitchIngressParser    packet_out, Ethernet, IPv4 with its checksum, TCP ports or UDP, BTH or INT;
//   |                          with IPV6 defined, IPv6 too
//   v   SwitchIngress
//       |- packet_out with submit_to_ingress 0 ----------------------------------> its port
//       |- link probe -----------------------------------------------------------> CPU, reason 2
//       |- bad checksum, options, cut short, not IP -----------------------------> drop
//       |- TTL <= 1 -------------------------------------------------------------> CPU, reason 3
//       |- EdgeGuard (suspects)  edge_ingress: remark or --------------------------> drop
//       |- HostTrust (others)    host_dscp -> planned_pair -> answer_rate, or -> planned_flow: remark
//       |- Remarking (others)    remark -> remark_flow
//       |- Forwarding        routing -> pinned_flow or ecmp -> port_state -> next_hop
//       |                    a miss ---------------------------------------------> drop
//       |                    a next hop at the CPU's port -----------------------> CPU, reason 3
//       |- QueueSelection    queue
//       |- IntSink (probes)  edge: a port that faces a host ---------------------> CPU, reason 1
//       |- CpuGuard (for the CPU)  cpu_rate: above it -----------------------------> drop
//       |- count ingress_packets, stray_packets
//   |   SwitchIngressDeparser  bridge header, frame
//   |
//   v   traffic manager: 8 strict-priority queues per port (`polyrhythm pipeline traffic-manager`)
//   |
//   |   SwitchEgressParser     bridge header, then as above
//   v   SwitchEgress
//       |- count egress_packets
//       |- EcnProfile (ECT)     ecn: CE by the depth at dequeue, count ecn_marks
//       |- IntTransit (probes)  switch_identity: push 32 bytes
//   |   SwitchEgressDeparser   packet_in where it is for the CPU, IPv4 checksum, frame
//  wire
//
// HostTrust and CpuGuard are an option, off by default: -DHOST_TRUST.
// Tables, actions, keys and ids are the same on every target; docs/data-plane.md describes them,
// docs/tofino.md says how the program fits Tofino's constraints and how to run it.

#include <core.p4>
#include <tna.p4>

#include "target.p4"                // the hash, checksums, the bridge header
#include "../shared/parser.p4"      // frames to headers and back
#include "../shared/edge.p4"        // edge_ingress
#ifdef HOST_TRUST
#include "../shared/host_trust.p4"  // host_dscp, planned_pair, planned_flow
#endif
#include "../shared/forwarding.p4"  // routing, pinned_flow, ecmp, port_state, next_hop
#include "../shared/queueing.p4"    // remark, remark_flow, queue, ecn
#include "../shared/telemetry.p4"   // edge, switch_identity

parser SwitchIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                           out ingress_intrinsic_metadata_t ig_intr_md) {
    FrameParser() frame;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        meta = { ... };
        meta.egress_port = NO_PORT;
        meta.int_egress_port = NO_PORT;
        meta.ingress_port = ig_intr_md.ingress_port;
        transition select(ig_intr_md.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_frame;
        }
    }

    // What the controller sends straight to a port goes out as it is, so it is not looked into.
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition select(hdr.packet_out.submit_to_ingress) {
            1: parse_frame;
            default: accept;
        }
    }

    @noWarn("uninitialized-use")
    state parse_frame {
        frame.apply(packet, hdr, meta);
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta,
                      in ingress_intrinsic_metadata_t ig_intr_md,
                      in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                      inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                      inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    EdgeGuard() edge_guard;
#ifdef HOST_TRUST
    HostTrust() host_trust;
    CpuGuard() cpu_guard;
#endif
    Remarking() remarking;
    Forwarding() forwarding;
    QueueSelection() queue_selection;
    IntSink() int_sink;

    // What sees a packet first: `routing` chooses a byte of the result.
    Hash<bit<32>>(HashAlgorithm_t.CRC32) flow_hash_unit;
#ifdef IPV6
    Hash<bit<32>>(HashAlgorithm_t.CRC32) flow_hash_unit_ipv6;
#endif

    // Packets admitted to a port and queue, bytes as received; index port * 8 + queue.
    @name(".ingress_packets") @id(INGRESS_PACKETS_COUNTER_ID)
    Counter<bit<64>, counter_index_t>(COUNTER_SIZE, CounterType_t.PACKETS_AND_BYTES) ingress_packets;

    // Strays stopped or remarked at the edge; index ingress port * 8 + STRAY_*.
    @name(".stray_packets") @id(STRAY_PACKETS_COUNTER_ID)
    Counter<bit<64>, counter_index_t>(COUNTER_SIZE, CounterType_t.PACKETS) stray_packets;

    // Counts come after the branches that say what to count: a branch is over before what follows it, so a
    // chain of its own in each would cost stages.
    apply {
#ifdef IPV6
        if (hdr.ipv6.isValid()) {
            meta.flow_hash = flow_hash_unit_ipv6.get({ FLOW_FIELDS_IPV6 });
        } else {
            meta.flow_hash = flow_hash_unit.get({ FLOW_FIELDS });
        }
#else
        meta.flow_hash = flow_hash_unit.get({ FLOW_FIELDS });
#endif
        if (HAS_IP) {
            if (!meta.checksum_error && ig_prsr_md.parser_err == PARSER_ERROR_OK && HAS_LEGAL_IP_VERSION) {
                if (IP_TTL > 1) {
#ifdef HOST_TRUST
                    if (meta.is_cnp == 1 && !HAS_LENGTH(CNP_BYTES)) {
                        meta.is_cnp = 0;
                    }
#endif
                    if (IS_SUSPECT) {
                        edge_guard.apply(hdr, meta);
                    } else {
#ifdef HOST_TRUST
                        host_trust.apply(hdr, meta);
#endif
                        remarking.apply(hdr, meta);
                    }
                    if (meta.stopped == 0) {
                        forwarding.apply(hdr, meta);
                        if (meta.egress_port == CPU_PORT) {
                            TO_CPU(REASON_TO_CPU, 0);
                        } else if (meta.egress_port != NO_PORT) {
                            queue_selection.apply(hdr, meta);
                            if (hdr.int_shim.isValid() && meta.is_stray == 0) {
                                int_sink.apply(hdr, meta);
                            }
                        }
                    }
                } else {
                    TO_CPU(REASON_TO_CPU, 0);
                }
            }
        } else if (hdr.packet_out.isValid()) {
            if (hdr.packet_out.submit_to_ingress == 0 && hdr.packet_out.egress_port != CPU_PORT) {
                meta.egress_port = hdr.packet_out.egress_port;
                meta.qid = CONTROL_QID;
                meta.is_raw = 1;
            }
        } else if (hdr.ethernet.isValid() && hdr.ethernet.ether_type == ETHERTYPE_LINK_PROBE) {
            TO_CPU(REASON_LINK_PROBE, 0);
        }

#ifdef HOST_TRUST
        if (meta.egress_port == CPU_PORT) {
            cpu_guard.apply(meta);
        }
#endif
        if (meta.egress_port != NO_PORT) {
            ig_tm_md.ucast_egress_port = meta.egress_port;
            ig_tm_md.qid = (QueueId_t) meta.qid;
            ingress_packets.count(meta.egress_port ++ meta.qid);
            STORE_DSCP_AND_TTL

            hdr.bridge.setValid();
            hdr.bridge.is_raw = meta.is_raw;
            hdr.bridge.reason_bits = meta.reason_bits;
            hdr.bridge.qid = meta.qid;
            hdr.bridge.ingress_port = (bit<16>) meta.ingress_port;
            hdr.bridge.int_egress_port = meta.int_egress_port;
            hdr.bridge.ingress_time = ig_prsr_md.global_tstamp;
        } else {
            ig_dprsr_md.drop_ctl = 1;
        }
        if (meta.is_stray == 1) {
            stray_packets.count(meta.ingress_port ++ meta.stray);
        }
    }
}

control SwitchIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    FrameDeparser() frame;

    apply {
        packet.emit(hdr.bridge);
        frame.apply(packet, hdr);
    }
}

parser SwitchEgressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                          out egress_intrinsic_metadata_t eg_intr_md) {
    FrameParser() frame;

    state start {
        packet.extract(eg_intr_md);
        packet.extract(hdr.bridge);
        meta = { ... };
        meta.qid = hdr.bridge.qid;
        meta.ingress_port = hdr.bridge.ingress_port[8:0];
        meta.int_egress_port = hdr.bridge.int_egress_port;
        meta.ingress_time = hdr.bridge.ingress_time;
        transition select(hdr.bridge.is_raw) {
            1: accept;
            default: parse_frame;
        }
    }

    @noWarn("uninitialized-use")
    state parse_frame {
        frame.apply(packet, hdr, meta);
        transition accept;
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta,
                     in egress_intrinsic_metadata_t eg_intr_md,
                     in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
                     inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
                     inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    EcnProfile() ecn_profile;
    IntTransit() int_transit;
    Random<bit<16>>() draw;

    // Packets that left their queue for the port, bytes as received; index port * 8 + queue.
    @name(".egress_packets") @id(EGRESS_PACKETS_COUNTER_ID)
    Counter<bit<64>, counter_index_t>(COUNTER_SIZE, CounterType_t.PACKETS_AND_BYTES) egress_packets;

    // Packets this switch turned from ECT to CE; index port * 8 + queue.
    @name(".ecn_marks") @id(ECN_MARKS_COUNTER_ID)
    Counter<bit<64>, counter_index_t>(COUNTER_SIZE, CounterType_t.PACKETS) ecn_marks;

    apply {
        meta.counter_cell = eg_intr_md.egress_port ++ meta.qid;
        egress_packets.count(meta.counter_cell, sizeInBytes(hdr.bridge));
        if (HAS_IP) {
            // At dequeue, as on the other targets, but in cells and with the packet itself.
            meta.queue_depth = eg_intr_md.deq_qdepth;
            if (IP_ECN != ECN_NOT_ECT && IP_ECN != ECN_CE) {
                ecn_profile.apply(meta);
                // Fields cannot be compared here, but their saturated difference can be with zero; the
                // draw reaches 0xFFFF, so the probability that means "always" is named.
                meta.mark_draw = draw.get();
                if (meta.mark_probability == 0xFFFF) {
                    meta.mark_margin = 1;
                } else {
                    meta.mark_margin = meta.mark_probability |-| meta.mark_draw;
                }
                if (meta.mark_margin != 0) {
                    IP_ECN = ECN_CE;
                    STORE_ECN
                    ecn_marks.count(meta.counter_cell);
                }
            }
            if (meta.int_egress_port != NO_PORT) {
                meta.egress_time = eg_prsr_md.global_tstamp;
                int_transit.apply(hdr, meta);
            }
        }
        // A shift and an OR take two steps.
        if (hdr.bridge.reason_bits != 0) {
            hdr.packet_in_words.setValid();
            hdr.packet_in_words.port_and_reason = hdr.bridge.ingress_port << 7;
            hdr.packet_in_words.egress_port = 0;
        }
        if (hdr.bridge.reason_bits == (bit<16>) REASON_INT_SINK << 4) {
            hdr.packet_in_words.egress_port = (bit<16>) meta.int_egress_port;
        }
        if (hdr.packet_in_words.isValid()) {
            hdr.packet_in_words.port_and_reason =
                hdr.packet_in_words.port_and_reason | hdr.bridge.reason_bits;
        }
    }
}

control SwitchEgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                             in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    FrameDeparser() frame;
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.header_checksum = ipv4_checksum.update(IPV4_CHECKSUM_FIELDS);
        }
        packet.emit(hdr.packet_in_words);
        frame.apply(packet, hdr);
    }
}

Pipeline(SwitchIngressParser(), SwitchIngress(), SwitchIngressDeparser(),
         SwitchEgressParser(), SwitchEgress(), SwitchEgressDeparser()) pipe;

@pkginfo(name="polyrhythm", version=POLYRHYTHM_VERSION)
@depth_unit(DEPTH_UNIT)
@time_unit(TIME_UNIT)
Switch(pipe) main;
