/* SPDX-License-Identifier: Apache-2.0 */
/* What the socket shim knows: the C library's own functions, its environment and the map, under one lock. */
#ifndef POLYRHYTHM_SHIM_SOCKETSTATE_H
#define POLYRHYTHM_SHIM_SOCKETSTATE_H

#include "socketmap.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef int connect_function(int, const struct sockaddr *, socklen_t);
typedef int listen_function(int, int);
typedef int name_function(int, struct sockaddr *, socklen_t *);
typedef int accept4_function(int, struct sockaddr *, socklen_t *, int);

/* The C library's functions, which ours replace. */
struct real_functions {
    connect_function *connect, *bind;
    listen_function *listen;
    name_function *accept, *getsockname, *getpeername;
    accept4_function *accept4;
};

extern struct real_functions real;
extern struct socket_map *map; /* under the lock */
extern struct sockaddr_un reports; /* sun_family 0: nobody takes reports */
extern char log_path[], job[];
extern unsigned low_port, high_port; /* the kernel's range of local ports; 0: not known */
extern unsigned rendezvous; /* MASTER_PORT; 0: none */
extern uint64_t pace_rate; /* the most that a TCP connection sends, in bytes per second; 0: any */
extern int disabled;

struct held { /* what lock() changed in the calling thread */
    sigset_t signals;
    int cancel;
};

/* Read the environment, once. Every function that replaces one of the C library calls this first. */
void start_once(void);

/* A signal handler may connect, and a thread may be cancelled: neither while the lock is held. */
void lock(struct held *held);
void unlock(const struct held *held);

/* Append a line to the log, if there is one. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* Read the map again if the file has changed. The caller holds the lock. */
void refresh(void);

/* Whether the map has lines of this job for a protocol and an address: as destination, or as source. The caller
 * holds the lock. */
int knows(int protocol, const struct gid *address, int as_source);

/* The entry for connection `number` from one address to another: in turn, if there are fewer entries. The caller
 * holds the lock. */
const struct socket_entry *entry_of(int protocol, const struct gid *source, const struct gid *destination,
                                    unsigned number);

/* The address and port of an IPv4 or IPv6 socket address, IPv4 as IPv4-mapped IPv6. Returns 0 for others. */
int read_address(const struct sockaddr *from, socklen_t length, struct gid *address, uint16_t *port);

/* The same of an address that the program gives to a call. Returns 0 also if it cannot be read: the call itself
 * then fails with EFAULT. */
int read_programs_address(const struct sockaddr *from, socklen_t length, struct gid *address, uint16_t *port);

/* The address and port that getsockname or getpeername gives. Returns 0 if it gives none. */
int named(name_function *name, int fd, struct gid *address, uint16_t *port);

/* Whether an address is that of no host. */
int is_any(const struct gid *address);

/* A socket option that is a number; -1 if there is none. */
int number_option(int fd, int level, int option);

#endif
