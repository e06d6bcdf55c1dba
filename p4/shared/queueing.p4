// SPDX-License-Identifier: Apache-2.0
// Who goes first: DSCP -> other DSCP -> queue in ingress, and the congestion mark's probability in egress.

#ifndef POLYRHYTHM_QUEUEING_P4
#define POLYRHYTHM_QUEUEING_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// So that a flow's priority can change while its sender's DSCP cannot: by ingress port and DSCP, or, where
// those say so, by the flow as well. The new DSCP steers the queue here and at every later hop.
control Remarking(inout headers_t hdr, inout metadata_t meta) {
    @name(".set_dscp") @id(SET_DSCP_ACTION_ID)
    action set_dscp(dscp_t dscp) {
        IP_DSCP = dscp;
    }

    // Ask remark_flow; `dscp` is for the flows it does not name.
    @name(".set_dscp_by_flow") @id(SET_DSCP_BY_FLOW_ACTION_ID)
    action set_dscp_by_flow(dscp_t dscp) {
        meta.other_dscp = dscp;
    }

    @name(".remark") @id(REMARK_TABLE_ID)
    table remark {
        key = {
            meta.ingress_port : exact @name("port");
            IP_DSCP : exact @name("dscp");
        }
        actions = { @defaultonly NoAction; set_dscp; set_dscp_by_flow; }
        const default_action = NoAction();
        size = REMARK_SIZE;
    }

    @name(".remark_flow") @id(REMARK_FLOW_TABLE_ID)
    table remark_flow {
        key = {
            meta.ingress_port : exact @name("port");
            IP_DSCP : exact @name("dscp");
            hdr.ipv4.src_addr : exact @name("ipv4_src");
            hdr.ipv4.dst_addr : exact @name("ipv4_dst");
            hdr.ipv4.protocol : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { set_dscp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = REMARK_FLOW_SIZE;
    }

#ifdef IPV6
    @name(".remark_flow_ipv6") @id(REMARK_FLOW_IPV6_TABLE_ID)
    table remark_flow_ipv6 {
        key = {
            meta.ingress_port : exact @name("port");
            IP_DSCP : exact @name("dscp");
            hdr.ipv6.src_addr : exact @name("ipv6_src");
            hdr.ipv6.dst_addr : exact @name("ipv6_dst");
            hdr.ipv6.next_header : exact @name("protocol");
            meta.l4_src_port : exact @name("src_port");
            meta.l4_dst_port : exact @name("dst_port");
        }
        actions = { set_dscp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = REMARK_FLOW_SIZE;
    }
#endif

    apply {
        switch (remark.apply().action_run) {
            set_dscp_by_flow: {
#ifdef IPV6
                if (hdr.ipv6.isValid()) {
                    if (!remark_flow_ipv6.apply().hit) {
                        IP_DSCP = meta.other_dscp;
                    }
                } else if (!remark_flow.apply().hit) {
                    IP_DSCP = meta.other_dscp;
                }
#else
                if (!remark_flow.apply().hit) {
                    IP_DSCP = meta.other_dscp;
                }
#endif
            }
        }
    }
}

// The controller maps DSCP to queues: 7 for CNP, ACK and control, 6 to 1 for jobs, 0 for mice.
control QueueSelection(in headers_t hdr, inout metadata_t meta) {
    @name(".set_queue") @id(SET_QUEUE_ACTION_ID)
    action set_queue(qid_t qid) {
        meta.qid = qid;
    }

    @name(".queue") @id(QUEUE_TABLE_ID)
    table queue {
        key = { IP_DSCP : exact @name("dscp"); }
        actions = { set_queue; }
        default_action = set_queue(0);
        size = QUEUE_SIZE;
    }

    apply {
        queue.apply();
    }
}

// RED's staircase as ranges of depth (DCQCN, Zhu et al. 2015, section 3.1: Kmin, Kmax, Pmax), filled by
// the controller. `meta.queue_depth` is the depth the target says; the target draws the random number.
control EcnProfile(inout metadata_t meta) {
    @name(".set_mark_probability") @id(SET_MARK_PROBABILITY_ACTION_ID)
    action set_mark_probability(bit<16> probability) {
        meta.mark_probability = probability;
    }

    @name(".ecn") @id(ECN_TABLE_ID)
    table ecn {
        key = {
            meta.qid : exact @name("qid");
            meta.queue_depth : range @name("depth");
        }
        actions = { set_mark_probability; }
        default_action = set_mark_probability(0);
        size = ECN_SIZE;
    }

    apply {
        ecn.apply();
    }
}

#endif
