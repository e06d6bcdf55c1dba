/* SPDX-License-Identifier: Apache-2.0 */
/* Binds to port 0 that wait for connect, and the range from which the kernel takes a socket's local port.
 *
 * What is deferred is known by the socket's options: a descriptor may be duplicated, inherited and passed. */
#ifndef POLYRHYTHM_SHIM_DEFERRED_H
#define POLYRHYTHM_SHIM_DEFERRED_H

#include <stdint.h>

/* Take the socket's port from LOW to HIGH; `range` is HIGH << 16 | LOW, or 0: the kernel's range. Returns 0, or -1
 * as setsockopt does. */
int set_range(int fd, uint32_t range);

/* The socket's range. All ones: there is none, as with a kernel older than Linux 6.3. */
uint32_t range_of(int fd);

/* Let connect choose the port of a socket that is about to be bound to port 0. Returns 0 if it cannot: the program
 * has options of its own. */
int defer(int fd);

int is_deferred(int fd);

/* The socket's options are again those that the program has set. */
void forget_deferred(int fd);

/* Give a socket whose bind was deferred its port, as without the shim. */
void bind_now(int fd);

#endif
