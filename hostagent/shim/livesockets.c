/* SPDX-License-Identifier: Apache-2.0 */
#include "livesockets.h"

#include <string.h>
#include <sys/stat.h>

enum { FULL_ADDS = 64 };

struct live_sockets *live;

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
    for (size_t i = 0; i < live->count;) {
        struct live *at = &live->each[i];
        if ((!peer || same_peer(&at->peer, peer)) && inode_of(at->fd) != at->inode)
            *at = live->each[--live->count];
        else
            i++;
    }
}

unsigned live_add(int fd, const struct peer *peer)
{
    unsigned char taken[MOST_ALIKE] = {0};
    live_remove(fd);
    prune(peer);
    for (size_t i = 0; i < live->count; i++)
        if (live->each[i].number < MOST_ALIKE && same_peer(&live->each[i].peer, peer))
            taken[live->each[i].number] = 1;
    unsigned number = 0;
    while (number < MOST_ALIKE && taken[number])
        number++;
    /* A program may keep more connections than there is room for: looking at all of them each time is slow. */
    if (live->count == MOST_LIVE && live->full_adds++ % FULL_ADDS == 0)
        prune(NULL);
    ino_t inode = inode_of(fd);
    if (inode && live->count < MOST_LIVE && number < MOST_ALIKE)
        live->each[live->count++] = (struct live){fd, inode, *peer, number};
    return number;
}

void live_remove(int fd)
{
    for (size_t i = 0; i < live->count; i++)
        if (live->each[i].fd == fd) {
            live->each[i] = live->each[--live->count];
            return;
        }
}
