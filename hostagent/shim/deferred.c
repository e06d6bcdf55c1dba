/* SPDX-License-Identifier: Apache-2.0 */
#include "deferred.h"
#include "socketstate.h"

#include <netinet/in.h>

/* Linux 6.3 has the first, 4.2 the second. */
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

/* The range of a socket whose bind waits for connect. It changes nothing: the kernel ignores ends outside its own. */
static const uint32_t deferred_range = 0xFFFFu << 16 | 1;

int set_range(int fd, uint32_t range)
{
    return setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range);
}

uint32_t range_of(int fd)
{
    return (uint32_t)number_option(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE);
}

int defer(int fd)
{
    int yes = 1;
    return !range_of(fd) && !number_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) &&
           !set_range(fd, deferred_range) &&
           !setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
}

int is_deferred(int fd)
{
    return range_of(fd) == deferred_range && number_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT) == 1;
}

void forget_deferred(int fd)
{
    int no = 0;
    set_range(fd, 0);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &no, sizeof no);
}

void bind_now(int fd)
{
    struct held held;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    if (!is_deferred(fd))
        return;
    lock(&held); /* another thread may ask, too */
    if (is_deferred(fd) && !real.getsockname(fd, (struct sockaddr *)&bound, &size)) {
        forget_deferred(fd);
        real.bind(fd, (struct sockaddr *)&bound, size);
    }
    unlock(&held);
}
