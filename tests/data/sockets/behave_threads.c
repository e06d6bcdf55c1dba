/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, signals, children and limits. */
#include "behave.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { THREADS = 4, ROUNDS = 100, MANY = 3000 };

static volatile int over;

static void *connect_always(void *unused)
{
    while (!over) {
        int fd = made(SOCK_STREAM);
        connect_to(fd, THERE, server);
        close(fd);
    }
    return unused;
}

static void with_threads(void *(*run)(void *), void (*meanwhile)(void))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    meanwhile();
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void on_alarm(int number)
{
    (void)number;
    int before = errno, fd = made(SOCK_STREAM);
    connect_to(fd, THERE, server);
    close(fd);
    errno = before;
}

static void write_map(unsigned round)
{
    char name[4096], line[200];
    const char *path = getenv("POLYRHYTHM_SOCKET_MAP");
    snprintf(name, sizeof name, "%s.new", path);
    int length = snprintf(line, sizeof line, "tcp job " HERE " " THERE " 0 %u - 1:0:1 -\n", round % 60);
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(file, line, (size_t)length) != length)
        abort();
    close(file);
    rename(name, path);
}

static void *wait_always(void *unused)
{
    while (!over)
        usleep(1000);
    return unused;
}

/* A signal handler connects, while a program with threads allocates memory and the map changes. */
void in_handler(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    pid_t writer = fork();
    for (unsigned i = 0; !writer && i < 100000 && getppid() != 1; i++)
        write_map(i);
    if (!writer)
        _exit(0);
    sigaction(SIGALRM, &action, NULL);
    pid_t parent = getpid(), ringer = fork();
    if (!ringer) {
        for (int i = 0; i < 1000 && !kill(parent, SIGALRM); i++)
            usleep(200);
        _exit(0);
    }
    pthread_t other;
    pthread_create(&other, NULL, wait_always, NULL);
    while (!waitpid(ringer, NULL, WNOHANG))
        for (int i = 0; i < 1000; i++)
            free(malloc((size_t)(i * 100)));
    over = 1;
    pthread_join(other, NULL);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    printf("done\n");
}

static void fork_rounds(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = _Fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            int fd = made(SOCK_STREAM);
            _exit(connect_to(fd, THERE, server));
        }
        int status = status_of(child);
        if (status) {
            show(status);
            return;
        }
    }
    printf("done\n");
}

/* A child without the handlers of pthread_atfork connects, while threads of its parent do. */
void bare_fork(void)
{
    with_threads(connect_always, fork_rounds);
}

static void spawn_rounds(void)
{
    char port[12];
    snprintf(port, sizeof port, "%d", server);
    for (int i = 0; i < 20; i++) {
        pid_t child;
        posix_spawn(&child, self, NULL, NULL, (char *[]){(char *)self, "once", port, NULL}, environ);
        if (status_of(child))
            printf("failed\n");
        child = vfork();
        if (!child) {
            execl(self, self, "once", port, NULL);
            _exit(1);
        }
        if (status_of(child))
            printf("failed\n");
    }
    printf("done\n");
}

void spawned(void)
{
    with_threads(connect_always, spawn_rounds);
}

static void close_it(void *fd)
{
    close(*(int *)fd);
}

static void *connect_until_cancelled(void *unused)
{
    for (;;) {
        int fd, old;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
        fd = made(SOCK_STREAM);
        pthread_cleanup_push(close_it, &fd);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
        connect_to(fd, THERE, server);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
        pthread_cleanup_pop(1);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    }
    return unused;
}

/* Threads are cancelled inside connect, which costs no descriptors. */
void cancelled(void)
{
    int before = descriptors();
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, connect_until_cancelled, NULL);
        usleep((useconds_t)(200 + i * 7));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    show(descriptors() - before);
}

static int shared = -1;

static void *close_always(void *unused)
{
    while (!over) {
        int fd = __atomic_exchange_n(&shared, -1, __ATOMIC_RELAXED);
        if (fd >= 0)
            close(fd);
    }
    return unused;
}

static void connect_to_shared(void)
{
    for (int i = 0; i < 10 * ROUNDS; i++) {
        int fd = made(SOCK_STREAM);
        __atomic_store_n(&shared, fd, __ATOMIC_RELAXED);
        connect_to(fd, THERE, server);
        fd = __atomic_exchange_n(&shared, -1, __ATOMIC_RELAXED);
        if (fd >= 0)
            close(fd);
    }
}

/* Other threads close sockets while they connect. */
void closed_meanwhile(void)
{
    int before = descriptors();
    with_threads(close_always, connect_to_shared);
    show(descriptors() - before);
}

static void *connect_shared(void *result)
{
    *(int *)result = connect_to(shared, THERE, server);
    return NULL;
}

/* A socket is closed while it connects, and another one takes its descriptor. The port of the listener is full, so
 * the first one waits. */
void replaced(void)
{
    int listener = made(SOCK_STREAM), result = -1;
    uint32_t range = 43210u << 16 | 43200;
    pthread_t thread;
    bind_to(listener, THERE, 0);
    listen(listener, 0);
    server = port_of(listener);
    show(connect_to(made(SOCK_STREAM), THERE, server));
    shared = made(SOCK_STREAM);
    pthread_create(&thread, NULL, connect_shared, &result);
    usleep(200000);
    show(result);
    close(shared);
    show(made(SOCK_STREAM) == shared);
    setsockopt(shared, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range);
    show(accept(listener, NULL, NULL) >= 0);
    show(accept(listener, NULL, NULL) >= 0);
    pthread_join(thread, NULL);
    show(result);
    show(option(shared, IP_LOCAL_PORT_RANGE) == (int)range);
}

/* Thousands of connections, and then no descriptor is left. */
void many(void)
{
    static int fds[MANY + 8];
    struct rlimit limit = {MANY, MANY};
    int failed = 0, count = 0;
    setrlimit(RLIMIT_NOFILE, &limit);
    while ((fds[count] = made(SOCK_STREAM)) >= 0)
        count++;
    int why = errno;
    for (int i = 0; i < count; i++)
        failed += connect_to(fds[i], THERE, server) != 0;
    show(count);
    show(why);
    show(failed);
    for (int i = 0; i < count; i++)
        failed += port_of(fds[i]) == 0;
    close(fds[0]);
    int last = bound(SOCK_STREAM);
    show(failed);
    show(connect_to(last, THERE, server));
}

/* The calls that fill a file of the program's largest size kill it: none of them may be ours. */
void small_files(void)
{
    struct rlimit limit = {64, 64};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 10; i++)
        show(connect_to(made(SOCK_STREAM), THERE, server));
}

void once(void)
{
    show(connect_to(made(SOCK_STREAM), THERE, server));
}

void no_root(void)
{
    if (chroot(self) && chroot("/proc"))
        exit(3);
    once();
}
