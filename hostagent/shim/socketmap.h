/* SPDX-License-Identifier: Apache-2.0 */
/* The socket map: which local ports lead connections along their planned paths, and their DSCP.
 *
 * A line is "PROTOCOL JOB SOURCE DESTINATION INDEX DSCP PORTS SENT RETURNED". Connection number INDEX of a
 * process of JOB ("*": of any) from SOURCE to a port of DESTINATION takes a port of PORTS ("LOW-HIGH,PORT,...")
 * that fulfils the conditions of SENT and RETURNED ("LOCAL:PEER:ODD,...", in hexadecimal): the number of set
 * bits in (local port & LOCAL) and (peer port & PEER) is odd if ODD is 1. "-" stands for nothing.
 */
#ifndef POLYRHYTHM_SHIM_SOCKETMAP_H
#define POLYRHYTHM_SHIM_SOCKETMAP_H

#include "abi.h"
#include <stddef.h>

enum { MOST_CONDITIONS = 40, MOST_RANGES = 16, MOST_JOB_CHARS = 1024 };

struct condition {
    uint16_t local, peer;
    int odd;
};

struct conditions {
    size_t count;
    struct condition each[MOST_CONDITIONS];
};

struct socket_entry {
    int protocol; /* IPPROTO_TCP or IPPROTO_UDP */
    char *job;
    struct gid source, destination;
    unsigned index;
    int dscp; /* -1: the socket's own */
    size_t range_count;
    struct {
        uint16_t low, high;
    } ranges[MOST_RANGES];
    struct conditions sent, returned;
};

struct socket_map {
    size_t count;
    struct socket_entry *entries;
};

/* Read a map as map_read does. */
struct socket_map *socket_map_read(const char *path, char *why, size_t room);

void socket_map_free(struct socket_map *map);

/* Whether an entry is for connections of this job. */
int entry_is_for(const struct socket_entry *entry, const char *job);

/* Whether two ports fulfil all conditions. */
int fulfils(const struct conditions *conditions, uint16_t local, uint16_t peer);

#endif
