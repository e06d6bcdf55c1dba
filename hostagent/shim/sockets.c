/* SPDX-License-Identifier: Apache-2.0 */
/* The socket shim, for LD_PRELOAD. It gives TCP and UDP connections to addresses of the socket map a local port
 * that leads along the planned path, and the DSCP of their job. It tells the agent which 5-tuples they have.
 *
 * A port is chosen inside connect, by narrowing IP_LOCAL_PORT_RANGE to it: unlike bind, this lets sockets with
 * different peers share a port. If a port is not free, the next one is tried, and after MOST_TRIES the call
 * runs as the program made it. A program that binds to port 0 before it connects gets its port in connect too.
 * Whatever fails, the program's own call runs unchanged.
 *
 * TCP connections of a named job are reported also where the map has no line for them: the job may not have
 * joined yet. Once it has, switches pin and mark them.
 *
 * Programs that make system calls by themselves (static binaries, Go, io_uring) are not reached.
 *
 * Environment: POLYRHYTHM_SOCKET_MAP, the map (default /run/polyrhythm/sockets); POLYRHYTHM_SOCKET_JOB, the job
 * of this process; POLYRHYTHM_SOCKET_REPORTS, the agent's socket for reports; POLYRHYTHM_SHIM_LOG, a file to
 * append a line to for each connection and each fault; MASTER_PORT, the port of PyTorch's rendezvous, which is
 * left alone; POLYRHYTHM_SOCKET_PACE, the most bytes per second that each TCP connection sends.
 */
#include "deferred.h"
#include "livesockets.h"
#include "socketstate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_TRIES = 16, ECN_BITS = 3, REPORT_BYTES = MOST_JOB_CHARS + 256 };

/* What the shim does to one connection: copied from the map, which may be replaced meanwhile. */
struct plan {
    struct peer peer;
    struct gid source;
    unsigned number;
    struct socket_entry entry;
};

/* Where the last port was found: the next one is looked for behind it. */
static unsigned next_port;

/* Whether this process has deferred a bind: else connect need not look. */
static int has_deferred;

/* The address from which packets to `to` leave, as a socket that is bound to nothing would use. */
static int source_of(const struct sockaddr *to, socklen_t length, struct gid *source)
{
    uint16_t port;
    int found = 0, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        found = !real.connect(fd, to, length) && named(real.getsockname, fd, source, &port);
        close(fd);
    }
    pthread_setcancelstate(cancel, NULL);
    return found;
}

/* The options of a socket that the shim sets before it connects. */
struct options {
    int tos, class;
    uint64_t pace;
    socklen_t pace_size; /* 0: not known */
};

static void take_options(int fd, struct options *options)
{
    options->tos = number_option(fd, IPPROTO_IP, IP_TOS);
    options->class = number_option(fd, IPPROTO_IPV6, IPV6_TCLASS);
    options->pace_size = sizeof options->pace;
    if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &options->pace, &options->pace_size))
        options->pace_size = 0;
}

/* Give the options back after a call that failed: the socket's next peer may have no line in the map. */
static void restore_options(int fd, const struct options *options)
{
    /* The class first: that of an IPv6 socket may set both. */
    if (options->class >= 0 && options->class != number_option(fd, IPPROTO_IPV6, IPV6_TCLASS))
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &options->class, sizeof options->class);
    if (options->tos >= 0 && options->tos != number_option(fd, IPPROTO_IP, IP_TOS))
        setsockopt(fd, IPPROTO_IP, IP_TOS, &options->tos, sizeof options->tos);
    if (pace_rate && options->pace_size)
        setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &options->pace, options->pace_size);
}

/* Mark what the socket sends, unless the program has chosen a class by itself. */
static void mark(int fd, int dscp)
{
    int tos = dscp << 2, family = number_option(fd, SOL_SOCKET, SO_DOMAIN);
    if (dscp < 0)
        return;
    if (family == AF_INET6 && !(number_option(fd, IPPROTO_IPV6, IPV6_TCLASS) & ~ECN_BITS))
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof tos);
    /* An IPv6 socket takes this class for IPv4 peers. */
    if (!(number_option(fd, IPPROTO_IP, IP_TOS) & ~ECN_BITS))
        setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
}

