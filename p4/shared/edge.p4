// SPDX-License-Identifier: Apache-2.0
// What hosts may not say: INT probes of their own making, and the CNP's DSCP on what is no CNP.

#ifndef POLYRHYTHM_EDGE_P4
#define POLYRHYTHM_EDGE_P4

#include "headers.p4"
#include "ids.p4"
#include "metadata.p4"

// Either would ride in the queue that nothing waits before, and a probe would be believed.
#define IS_SUSPECT (hdr.int_shim.isValid() || (IP_DSCP == DSCP_CNP && meta.is_cnp == 0))

// Ingress, suspects only: strays are those that come in by a port of edge_ingress.
control EdgeGuard(inout headers_t hdr, inout metadata_t meta) {
    @name(".stop_strays") @id(STOP_STRAYS_ACTION_ID)
    action stop_strays() {
        meta.is_stray = 1;
        meta.stopped = 1;
    }

    // From here on a probe is no probe: whoever reads the new DSCP takes it for plain UDP.
    @name(".remark_strays") @id(REMARK_STRAYS_ACTION_ID)
    action remark_strays(dscp_t dscp) {
        meta.is_stray = 1;
        IP_DSCP = dscp;
    }

    @name(".edge_ingress") @id(EDGE_INGRESS_TABLE_ID)
    table edge_ingress {
        key = { meta.ingress_port : exact @name("port"); }
        actions = { stop_strays; remark_strays; @defaultonly NoAction; }
        const default_action = NoAction();
        size = EDGE_INGRESS_SIZE;
    }

    apply {
        meta.stray = STRAY_CNP;
        if (hdr.int_shim.isValid()) {
            meta.stray = STRAY_INT;
        }
        edge_ingress.apply();
    }
}

#endif
