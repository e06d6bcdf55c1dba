/* SPDX-License-Identifier: Apache-2.0 */
/* The part of libibverbs' binary interface (IBVERBS_1.1) that the shim reads.
 *
 * Layouts of version 1.1 never change, so the build needs no rdma-core header. Where <infiniband/verbs.h> is
 * installed, check.c compares every offset below with it.
 */
#ifndef POLYRHYTHM_SHIM_ABI_H
#define POLYRHYTHM_SHIM_ABI_H

#include <stdint.h>

#define VERBS_VERSION "IBVERBS_1.1"

enum { QP_STATE = 1 << 0, QP_AV = 1 << 7 };
enum { QPS_RESET, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQD, QPS_SQE, QPS_ERR };
enum { QPT_RC = 2, QPT_UC = 3 };

struct gid {
    uint8_t raw[16];
};

struct context; /* struct ibv_context */

struct qp { /* struct ibv_qp */
    struct context *context;
    void *qp_context;
    void *pd;
    void *send_cq;
    void *recv_cq;
    void *srq;
    uint32_t handle;
    uint32_t qp_num;
    int state;
    int qp_type;
};

struct ah_attr { /* struct ibv_ah_attr, its global route first */
    struct gid dgid;
    uint32_t flow_label;
    uint8_t sgid_index;
    uint8_t hop_limit;
    uint8_t traffic_class;
    uint16_t dlid;
    uint8_t sl;
    uint8_t src_path_bits;
    uint8_t static_rate;
    uint8_t is_global;
    uint8_t port_num;
};

struct qp_attr { /* struct ibv_qp_attr, up to what is needed */
    int qp_state;
    int cur_qp_state;
    int path_mtu;
    int path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn;
    uint32_t sq_psn;
    uint32_t dest_qp_num;
    unsigned int qp_access_flags;
    uint32_t cap[5];
    struct ah_attr ah_attr;
};

typedef int modify_qp_function(struct qp *, struct qp_attr *, int);
typedef int destroy_qp_function(struct qp *);
typedef int query_gid_function(struct context *, uint8_t port, int index, struct gid *);
typedef int modify_sport_function(struct qp *, uint16_t port);

#endif
