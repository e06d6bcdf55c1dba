/* SPDX-License-Identifier: Apache-2.0 */
#include "socketstate.h"
#include "livesockets.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEFAULT_MAP "/run/polyrhythm/sockets"
#define PORT_RANGE_FILE "/proc/sys/net/ipv4/ip_local_port_range"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t *mutex; /* all zeros: not held */
struct real_functions real;
static struct socket_map nothing;
struct socket_map *map = &nothing;
static struct stat map_seen;
char log_path[PATH_MAX], job[MOST_JOB_CHARS + 1];
static char map_path[PATH_MAX];
struct sockaddr_un reports;
unsigned low_port, high_port, rendezvous;
uint64_t pace_rate;
int disabled;

void lock(struct held *held)
{
    sigset_t all;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held->cancel);
    pthread_sigmask(SIG_SETMASK, &all, &held->signals);
    pthread_mutex_lock(mutex);
}

void unlock(const struct held *held)
{
    pthread_mutex_unlock(mutex);
    pthread_sigmask(SIG_SETMASK, &held->signals, NULL);
    pthread_setcancelstate(held->cancel, NULL);
}

/* Whether a line can be written without a signal or a wait: a pipe may have no reader, and a file that outgrows
 * the program's limit ends the program. */
static int may_write(int file, size_t length)
{
    struct stat about;
    struct rlimit most;
    if (fstat(file, &about) || getrlimit(RLIMIT_FSIZE, &most))
        return 0;
    if (S_ISREG(about.st_mode))
        return most.rlim_cur == RLIM_INFINITY || (rlim_t)about.st_size + length <= most.rlim_cur;
    return S_ISCHR(about.st_mode);
}

/* The log is opened for each line: the program may close every descriptor that it does not know. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
    char line[512];
    va_list arguments;
    int cancel;
    if (!*log_path)
        return;
    int head = snprintf(line, sizeof line, "%d ", (int)getpid());
    va_start(arguments, format);
    int length = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    length = head + (length < (int)sizeof line - head - 1 ? length : (int)sizeof line - head - 2);
    line[length++] = '\n';
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int file = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (file >= 0) {
        ssize_t written = may_write(file, (size_t)length) ? write(file, line, (size_t)length) : 0;
        (void)written;
        close(file);
    }
    pthread_setcancelstate(cancel, NULL);
}

/* Memory that is all zeros again in a child after a fork, however the program forks. NULL: none. */
static void *own_memory(size_t bytes)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return made == MAP_FAILED || madvise(made, bytes, MADV_WIPEONFORK) ? NULL : made;
}

static void take_text(char *to, size_t room, const char *name, const char *otherwise)
{
    const char *value = secure_getenv(name);
    snprintf(to, room, "%s", value && *value ? value : otherwise);
}

static void read_port_range(void)
{
    FILE *file = fopen(PORT_RANGE_FILE, "re");
    if (!file || fscanf(file, "%u %u", &low_port, &high_port) != 2 || !low_port || high_port > 0xFFFF)
        low_port = high_port = 0;
    if (file)
        fclose(file);
}

static void start(void)
{
    int before = errno;
    char path[sizeof reports.sun_path];
    real.connect = (connect_function *)dlsym(RTLD_NEXT, "connect");
    real.bind = (connect_function *)dlsym(RTLD_NEXT, "bind");
    real.listen = (listen_function *)dlsym(RTLD_NEXT, "listen");
    real.accept = (name_function *)dlsym(RTLD_NEXT, "accept");
    real.accept4 = (accept4_function *)dlsym(RTLD_NEXT, "accept4");
    real.getpeername = (name_function *)dlsym(RTLD_NEXT, "getpeername");
    real.getsockname = (name_function *)dlsym(RTLD_NEXT, "getsockname");
    take_text(map_path, sizeof map_path, "POLYRHYTHM_SOCKET_MAP", DEFAULT_MAP);
    take_text(log_path, sizeof log_path, "POLYRHYTHM_SHIM_LOG", "");
    take_text(job, sizeof job, "POLYRHYTHM_SOCKET_JOB", "");
    take_text(path, sizeof path, "POLYRHYTHM_SOCKET_REPORTS", "");
    const char *port = secure_getenv("MASTER_PORT");
    rendezvous = port ? (unsigned)atoi(port) : 0;
    const char *pace = secure_getenv("POLYRHYTHM_SOCKET_PACE");
    pace_rate = pace ? strtoull(pace, NULL, 10) : 0;
    if (*path) {
        reports.sun_family = AF_UNIX;
        memcpy(reports.sun_path, path, sizeof path);
    }
    mutex = own_memory(sizeof *mutex);
    live = own_memory(sizeof *live);
    disabled = getauxval(AT_SECURE) != 0 || !mutex || !live;
    read_port_range();
    errno = before;
}

