/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the agent's maps share. */
#ifndef POLYRHYTHM_SHIM_MAPFILE_H
#define POLYRHYTHM_SHIM_MAPFILE_H

#include "abi.h"
#include <stddef.h>

/* Read an address; an IPv4 address as IPv4-mapped IPv6. Returns 0 if it is none. */
int parse_address(const char *text, struct gid *address);

/* The text of a file, to be freed. NULL and `why` if it cannot be read whole; a missing file is empty. */
char *read_whole(const char *path, char *why, size_t room);

#endif
