/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that this process has connected or bound through the shim. The caller holds the shim's lock.
 *
 * No call tells the shim that a socket is closed: there are too many ways. An entry counts as long as its file
 * descriptor is still the same socket, by its inode number. */
#ifndef POLYRHYTHM_SHIM_LIVESOCKETS_H
#define POLYRHYTHM_SHIM_LIVESOCKETS_H

#include "abi.h"

enum { MOST_ALIKE = 64 };

/* Where a connection goes. */
struct peer {
    int protocol;
    struct gid address;
    uint16_t port;
};

/* Register a socket that is about to connect to `peer`. Returns its number: the lowest that no live connection
 * of this process to `peer` has, at most MOST_ALIKE. */
unsigned live_add(int fd, const struct peer *peer);

/* The socket has not connected. */
void live_remove(int fd);

/* Register a socket that is bound to port 0, whose port is chosen later. */
void unported_add(int fd);

/* Whether this socket is registered so. It is not afterwards. */
int unported_take(int fd);

/* In a child after a fork: nothing is registered. */
void live_clear(void);

#endif