/* As the program begins: a signal handler that connects must not find this half done. */
__attribute__((constructor)) void start_once(void)
{
    pthread_once(&once, start);
}

void refresh(void)
{
    struct stat now;
    char why[160];
    if (stat(map_path, &now))
        memset(&now, 0, sizeof now);
    if (now.st_ino == map_seen.st_ino && now.st_size == map_seen.st_size &&
        now.st_ctim.tv_sec == map_seen.st_ctim.tv_sec && now.st_ctim.tv_nsec == map_seen.st_ctim.tv_nsec)
        return;
    struct socket_map *fresh = socket_map_read(map_path, why, sizeof why), *old = map;
    if (!fresh && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return; /* the next call may find a descriptor */
    if (fresh)
        map = fresh; /* first: a fork at any moment must leave the child a whole map */
    else
        say("map %s refused, the last one stays: %s", map_path, why);
    map_seen = now;
    if (fresh && old != &nothing)
        socket_map_free(old);
}

int read_address(const struct sockaddr *from, socklen_t length, struct gid *address, uint16_t *port)
{
    if (from && length >= sizeof(struct sockaddr_in) && from->sa_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)from;
        memset(address->raw, 0, 10);
        memset(address->raw + 10, 0xFF, 2);
        memcpy(address->raw + 12, &ipv4->sin_addr, 4);
        *port = ntohs(ipv4->sin_port);
        return 1;
    }
    if (from && length >= offsetof(struct sockaddr_in6, sin6_scope_id) && from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)from;
        memcpy(address->raw, &ipv6->sin6_addr, 16);
        *port = ntohs(ipv6->sin6_port);
        return 1;
    }
    return 0;
}

int read_programs_address(const struct sockaddr *from, socklen_t length, struct gid *address, uint16_t *port)
{
    struct sockaddr_storage copy;
    size_t wanted = length < sizeof copy ? length : sizeof copy;
    struct iovec to = {&copy, wanted}, at = {(void *)(uintptr_t)from, wanted};
    int before = errno;
    ssize_t copied = from ? process_vm_readv(getpid(), &to, 1, &at, 1, 0) : 0;
    int denied = copied < 0 && errno != EFAULT; /* by a system call filter, say */
    errno = before;
    if (denied)
        return read_address(from, length, address, port);
    return copied == (ssize_t)wanted && read_address((struct sockaddr *)&copy, (socklen_t)wanted, address, port);
}

int named(name_function *name, int fd, struct gid *address, uint16_t *port)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    return !name(fd, (struct sockaddr *)&at, &length) &&
           read_address((struct sockaddr *)&at, length, address, port);
}

int is_any(const struct gid *address)
{
    static const struct gid any, any_ipv4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}};
    return !memcmp(address, &any, sizeof any) || !memcmp(address, &any_ipv4, sizeof any_ipv4);
}

int number_option(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, option, &value, &length) ? -1 : value;
}

int knows(int protocol, const struct gid *address, int as_source)
{
    for (size_t i = 0; i < map->count; i++) {
        const struct socket_entry *entry = &map->entries[i];
        const struct gid *of = as_source ? &entry->source : &entry->destination;
        if (entry->protocol == protocol && !memcmp(of, address, sizeof *of) && entry_is_for(entry, job))
            return 1;
    }
    return 0;
}

const struct socket_entry *entry_of(int protocol, const struct gid *source, const struct gid *destination,
                                    unsigned number)
{
    unsigned count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < map->count; i++) {
            const struct socket_entry *entry = &map->entries[i];
            if (entry->protocol != protocol || !entry_is_for(entry, job) ||
                memcmp(&entry->source, source, sizeof *source) ||
                memcmp(&entry->destination, destination, sizeof *destination))
                continue;
            if (!pass)
                count = entry->index + 1 > count ? entry->index + 1 : count;
            else if (entry->index == number % count)
                return entry;
        }
        if (!count)
            return NULL;
    }
    return NULL;
}
