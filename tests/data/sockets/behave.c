/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do with sockets, one thing a run: behave NAME PORT [FD]. A listener is at 127.0.0.2, PORT. Each
 * prints what it sees, which must be the same with the socket shim and without. */
#include "behave.h"

#include <fcntl.h>
#include <stdlib.h>

const char *self;
unsigned short server;

/* The port of a socket that is bound to port 0, asked by every way to it. */
void dup_name(void)
{
    int fd = bound(SOCK_STREAM), other = dup2(fd, 77), twin = dup(fd);
    close(fd);
    show(port_of(other) != 0);
    show(port_of(twin) == port_of(other));
}

void fork_name(void)
{
    int fd = bound(SOCK_STREAM);
    pid_t child = fork();
    if (!child)
        _exit(port_of(fd) != 0);
    show(WEXITSTATUS(status_of(child)));
    show(port_of(fd) != 0);
}

void exec_name(void)
{
    char text[12], port[12];
    int fd = dup(bound(SOCK_STREAM));
    snprintf(text, sizeof text, "%d", fd);
    snprintf(port, sizeof port, "%d", server);
    fflush(stdout);
    execl(self, self, "named", port, text, NULL);
}

void passed_name(void)
{
    int pair[2];
    char byte = 0;
    struct iovec data = {&byte, 1};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t child = fork();
    if (!child) {
        int fd = -1;
        recvmsg(pair[1], &message, 0);
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        _exit(port_of(fd) != 0);
    }
    int fd = bound(SOCK_STREAM);
    control.head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    sendmsg(pair[0], &message, 0);
    show(WEXITSTATUS(status_of(child)));
}

void bind_twice(void)
{
    int fd = bound(SOCK_STREAM);
    show(bind_to(fd, HERE, 0));
    show(bind_to(fd, HERE, 40001));
    show(port_of(fd) != 0);
    show(port_of(fd) != 40001);
}

void listeners(void)
{
    int yes = 1, one = bound(SOCK_STREAM), two = made(SOCK_STREAM), three = made(SOCK_STREAM);
    show(listen(one, 1));
    show(port_of(one) != 0);
    setsockopt(two, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    setsockopt(three, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    show(bind_to(two, HERE, 0));
    show(bind_to(three, HERE, port_of(two)));
    show(listen(two, 1));
    show(listen(three, 1));
    show(port_of(two) == port_of(three));
    show(bind_to(made(SOCK_STREAM), HERE, port_of(one)));
}

/* What the program can see of a socket's options. */
void options(void)
{
    int one = made(SOCK_STREAM), two = bound(SOCK_STREAM), three = made(SOCK_DGRAM), four = bound(SOCK_STREAM);
    show(connect_to(one, THERE, server));
    show(connect_to(two, THERE, server));
    show(connect_to(three, THERE, server));
    listen(four, 1);
    for (int i = 0; i < 4; i++) {
        int fd = (int[]){one, two, three, four}[i];
        show(option(fd, IP_LOCAL_PORT_RANGE));
        show(option(fd, 24 /* IP_BIND_ADDRESS_NO_PORT */));
    }
}

/* Sockets that are connected again, after a refusal and to somewhere else. */
void again(void)
{
    struct sockaddr nothing = {.sa_family = AF_UNSPEC};
    int closed = bound(SOCK_STREAM), fd = made(SOCK_STREAM);
    unsigned short port = port_of(closed);
    close(closed);
    show(connect_to(fd, THERE, port));
    show(connect_to(fd, THERE, server));
    show(connect_to(fd, THERE, server));
    show(connect(fd, &nothing, sizeof nothing));
    show(connect_to(fd, "127.0.0.3", port));
    show(connect_to(fd, THERE, server));
    int udp = made(SOCK_DGRAM);
    show(connect_to(udp, THERE, server));
    show(connect_to(udp, "127.0.0.3", server));
    show(connect(udp, &nothing, sizeof nothing));
    show(connect_to(udp, THERE, port));
    show(send(udp, "x", 1, 0));
    int one = bound(SOCK_STREAM), two = bound(SOCK_STREAM);
    show(connect_to(one, THERE, port));
    show(port_of(one) != 0);
    show(connect_to(two, "255.255.255.255", server));
    show(port_of(two) != 0);
}

void wrong_calls(void)
{
    struct sockaddr_storage room = {.ss_family = AF_INET};
    struct sockaddr *to = (struct sockaddr *)&room;
    static const socklen_t lengths[] = {0, 1, 2, 15, 16, 27, 28, sizeof room, sizeof room + 1, (socklen_t)-1};
    struct sockaddr_in here = at(THERE, server);
    for (int kind = 0; kind < 3; kind++) {
        memcpy(&room, &here, sizeof here);
        room.ss_family = (sa_family_t[]){AF_INET, AF_INET6, 999}[kind];
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int one = made(SOCK_STREAM), two = made(SOCK_STREAM);
            int first = connect(one, to, lengths[i]) ? errno : 0;
            show(first);
            show(bind(two, to, lengths[i]) ? errno : 0);
            close(one);
            close(two);
        }
    }
    socklen_t length = sizeof room;
    int fd = bound(SOCK_STREAM), file = open("/dev/null", O_RDWR);
    show(connect(fd, NULL, 16));
    show(errno);
    show(getsockname(fd, NULL, &length));
    show(errno);
    show(getsockname(fd, to, NULL));
    show(errno);
    show(connect_to(-1, THERE, server));
    show(connect_to(file, THERE, server));
    show(listen(-1, 1));
    show(listen(file, 1));
    show(errno);
    show(accept(fd, to, &length));
    show(errno);
    show(accept4(file, to, &length, 0));
    show(errno);
}

/* The errno of before a call that succeeds stays. */
void errno_stays(void)
{
    int one = made(SOCK_STREAM), two = made(SOCK_STREAM);
    struct sockaddr_in to = at(THERE, server), own = at(HERE, 0);
    socklen_t length = sizeof own;
    errno = 77;
    int results[] = {connect(one, (struct sockaddr *)&to, sizeof to), bind(two, (struct sockaddr *)&own, length),
                     getsockname(two, (struct sockaddr *)&own, &length), listen(two, 1)};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        show(results[i]);
    show(errno);
}

static const struct {
    const char *name;
    void (*run)(void);
} all[] = {
    {"dup_name", dup_name}, {"fork_name", fork_name}, {"exec_name", exec_name}, {"passed_name", passed_name},
    {"bind_twice", bind_twice}, {"listeners", listeners}, {"options", options}, {"again", again},
    {"wrong_calls", wrong_calls}, {"errno_stays", errno_stays}, {"in_handler", in_handler},
    {"bare_fork", bare_fork}, {"spawned", spawned}, {"cancelled", cancelled},
    {"closed_meanwhile", closed_meanwhile}, {"replaced", replaced}, {"many", many}, {"small_files", small_files}, {"once", once},
    {"no_root", no_root},
};

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    self = words[0];
    server = (unsigned short)atoi(words[2]);
    if (!strcmp(words[1], "named"))
        return printf("%d\n", port_of(atoi(words[3])) != 0) < 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(words[1], all[i].name)) {
            all[i].run();
            return 0;
        }
    return 2;
}
