/* SPDX-License-Identifier: Apache-2.0 */
/* The port map: the UDP source ports for the queue pairs between two addresses. Queue pair number i takes
 * port number i, modulo the number of ports. */
#ifndef POLYRHYTHM_SHIM_PORTMAP_H
#define POLYRHYTHM_SHIM_PORTMAP_H

#include "abi.h"
#include <stddef.h>

struct map_entry {
    struct gid source;
    struct gid destination;
    size_t count;
    uint16_t *ports;
};

struct port_map {
    size_t count;
    struct map_entry *entries;
};

/* Read a map. Returns NULL and fills `why` if the file is incomplete or a line is not legal. A missing file
 * is a map without entries. */
struct port_map *map_read(const char *path, char *why, size_t room);

void map_free(struct port_map *map);

/* The entry of two addresses; NULL if there is none. */
const struct map_entry *map_find(const struct port_map *map, const struct gid *source,
                                 const struct gid *destination);

/* The flow label from which a NIC computes the source port `port` (0xC000-0xFFFF). */
uint32_t map_label(uint16_t port);

#endif
