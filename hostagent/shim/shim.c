/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs shim. It runs in the process that owns the queue pairs and pins them to ports of the port map.
 *
 * It defines ibv_modify_qp and ibv_destroy_qp, and links to libibverbs for all other functions. A caller that
 * looks a name up in the shim (NCCL does, by dlvsym) finds these two functions here and all others in
 * libibverbs. At INIT->RTR the shim sets the flow label from which the NIC computes the source port. With
 * mlx5 it also moves queue pairs in RTS when the map changes. If the shim fails, the caller's call runs
 * unchanged.
 *
 * Environment: POLYRHYTHM_PORT_MAP, the map (default /run/polyrhythm/ports); POLYRHYTHM_SHIM_LOG, a file to
 * append a line to for each pin and each fault.
 */
#include "abi.h"
#include "portmap.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MAP "/run/polyrhythm/ports"
#define EXPORTED __attribute__((visibility("default")))

enum { RETRY_MS = 1000, STACK_BYTES = 128 << 10 };

/* A queue pair that has reached RTR. `index`: its number among the queue pairs of the same two addresses. */
struct pinned {
    struct qp *qp;
    struct gid source, destination;
    size_t index;
    uint16_t port; /* 0: not pinned */
    int sending;   /* in RTS: mlx5 can move it */
    struct pinned *next;
};

static struct {
    modify_qp_function *modify_qp;
    destroy_qp_function *destroy_qp;
    query_gid_function *query_gid;
    modify_sport_function *modify_sport; /* NULL without mlx5 */
} real;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct port_map *map;
static struct pinned *queue_pairs;
static char map_path[PATH_MAX];
static int log_file = -1;
static int watching;

static void say(const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (log_file < 0)
        return;
    int head = snprintf(line, sizeof line, "%d ", (int)getpid());
    va_start(arguments, format);
    int length = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    length = head + (length < (int)sizeof line - head - 1 ? length : (int)sizeof line - head - 2);
    line[length++] = '\n';
    if (write(log_file, line, (size_t)length) < 0)
        log_file = -1;
}

static void load_map(void)
{
    char why[160];
    struct port_map *fresh = map_read(map_path, why, sizeof why);
    if (!fresh) {
        say("map %s refused, the last one stays: %s", map_path, why);
        return;
    }
    map_free(map);
    map = fresh;
}

static void in_child(void)
{
    /* Queue pairs do not survive a fork, nor does the watching thread. */
    pthread_mutex_init(&lock, NULL);
    queue_pairs = NULL;
    watching = 0;
}

/* Find the library's own functions. RTLD_NEXT does not find libraries that were opened by dlopen. */
static void start(void)
{
    const char *path = secure_getenv("POLYRHYTHM_PORT_MAP");
    const char *log_path = secure_getenv("POLYRHYTHM_SHIM_LOG");
    if (log_path && *log_path)
        log_file = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    snprintf(map_path, sizeof map_path, "%s", path && *path ? path : DEFAULT_MAP);
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!verbs) {
        say("libibverbs.so.1 is not loaded: %s", dlerror());
        return;
    }
    real.modify_qp = (modify_qp_function *)dlvsym(verbs, "ibv_modify_qp", VERBS_VERSION);
    real.destroy_qp = (destroy_qp_function *)dlvsym(verbs, "ibv_destroy_qp", VERBS_VERSION);
    real.query_gid = (query_gid_function *)dlvsym(verbs, "ibv_query_gid", VERBS_VERSION);
    void *mlx5 = dlopen("libmlx5.so.1", RTLD_NOW);
    if (mlx5)
        real.modify_sport = (modify_sport_function *)dlsym(mlx5, "mlx5dv_modify_qp_udp_sport");
    pthread_atfork(NULL, NULL, in_child);
    load_map();
    say("loaded: map %s, %zu entries, moving in RTS %s", map_path, map ? map->count : 0,
        real.modify_sport ? "by mlx5" : "not possible");
}

static struct pinned *find(const struct qp *qp)
{
    struct pinned *at = queue_pairs;
    while (at && at->qp != qp)
        at = at->next;
    return at;
}

static void forget(const struct qp *qp)
{
    for (struct pinned **at = &queue_pairs; *at; at = &(*at)->next)
        if ((*at)->qp == qp) {
            struct pinned *gone = *at;
            *at = gone->next;
            free(gone);
            return;
        }
}

/* The lowest index that no queue pair of these two addresses has. */
static size_t free_index(const struct gid *source, const struct gid *destination)
{
    for (size_t index = 0;; index++) {
        struct pinned *at = queue_pairs;
        while (at && (at->index != index || memcmp(&at->source, source, sizeof *source) ||
                      memcmp(&at->destination, destination, sizeof *destination)))
            at = at->next;
        if (!at)
            return index;
    }
}

/* The port that the map has for a queue pair; 0 if it has none. */
static uint16_t wanted(const struct pinned *of)
{
    const struct map_entry *entry = map_find(map, &of->source, &of->destination);
    return entry ? entry->ports[of->index % entry->count] : 0;
}

