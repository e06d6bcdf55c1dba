// SPDX-License-Identifier: Apache-2.0
// A ramp of its own for ECN-capable TCP: the kernel's TCP halves its window for a mark, once a round trip, and
// DCQCN cuts its rate for each notification, so one ramp does not suit both.
//
// The table has the keys and the action of ecn. A miss leaves the packet to ecn.

#ifndef POLYRHYTHM_TCP_MARKING_P4
#define POLYRHYTHM_TCP_MARKING_P4

#include "ids.p4"
#include "target.p4"
#include "../shared/constants.p4"

#define IS_TCP \
    ((hdr.ipv4.isValid() && hdr.ipv4.protocol == IP_PROTOCOL_TCP) \
     || (hdr.ipv6.isValid() && hdr.ipv6.next_header == IP_PROTOCOL_TCP))

// `decided` is 1 if this ramp has the queue.
control TcpEcnProfile(in headers_t hdr, inout metadata_t meta, out bit<1> decided) {
    @name(".set_tcp_mark_probability") @id(SET_TCP_MARK_PROBABILITY_ACTION_ID)
    action set_tcp_mark_probability(bit<16> probability) {
        meta.mark_probability = probability;
    }

    @name(".ecn_tcp") @id(ECN_TCP_TABLE_ID)
    table ecn_tcp {
        key = {
            meta.qid : exact @name("qid");
            meta.queue_depth : range @name("depth");
        }
        actions = { set_tcp_mark_probability; @defaultonly NoAction; }
        const default_action = NoAction();
        size = ECN_SIZE;
    }

    apply {
        decided = 0;
        if (IS_TCP) {
            if (ecn_tcp.apply().hit) {
                decided = 1;
            }
        }
    }
}

#endif
