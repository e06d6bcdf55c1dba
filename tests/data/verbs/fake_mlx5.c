/* SPDX-License-Identifier: Apache-2.0 */
/* A libmlx5 of the tests: it logs the ports that queue pairs are moved to; FAKE_REFUSES_MOVES: EOPNOTSUPP. */
#include "abi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int mlx5dv_modify_qp_udp_sport(struct qp *qp, uint16_t port)
{
    const char *path = getenv("FAKE_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (getenv("FAKE_REFUSES_MOVES"))
        return EOPNOTSUPP;
    if (qp->state != QPS_RTS)
        return EINVAL;
    if (file) {
        fprintf(file, "port %u %u\n", qp->qp_num, port);
        fclose(file);
    }
    return 0;
}