/* Let the kernel send what a TCP socket has to say at the wanted rate, not in bursts, unless the program has
 * chosen a rate by itself. */
static void pace(int fd)
{
    uint64_t rate = 0;
    socklen_t size = sizeof rate;
    if (!pace_rate || number_option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP ||
        getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size))
        return;
    if (rate != (size == sizeof rate ? UINT64_MAX : UINT32_MAX))
        return;
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &pace_rate, sizeof pace_rate);
}

/* Look up what to do with a socket that is about to connect. Returns 0: leave it alone. What the map has no line
 * for is only reported. */
static int look_up(int fd, const struct sockaddr *to, socklen_t length, struct plan *plan)
{
    struct held held;
    struct gid bound;
    uint16_t port;
    struct peer *peer = &plan->peer;
    if (disabled || !read_programs_address(to, length, &peer->address, &peer->port) || !peer->port ||
        peer->port == rendezvous)
        return 0;
    peer->protocol = number_option(fd, SOL_SOCKET, SO_PROTOCOL);
    if (peer->protocol != IPPROTO_TCP && peer->protocol != IPPROTO_UDP)
        return 0;
    lock(&held);
    refresh();
    int known = knows(peer->protocol, &peer->address, 0);
    unlock(&held);
    int reported = *job && reports.sun_family && peer->protocol == IPPROTO_TCP;
    if (!(known || reported) || !named(real.getsockname, fd, &bound, &port))
        return 0;
    plan->source = bound;
    if (known && is_any(&bound) && !source_of(to, length, &plan->source))
        return 0;
    lock(&held);
    plan->number = live_add(fd, peer);
    const struct socket_entry *entry = NULL;
    if (known)
        entry = entry_of(peer->protocol, &plan->source, &peer->address, plan->number);
    plan->entry = entry ? *entry : (struct socket_entry){.dscp = -1};
    plan->entry.job = NULL; /* belongs to the map */
    if (!entry && !reported)
        live_remove(fd);
    unlock(&held);
    return entry || reported;
}

/* How many local ports the entry lets a connection take; `port` becomes number `at` of them. */
static unsigned allowed_ports(const struct socket_entry *entry, unsigned at, uint16_t *port)
{
    unsigned count = 0, ranges = entry->range_count ? (unsigned)entry->range_count : 1;
    for (unsigned i = 0; i < ranges; i++) {
        unsigned low = entry->range_count ? entry->ranges[i].low : low_port;
        unsigned high = entry->range_count ? entry->ranges[i].high : high_port;
        low = low < low_port ? low_port : low;
        high = high > high_port ? high_port : high;
        if (low > high)
            continue;
        if (count <= at && at - count <= high - low)
            *port = (uint16_t)(low + at - count);
        count += high - low + 1;
    }
    return count;
}

/* Connect from a port of the plan. Returns 1 with the call's result and errno, or 0 if no port was free. */
static int connect_from(int fd, const struct sockaddr *to, socklen_t length, const struct plan *plan,
                        int both, int *tries, int *result)
{
    uint16_t port = 0, peer = plan->peer.port;
    const struct conditions *sent = &plan->entry.sent, *returned = &plan->entry.returned;
    struct parities wanted = {0};
    if (!parities_add(&wanted, !both && !sent->count ? returned : sent, peer) ||
        (both && !parities_add(&wanted, returned, peer)))
        return 0;
    unsigned count = allowed_ports(&plan->entry, 0, &port);
    unsigned own = (unsigned)getpid() * 2654435761u; /* processes begin at different ports */
    unsigned at = count ? (own + __atomic_add_fetch(&next_port, 1, __ATOMIC_RELAXED)) % count : 0;
    for (unsigned i = 0; i < count && *tries < MOST_TRIES; i++, at = at + 1 < count ? at + 1 : 0) {
        allowed_ports(&plan->entry, at, &port);
        if (!fulfils(&wanted, port))
            continue;
        ++*tries;
        set_range(fd, (uint32_t)port << 16 | port);
        *result = real.connect(fd, to, length);
        if (!*result || (errno != EADDRNOTAVAIL && errno != EADDRINUSE && errno != EAGAIN)) {
            __atomic_store_n(&next_port, at - own, __ATOMIC_RELAXED);
            return 1;
        }
    }
    return 0;
}

