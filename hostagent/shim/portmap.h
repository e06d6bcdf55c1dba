/* SPDX-License-Identifier: Apache-2.0 */
/* The port map: which UDP source ports the queue pairs between two addresses take, in turn. */
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

/* Read a map. NULL, with `why` filled, for a file that is not whole or not right in every line; a file that
 * is not there is a map without entries. */
struct port_map *map_read(const char *path, char *why, size_t room);

void map_free(struct port_map *map);

/* The entry of a pair; NULL if there is none. */
const struct map_entry *map_find(const struct port_map *map, const struct gid *source,
                                 const struct gid *destination);

/* The flow label from which a NIC makes source port `port` (0xC000-0xFFFF). */
uint32_t map_label(uint16_t port);

#endif
