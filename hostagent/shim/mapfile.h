/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the agent's maps share. */
#ifndef POLYRHYTHM_SHIM_MAPFILE_H
#define POLYRHYTHM_SHIM_MAPFILE_H

#include "abi.h"
#include <stddef.h>

/* Read an address; an IPv4 address as IPv4-mapped IPv6. Returns 0 if it is none. */
int parse_address(const char *text, struct gid *address);

/* Zeroed memory outside the heap: a signal handler may need it while the program allocates. NULL: none is left. */
void *take_memory(size_t bytes);

void give_back(void *memory);

/* The text of a file, to be given back. NULL and `why` if it cannot be read whole; a missing file is empty. Errno
 * is 0 if the file was opened. */
char *read_whole(const char *path, char *why, size_t room);

#endif