/* Whether the shim may choose the socket's port: the program has chosen neither a port nor a range. */
static int may_choose(int fd, const struct plan *plan)
{
    struct gid address;
    uint16_t port;
    const struct socket_entry *entry = &plan->entry;
    if (!high_port || !(entry->range_count || entry->sent.count || entry->returned.count))
        return 0;
    if (plan->number >= MOST_ALIKE || !named(real.getsockname, fd, &address, &port) || port)
        return 0;
    return !range_of(fd) || is_deferred(fd);
}

/* Try the ports of the plan, then any. */
static int connect_from_any(int fd, const struct sockaddr *to, socklen_t length, const struct plan *plan)
{
    int result = -1, tries = 0;
    if (plan->entry.sent.count && plan->entry.returned.count &&
        connect_from(fd, to, length, plan, 1, &tries, &result))
        return result;
    if (connect_from(fd, to, length, plan, 0, &tries, &result))
        return result;
    say("no free port to port %u of a peer after %d tries; the call runs unchanged", plan->peer.port, tries);
    set_range(fd, 0);
    return real.connect(fd, to, length);
}

/* Whether a connect that ended so has connected the socket, or goes on doing so. */
static int is_under_way(int result, int why)
{
    return !result || why == EINPROGRESS || why == EINTR;
}

static int connect_on_port(int fd, const struct sockaddr *to, socklen_t length, const struct plan *plan)
{
    mark(fd, plan->entry.dscp);
    pace(fd);
    if (!may_choose(fd, plan))
        return real.connect(fd, to, length);
    unsigned before = range_of(fd);
    int result = connect_from_any(fd, to, length, plan), why = errno;
    unsigned range = range_of(fd);
    /* Else another thread has closed the socket, and this is another one, with a range of the program. */
    if (!range || range >> 16 == (range & 0xFFFF))
        set_range(fd, before);
    errno = why;
    return result;
}

static int connect_by_plan(int fd, const struct sockaddr *to, socklen_t length, const struct plan *plan)
{
    struct options before;
    take_options(fd, &before);
    int result = connect_on_port(fd, to, length, plan), why = errno;
    if (!is_under_way(result, why))
        restore_options(fd, &before);
    errno = why;
    return result;
}

/* Tell the agent the 5-tuple of a connection. An agent that is gone or too slow hears nothing. */
static void report(int fd, const struct plan *plan)
{
    char text[REPORT_BYTES], from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
    struct gid address;
    uint16_t port;
    if ((!reports.sun_family && !*log_path) || !named(real.getsockname, fd, &address, &port) || !port)
        return;
    inet_ntop(AF_INET6, address.raw, from, sizeof from);
    inet_ntop(AF_INET6, plan->peer.address.raw, to, sizeof to);
    int tos = number_option(fd, IPPROTO_IP, IP_TOS);
    int class = number_option(fd, IPPROTO_IPV6, IPV6_TCLASS);
    int is_ipv4 = !memcmp(address.raw, (const uint8_t[12]){[10] = 0xFF, [11] = 0xFF}, 12);
    int dscp = ((is_ipv4 ? tos : class) >> 2) & 63;
    int length = snprintf(text, sizeof text, "%s %s %s %u %s %u %u %d",
                          plan->peer.protocol == IPPROTO_TCP ? "tcp" : "udp", *job ? job : "*", from, port, to,
                          plan->peer.port, plan->number, dscp);
    say("connected %s", text);
    if (!reports.sun_family || length >= (int)sizeof text)
        return;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out >= 0) {
        sendto(out, text, (size_t)length, MSG_NOSIGNAL, (struct sockaddr *)&reports, sizeof reports);
        close(out);
    }
    pthread_setcancelstate(cancel, NULL);
}

