/* SPDX-License-Identifier: Apache-2.0 */
/* A libibverbs of the tests: one device, two GIDs, versioned names; it logs what queue pairs are told.
 *
 * FAKE_LOG: the file; FAKE_GID: the host's address; FAKE_REFUSES_LABELS: a flow label other than 0 is EINVAL.
 */
#include "abi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
    char name[64];
};
struct context {
    struct device *device;
};

static struct device device = {"mlx5_0"};
static struct context context = {&device};
static unsigned made;

static void note(const char *what, const struct qp *qp, long value)
{
    const char *path = getenv("FAKE_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %u %ld\n", what, qp->qp_num, value);
        fclose(file);
    }
}

struct device **ibv_get_device_list(int *count)
{
    struct device **list = calloc(2, sizeof *list);
    int there = getenv("FAKE_NO_DEVICE") == NULL;
    if (count)
        *count = there;
    if (there)
        list[0] = &device;
    return list;
}

void ibv_free_device_list(struct device **list) { free(list); }

const char *ibv_get_device_name(struct device *of) { return of->name; }

struct context *ibv_open_device(struct device *of) { return of == &device ? &context : NULL; }

int ibv_close_device(struct context *of) { return of == &context ? 0 : EINVAL; }

int ibv_query_gid(struct context *of, uint8_t port, int index, struct gid *gid)
{
    const char *address = getenv("FAKE_GID");
    memset(gid->raw, 0, sizeof gid->raw);
    gid->raw[10] = gid->raw[11] = 0xFF;
    if (of != &context || port != 1 || index != 3)
        return -1;
    return inet_pton(AF_INET, address ? address : "10.0.0.1", gid->raw + 12) == 1 ? 0 : -1;
}

struct qp *ibv_create_qp(void *domain, int *type)
{
    struct qp *qp = calloc(1, 512);
    qp->context = &context;
    qp->pd = domain;
    qp->qp_num = ++made;
    qp->qp_type = *type;
    return qp;
}

int ibv_modify_qp(struct qp *qp, struct qp_attr *attr, int mask)
{
    if (mask & QP_AV && attr->ah_attr.flow_label && getenv("FAKE_REFUSES_LABELS"))
        return EINVAL;
    if (mask & QP_AV)
        note("label", qp, (long)attr->ah_attr.flow_label);
    if (mask & QP_STATE) {
        qp->state = attr->qp_state;
        note("state", qp, attr->qp_state);
    }
    return 0;
}

int ibv_destroy_qp(struct qp *qp)
{
    note("destroy", qp, 0);
    memset(qp, 0xDD, 512);
    free(qp);
    return 0;
}

/* A name of a later version, which the shim must let through. */
long ibv_reg_mr_iova2(void) { return 1234; }
