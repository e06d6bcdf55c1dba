// SPDX-License-Identifier: Apache-2.0
// Polyrhythm's data plane on v1model (BMv2's simple_switch_grpc and the embedded switch).
//
//  wire
//   |   SwitchParser    packet_out, Ethernet, IPv4 or IPv6, TCP ports or UDP, BTH or INT
//   |   VerifyIpv4      checksum
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
//       |- FlowletBytes      with Spreading inside Forwarding (RoCE): spread chooses the bucket of ecmp
//       |- QueueSelection    queue
//       |- IntSink (probes)  edge: a port that faces a host ---------------------> CPU, reason 1
//       |- CpuGuard (for the CPU)  cpu_rate: above it -----------------------------> drop
//       |- count ingress_packets, stray_packets
//   |
//   v   8 strict-priority queues per port
//   |
//   v   SwitchEgress
//       |- count egress_packets
//       |- TcpEcnProfile (ECT)  ecn_tcp: the probability for TCP, if an entry has it
//       |- EcnProfile (ECT)     ecn: CE by the depth at dequeue, count ecn_marks
//       |- IntTransit (probes)  switch_identity: push 32 bytes
//   |   UpdateIpv4      checksum
//   v   FrameDeparser
//  wire
//
// Tables, actions, keys and ids are the same on every target; docs/data-plane.md describes them.

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

#include "ids.p4"                   // this target's version of the interface
#include "target.p4"                // IPv6, the hash, IPv4 checksums, meters
#include "spreading.p4"             // spread
#include "../shared/parser.p4"      // frames to headers and back
#include "../shared/edge.p4"        // edge_ingress
#include "../shared/host_trust.p4"  // host_dscp, planned_pair, planned_flow
#include "../shared/forwarding.p4"  // routing, pinned_flow, ecmp, port_state, next_hop
#include "../shared/queueing.p4"    // remark, remark_flow, queue, ecn
#include "tcp_marking.p4"           // ecn_tcp
#include "../shared/telemetry.p4"   // edge, switch_identity

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    FrameParser() frame;

    state start {
        transition select(standard_metadata.ingress_port) {
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
                      inout standard_metadata_t standard_metadata) {
    EdgeGuard() edge_guard;
    HostTrust() host_trust;
    CpuGuard() cpu_guard;
    Remarking() remarking;
    Forwarding() forwarding;
    FlowletBytes() flowlet_bytes;
    QueueSelection() queue_selection;
    IntSink() int_sink;

    // Packets admitted to a port and queue, bytes as received; index port * 8 + queue.
    @name(".ingress_packets") @id(INGRESS_PACKETS_COUNTER_ID)
    counter<counter_index_t>(COUNTER_SIZE, CounterType.packets_and_bytes) ingress_packets;

    // Strays stopped or remarked at ports to hosts; index ingress port * 8 + STRAY_*.
    @name(".stray_packets") @id(STRAY_PACKETS_COUNTER_ID)
    counter<counter_index_t>(COUNTER_SIZE, CounterType.packets) stray_packets;

    apply {
        mark_to_drop(standard_metadata);   // egress_spec starts at 0, which is a port
        meta.ingress_port = standard_metadata.ingress_port;
        meta.frame_bytes = standard_metadata.packet_length;
        meta.arrival = standard_metadata.ingress_global_timestamp;
        if (HAS_IP) {
            if (standard_metadata.checksum_error == 0 && standard_metadata.parser_error == error.NoError
                && HAS_LEGAL_IP_VERSION) {
                if (IP_TTL > 1) {
                    if (meta.is_cnp == 1 && !HAS_LENGTH(CNP_BYTES)) {
                        meta.is_cnp = 0;
                    }
                    if (IS_SUSPECT) {
                        edge_guard.apply(hdr, meta);
                    } else {
                        host_trust.apply(hdr, meta);
                        remarking.apply(hdr, meta);
                    }
                    if (meta.stopped == 0) {
                        forwarding.apply(hdr, meta);
                        flowlet_bytes.apply(meta);
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
            }
        } else if (hdr.ethernet.isValid() && hdr.ethernet.ether_type == ETHERTYPE_LINK_PROBE) {
            TO_CPU(REASON_LINK_PROBE, 0);
        }

        if (meta.egress_port == CPU_PORT) {
            cpu_guard.apply(meta);
        }
        if (meta.is_stray == 1) {
            stray_packets.count(meta.ingress_port ++ meta.stray);
        }
        if (meta.egress_port != NO_PORT) {
            standard_metadata.egress_spec = meta.egress_port;
            standard_metadata.priority = meta.qid;
            ingress_packets.count(meta.egress_port ++ meta.qid);
            STORE_DSCP_AND_TTL
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    TcpEcnProfile() tcp_ecn_profile;
    EcnProfile() ecn_profile;
    IntTransit() int_transit;

    // Packets that left their queue for the port, bytes as received; index port * 8 + queue.
    @name(".egress_packets") @id(EGRESS_PACKETS_COUNTER_ID)
    counter<counter_index_t>(COUNTER_SIZE, CounterType.packets_and_bytes) egress_packets;

    // Packets this switch turned from ECT to CE; index port * 8 + queue.
    @name(".ecn_marks") @id(ECN_MARKS_COUNTER_ID)
    counter<counter_index_t>(COUNTER_SIZE, CounterType.packets) ecn_marks;

    apply {
        egress_packets.count(standard_metadata.egress_port ++ meta.qid);
        if (HAS_IP) {
            // Marked at dequeue, on the packets then waiting: the sender hears of a queue one queueing
            // delay sooner than if the depth at enqueue counted (Wu et al., CoNEXT 2012).
            meta.queue_depth = standard_metadata.deq_qdepth;
            if (IP_ECN != ECN_NOT_ECT && IP_ECN != ECN_CE) {
                bit<1> decided;
                tcp_ecn_profile.apply(hdr, meta, decided);
                if (decided == 0) {
                    ecn_profile.apply(meta);
                }
                if (meta.mark_probability != 0) {
                    bit<16> draw;
                    random<bit<16>>(draw, 0, 0xFFFE);   // never 0xFFFF: that probability is "always"
                    if (draw < meta.mark_probability) {
                        IP_ECN = ECN_CE;
                        STORE_ECN
                        ecn_marks.count(standard_metadata.egress_port ++ meta.qid);
                    }
                }
            }
            if (meta.int_egress_port != NO_PORT) {
                meta.ingress_time = standard_metadata.ingress_global_timestamp;
                meta.egress_time = standard_metadata.egress_global_timestamp;
                int_transit.apply(hdr, meta);
            }
        }
    }
}

@pkginfo(name="polyrhythm", version=V1MODEL_INTERFACE_VERSION)
@depth_unit(DEPTH_UNIT)
@time_unit(TIME_UNIT)
V1Switch(SwitchParser(), VerifyIpv4(), SwitchIngress(), SwitchEgress(), UpdateIpv4(), FrameDeparser()) main;
