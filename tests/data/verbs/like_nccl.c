/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses verbs as NCCL does: dlopen by name, every function by dlvsym, flow label 0.
 *
 * Arguments: destination addresses, one queue pair each. Then it reads lines: "destroy N", "fork", and ends
 * with its input. It prints "ready" when all queue pairs are in RTS, and answers each line with "done".
 * Compiled with LINKED it is linked to libibverbs instead, as other programs are.
 */
#include "abi.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LINKED
extern void **ibv_get_device_list(int *);
extern struct context *ibv_open_device(void *);
extern struct qp *ibv_create_qp(void *, int *);
extern int ibv_modify_qp(struct qp *, struct qp_attr *, int);
extern int ibv_destroy_qp(struct qp *);
#else
static void **(*ibv_get_device_list)(int *);
static struct context *(*ibv_open_device)(void *);
static struct qp *(*ibv_create_qp)(void *, int *);
static int (*ibv_modify_qp)(struct qp *, struct qp_attr *, int);
static int (*ibv_destroy_qp)(struct qp *);

static void *symbol(void *library, const char *name, const char *version)
{
    void *found = dlvsym(library, name, version);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return found;
}

static void load(void)
{
    const char *told = getenv("NCCL_IBVERBS_LIB");
    void *library = told ? dlopen(told, RTLD_NOW) : NULL;
    if (!library && !(library = dlopen("libibverbs.so", RTLD_NOW)))
        library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(4);
    }
    ibv_get_device_list = symbol(library, "ibv_get_device_list", "IBVERBS_1.1");
    ibv_open_device = symbol(library, "ibv_open_device", "IBVERBS_1.1");
    ibv_create_qp = symbol(library, "ibv_create_qp", "IBVERBS_1.1");
    ibv_modify_qp = symbol(library, "ibv_modify_qp", "IBVERBS_1.1");
    ibv_destroy_qp = symbol(library, "ibv_destroy_qp", "IBVERBS_1.1");
    long (*later)(void) = symbol(library, "ibv_reg_mr_iova2", "IBVERBS_1.8");
    if (later() != 1234 || dlvsym(library, "ibv_modify_qp", "IBVERBS_9.9"))
        exit(5);
}
#endif

static void connect_to(struct qp *qp, const char *address)
{
    struct qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = QPS_INIT;
    if (ibv_modify_qp(qp, &attr, QP_STATE))
        exit(6);
    attr.qp_state = QPS_RTR;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.sgid_index = 3;
    attr.ah_attr.dgid.raw[10] = attr.ah_attr.dgid.raw[11] = 0xFF;
    inet_pton(AF_INET, address, attr.ah_attr.dgid.raw + 12);
    if (ibv_modify_qp(qp, &attr, QP_STATE | QP_AV) || attr.ah_attr.flow_label)
        exit(7);
    attr.qp_state = QPS_RTS;
    if (ibv_modify_qp(qp, &attr, QP_STATE))
        exit(8);
}

int main(int count, char **addresses)
{
    struct qp *qps[1024] = {0};
    char line[64];
    int devices, type = QPT_RC, number;
#ifndef LINKED
    load();
#endif
    void **list = ibv_get_device_list(&devices);
    if (devices < 1 || !ibv_open_device(list[0]))
        return 9;
    for (int i = 1; i < count; i++)
        connect_to(qps[i] = ibv_create_qp(NULL, &type), addresses[i]);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "destroy %d", &number) == 1) {
            ibv_destroy_qp(qps[number]);
        } else if (!strcmp(line, "fork\n")) {
            if (!fork()) {
                connect_to(ibv_create_qp(NULL, &type), addresses[1]);
                _exit(0);
            }
            wait(&number);
            if (number)
                return 10;
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
