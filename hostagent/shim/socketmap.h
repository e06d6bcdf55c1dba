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

enum { MOST_CONDITIONS = 40, MOST_RANGES = 16, MOST_JOB_CHARS = 1024, PORT_BITS = 16 };

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
    const char *job; /* in the map's text */
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
    char *text;
    size_t count;
    struct socket_entry *entries;
};

/* Read a map as map_read does. */
struct socket_map *socket_map_read(const char *path, char *why, size_t room);

void socket_map_free(struct socket_map *map);

/* Whether an entry is for connections of this job. */
int entry_is_for(const struct socket_entry *entry, const char *job);

/* What conditions say of the local port when the peer's is known: the number of set bits in (port & mask) is odd
 * or even. The masks have different highest bits, so some port fulfils all of them. */
struct parities {
    size_t count;
    struct {
        uint16_t mask;
        int odd;
    } each[PORT_BITS];
};

/* Add conditions to parities, for one port of the peer. Returns 0 if no port fulfils all of them. */
int parities_add(struct parities *parities, const struct conditions *conditions, uint16_t peer);

int fulfils(const struct parities *parities, uint16_t port);

#endif