static void say_pin(const char *how, const struct pinned *of, int result)
{
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, of->source.raw, from, sizeof from);
    inet_ntop(AF_INET6, of->destination.raw, to, sizeof to);
    say("%s qp %u %s > %s port %u%s%s", how, of->qp->qp_num, from, to, of->port, result ? ": " : "",
        result ? strerror(result) : "");
}

/* Move a queue pair in RTS to the port that the map has for it now. */
static void move(struct pinned *of)
{
    uint16_t port = wanted(of);
    if (!port || port == of->port || !of->sending || !real.modify_sport)
        return;
    int result = real.modify_sport(of->qp, port);
    if (!result)
        of->port = port;
    say_pin("moved", of, result);
}

static void *watch(void *nothing)
{
    char directory[PATH_MAX], events[4096];
    snprintf(directory, sizeof directory, "%s", map_path);
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory] = 0;
    int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), watched = -1;
    for (;;) {
        int patience = watched < 0 ? RETRY_MS : -1;
        if (watched < 0 && notify >= 0) {
            watched = inotify_add_watch(notify, slash ? directory : ".",
                                        IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE_SELF | IN_ONLYDIR);
            if (watched >= 0)
                patience = 0; /* read at once: the map may have changed before the watch began */
        }
        struct pollfd ready = {notify, POLLIN, 0};
        int news = poll(&ready, notify >= 0, patience);
        ssize_t length = news > 0 ? read(notify, events, sizeof events) : 0;
        for (ssize_t at = 0; at < length;) {
            const struct inotify_event *event = (const struct inotify_event *)(events + at);
            if (event->mask & IN_IGNORED)
                watched = -1; /* the directory is gone; look for a new one */
            at += (ssize_t)(sizeof *event + event->len);
        }
        pthread_mutex_lock(&lock);
        load_map();
        for (struct pinned *of = queue_pairs; of; of = of->next)
            move(of);
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void start_watching(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (watching || !real.modify_sport)
        return;
    watching = 1;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all); /* leave the program's signals to its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, watch, NULL))
        say("no thread to watch the map: %s", strerror(errno));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Register a queue pair that changes to RTR, and find its port. NULL: the shim leaves it alone. */
static struct pinned *take_in(struct qp *qp, const struct qp_attr *attr)
{
    const struct ah_attr *route = &attr->ah_attr;
    struct gid source;
    if (!route->is_global || real.query_gid(qp->context, route->port_num, route->sgid_index, &source))
        return NULL;
    forget(qp);
    struct pinned *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return NULL;
    fresh->qp = qp;
    fresh->source = source;
    fresh->destination = route->dgid;
    fresh->index = free_index(&source, &route->dgid);
    fresh->next = queue_pairs;
    queue_pairs = fresh;
    start_watching();
    if (!watching)
        load_map(); /* no thread watches the file for changes */
    fresh->port = wanted(fresh);
    return fresh;
}

static int to_rtr(struct qp *qp, struct qp_attr *attr, int mask)
{
    pthread_mutex_lock(&lock);
    struct pinned *of = take_in(qp, attr);
    uint16_t port = of ? of->port : 0;
    pthread_mutex_unlock(&lock);
    if (!port)
        return real.modify_qp(qp, attr, mask);
    uint32_t given = attr->ah_attr.flow_label;
    attr->ah_attr.flow_label = map_label(port);
    int result = real.modify_qp(qp, attr, mask);
    attr->ah_attr.flow_label = given;
    if (result) {
        int plain = real.modify_qp(qp, attr, mask);
        say("qp %u: refused with a flow label (%s), without it %s", qp->qp_num, strerror(result),
            plain ? "too" : "taken");
        port = 0;
        result = plain;
    }
    pthread_mutex_lock(&lock);
    if ((of = find(qp)))
        of->port = port;
    if (of && port)
        say_pin("pinned", of, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED int ibv_modify_qp(struct qp *qp, struct qp_attr *attr, int mask)
{
    pthread_once(&once, start);
    if (!real.modify_qp)
        return ENOSYS;
    if (!(mask & QP_STATE) || !real.query_gid || (qp->qp_type != QPT_RC && qp->qp_type != QPT_UC))
        return real.modify_qp(qp, attr, mask);
    int state = attr->qp_state;
    if (state == QPS_RTR && mask & QP_AV)
        return to_rtr(qp, attr, mask);
    int result = real.modify_qp(qp, attr, mask);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    struct pinned *of = find(qp);
    if (of && state == QPS_RTS) {
        of->sending = 1;
        move(of); /* the map may have changed since RTR */
    } else if (of && (state == QPS_RESET || state == QPS_INIT || state == QPS_ERR)) {
        forget(qp);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORTED int ibv_destroy_qp(struct qp *qp)
{
    pthread_once(&once, start);
    if (!real.destroy_qp)
        return ENOSYS;
    pthread_mutex_lock(&lock);
    forget(qp);
    pthread_mutex_unlock(&lock);
    return real.destroy_qp(qp);
}
