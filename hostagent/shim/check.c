/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled, not run: compares abi.h with rdma-core's own header, where that is installed (`make check`). */
#include "abi.h"
#include <infiniband/verbs.h>
#include <stddef.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define AT(s, f, t, g) SAME(offsetof(struct s, f), offsetof(struct t, g))

SAME(QP_STATE, IBV_QP_STATE);
SAME(QP_AV, IBV_QP_AV);
SAME(QPS_INIT, IBV_QPS_INIT);
SAME(QPS_RTR, IBV_QPS_RTR);
SAME(QPS_RTS, IBV_QPS_RTS);
SAME(QPS_SQE, IBV_QPS_SQE);
SAME(QPS_ERR, IBV_QPS_ERR);
SAME(QPT_RC, IBV_QPT_RC);
SAME(QPT_UC, IBV_QPT_UC);
AT(qp, context, ibv_qp, context);
AT(qp, qp_num, ibv_qp, qp_num);
AT(qp, qp_type, ibv_qp, qp_type);
AT(qp_attr, qp_state, ibv_qp_attr, qp_state);
AT(qp_attr, ah_attr, ibv_qp_attr, ah_attr);
AT(qp_attr, ah_attr.dgid, ibv_qp_attr, ah_attr.grh.dgid);
AT(qp_attr, ah_attr.flow_label, ibv_qp_attr, ah_attr.grh.flow_label);
AT(qp_attr, ah_attr.sgid_index, ibv_qp_attr, ah_attr.grh.sgid_index);
AT(qp_attr, ah_attr.is_global, ibv_qp_attr, ah_attr.is_global);
AT(qp_attr, ah_attr.port_num, ibv_qp_attr, ah_attr.port_num);
