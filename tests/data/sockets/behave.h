/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the program share: short forms of the socket calls, which give errno or 0. */
#ifndef BEHAVE_H
#define BEHAVE_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#define HERE "127.0.0.1"
#define THERE "127.0.0.2"

extern const char *self;      /* this program */
extern unsigned short server; /* the listener's port */

static inline void show(int number)
{
    printf("%d\n", number);
}

static inline struct sockaddr_in at(const char *ip, unsigned short port)
{
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &made.sin_addr);
    return made;
}

static inline int made(int kind)
{
    return socket(AF_INET, kind | SOCK_CLOEXEC, 0);
}

static inline int bind_to(int fd, const char *ip, unsigned short port)
{
    struct sockaddr_in to = at(ip, port);
    return bind(fd, (struct sockaddr *)&to, sizeof to) ? errno : 0;
}

static inline int connect_to(int fd, const char *ip, unsigned short port)
{
    struct sockaddr_in to = at(ip, port);
    return connect(fd, (struct sockaddr *)&to, sizeof to) ? errno : 0;
}

static inline int bound(int kind)
{
    int fd = made(kind);
    bind_to(fd, HERE, 0);
    return fd;
}

static inline unsigned short port_of(int fd)
{
    struct sockaddr_in found = {0};
    socklen_t length = sizeof found;
    return getsockname(fd, (struct sockaddr *)&found, &length) ? 0 : ntohs(found.sin_port);
}

static inline int option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, IPPROTO_IP, name, &value, &length) ? -errno : value;
}

static inline int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline int status_of(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

void dup_name(void);
void fork_name(void);
void exec_name(void);
void passed_name(void);
void bind_twice(void);
void listeners(void);
void options(void);
void again(void);
void wrong_calls(void);
void errno_stays(void);
void in_handler(void);
void bare_fork(void);
void spawned(void);
void cancelled(void);
void closed_meanwhile(void);
void replaced(void);
void many(void);
void small_files(void);
void once(void);
void no_root(void);

#endif
