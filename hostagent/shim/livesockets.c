/* SPDX-License-Identifier: Apache-2.0 */
#include "livesockets.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

enum { ROOM = 1024, UNPORTED_ROOM = 64, FULL_ADDS = 64 };

struct live {
    int fd;
    ino_t inode;
    struct peer peer;
    unsigned number;
};

struct unported {
    int fd;
    ino_t inode;
};

static struct live connected[ROOM];
static size_t connected_count;
static unsigned full_adds;
static struct unported unported[UNPORTED_ROOM];
static size_t next_unported;

static ino_t inode_of(int fd)
{
    struct stat about;
    return fstat(fd, &about) ? 0 : about.st_ino;
}

static int same_peer(const struct peer *one, const struct peer *other)
{
    return one->protocol == other->protocol && one->port == other->port &&
           !memcmp(&one->address, &other->address, sizeof one->address);
}

/* Forget sockets that are gone: those of `peer`, or all where it is NULL. */
static void prune(const struct peer *peer)
{
    for (size_t i = 0; i < connected_count;) {
        struct live *at = &connected[i];
        if ((!peer || same_peer(&at->peer, peer)) && inode_of(at->fd) != at->inode)
            *at = connected[--connected_count];
        else
            i++;
    }
}

unsigned live_add(int fd, const struct peer *peer)
{
    unsigned char taken[MOST_ALIKE] = {0};
    live_remove(fd);
    prune(peer);
    for (size_t i = 0; i < connected_count; i++)
        if (connected[i].number < MOST_ALIKE && same_peer(&connected[i].peer, peer))
            taken[connected[i].number] = 1;
    unsigned number = 0;
    while (number < MOST_ALIKE && taken[number])
        number++;
    /* A program may keep more connections than there is room for: looking at all of them each time is slow. */
    if (connected_count == ROOM && full_adds++ % FULL_ADDS == 0)
        prune(NULL);
    if (connected_count < ROOM && number < MOST_ALIKE)
        connected[connected_count++] = (struct live){fd, inode_of(fd), *peer, number};
    return number;
}

void live_remove(int fd)
{
    for (size_t i = 0; i < connected_count; i++)
        if (connected[i].fd == fd) {
            connected[i] = connected[--connected_count];
            return;
        }
}

void unported_add(int fd)
{
    unported[next_unported++ % UNPORTED_ROOM] = (struct unported){fd, inode_of(fd)};
}

int unported_take(int fd)
{
    for (size_t i = 0; i < UNPORTED_ROOM; i++)
        if (unported[i].inode && unported[i].fd == fd) {
            int same = unported[i].inode == inode_of(fd);
            unported[i].inode = 0;
            if (same)
                return 1;
        }
    return 0;
}

void live_clear(void)
{
    connected_count = 0;
    memset(unported, 0, sizeof unported);
}
