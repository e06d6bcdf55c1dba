/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that this process has connected through the shim. The caller holds the shim's lock.
 *
 * No call tells the shim that a socket is closed: there are too many ways. An entry counts as long as its file
 * descriptor is still the same socket, by its inode number. */
#ifndef POLYRHYTHM_SHIM_LIVESOCKETS_H
#define POLYRHYTHM_SHIM_LIVESOCKETS_H

#include "abi.h"
#include <stddef.h>
#include <sys/types.h>

enum { MOST_ALIKE = 64, MOST_LIVE = 1024 };

/* Where a connection goes. */
struct peer {
    int protocol;
    struct gid address;
    uint16_t port;
};

struct live {
    int fd;
    ino_t inode;
    struct peer peer;
    unsigned number;
};

struct live_sockets {
    size_t count;
    unsigned full_adds;
    struct live each[MOST_LIVE];
};

extern struct live_sockets *live; /* all zeros: none, as in a child after a fork */

/* Register a socket that is about to connect to `peer`. Returns its number: the lowest that no live connection
 * of this process to `peer` has, at most MOST_ALIKE. */
unsigned live_add(int fd, const struct peer *peer);

/* The socket has not connected. */
void live_remove(int fd);

#endif