EXPORTED int connect(int fd, const struct sockaddr *to, socklen_t length)
{
    struct plan plan;
    struct held held;
    start_once();
    int before = errno, planned = look_up(fd, to, length, &plan);
    errno = before;
    int result = planned ? connect_by_plan(fd, to, length, &plan) : real.connect(fd, to, length);
    int why = result ? errno : before, under_way = is_under_way(result, why);
    if (under_way && has_deferred && is_deferred(fd))
        forget_deferred(fd);
    if (planned && under_way) {
        report(fd, &plan);
    } else if (planned && why != EISCONN && why != EALREADY) {
        lock(&held);
        live_remove(fd);
        unlock(&held);
    }
    errno = why;
    return result;
}

/* Whether a socket is TCP, and a bind to port 0 of this address may wait for connect. */
static int may_defer(int fd, const struct gid *address)
{
    struct held held;
    if (disabled || number_option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP)
        return 0;
    lock(&held);
    refresh();
    int known = is_any(address) ? map->count != 0 : knows(IPPROTO_TCP, address, 1);
    unlock(&held);
    return known;
}

EXPORTED int bind(int fd, const struct sockaddr *to, socklen_t length)
{
    struct gid address;
    uint16_t port;
    start_once();
    int before = errno, deferred = 0;
    if (!disabled && read_programs_address(to, length, &address, &port)) {
        bind_now(fd); /* a second bind is an error */
        deferred = !port && may_defer(fd, &address) && defer(fd);
    }
    errno = before;
    int result = real.bind(fd, to, length), why = errno;
    if (deferred && result)
        forget_deferred(fd);
    has_deferred |= deferred;
    errno = why;
    return result;
}

/* A program that asks for its port before it connects gets one, as without the shim. */
EXPORTED int getsockname(int fd, struct sockaddr *at, socklen_t *length)
{
    struct gid address;
    uint16_t port;
    start_once();
    int before = errno;
    if (!disabled && named(real.getsockname, fd, &address, &port) && !port)
        bind_now(fd);
    errno = before;
    return real.getsockname(fd, at, length);
}

/* Accepted sockets inherit the listener's class, and the first packet that they send has it already. */
EXPORTED int listen(int fd, int backlog)
{
    struct gid address;
    struct held held;
    uint16_t port;
    int before = errno, dscp = -1;
    start_once();
    if (!disabled)
        bind_now(fd);
    if (!disabled && number_option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP &&
        named(real.getsockname, fd, &address, &port) && (!port || port != rendezvous)) {
        lock(&held);
        refresh();
        for (size_t i = 0; i < map->count && dscp < 0; i++) {
            const struct socket_entry *entry = &map->entries[i];
            if (entry->protocol == IPPROTO_TCP && entry_is_for(entry, job) &&
                !memcmp(&entry->source, &address, sizeof address))
                dscp = entry->dscp;
        }
        unlock(&held);
        mark(fd, dscp);
    }
    errno = before;
    return real.listen(fd, backlog);
}

/* Mark an accepted socket, whose listener may be bound to no single address. */
static void accepted(int fd)
{
    struct gid own, other;
    struct held held;
    uint16_t own_port, other_port;
    int before = errno, dscp = -1;
    if (fd < 0 || disabled || !named(real.getsockname, fd, &own, &own_port) || own_port == rendezvous ||
        number_option(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP) {
        errno = before;
        return;
    }
    if (named(real.getpeername, fd, &other, &other_port)) {
        lock(&held);
        refresh();
        const struct socket_entry *entry = entry_of(IPPROTO_TCP, &own, &other, 0);
        if (entry)
            dscp = entry->dscp;
        unlock(&held);
        mark(fd, dscp);
        if (entry || (*job && reports.sun_family))
            pace(fd);
    }
    errno = before;
}

EXPORTED int accept(int fd, struct sockaddr *from, socklen_t *length)
{
    start_once();
    int made = real.accept(fd, from, length);
    accepted(made);
    return made;
}

EXPORTED int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags)
{
    start_once();
    int made = real.accept4(fd, from, length, flags);
    accepted(made);
    return made;
}
