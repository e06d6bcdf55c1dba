// SPDX-License-Identifier: Apache-2.0
// Who goes first: DSCP -> queue in ingress, and the congestion mark's probability in egress.

#ifndef POLYRHYTHM_QUEUEING_P4
#define POLYRHYTHM_QUEUEING_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// The controller maps DSCP to queues: 7 for CNP, ACK and control, 6 to 1 for jobs, 0 for mice.
control QueueSelection(in headers_t hdr, inout metadata_t meta) {
    @name(".set_queue") @id(SET_QUEUE_ACTION_ID)
    action set_queue(qid_t qid) {
        meta.qid = qid;
    }

    @name(".queue") @id(QUEUE_TABLE_ID)
    table queue {
        key = { hdr.ipv4.dscp : exact @name("dscp"); }
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
