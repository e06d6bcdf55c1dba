/* SPDX-License-Identifier: Apache-2.0 */
#include "mapfile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20 };

union head { /* in front of memory that is taken: its size */
    size_t bytes;
    max_align_t aligned;
};

int parse_address(const char *text, struct gid *address)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    if (inet_pton(AF_INET6, text, address->raw) == 1)
        return 1;
    memcpy(address->raw, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, address->raw + 12) == 1;
}

void *take_memory(size_t bytes)
{
    bytes += sizeof(union head);
    union head *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    made->bytes = bytes;
    return made + 1;
}

void give_back(void *memory)
{
    union head *made = memory;
    if (memory)
        munmap(made - 1, made[-1].bytes);
}

/* Read an open file. */
static char *read_file(int file, char *why, size_t room)
{
    struct stat about;
    if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_size > MOST_BYTES) {
        snprintf(why, room, "no file, or larger than 4 MiB");
        return NULL;
    }
    size_t size = (size_t)about.st_size, length = 0;
    char *text = take_memory(size + 1);
    if (!text) {
        snprintf(why, room, "no memory");
        return NULL;
    }
    for (ssize_t got = 1; got > 0 && length < size; length += got > 0 ? (size_t)got : 0)
        got = read(file, text + length, size - length);
    if (length != size || strlen(text) != size) {
        snprintf(why, room, "cut short, or no text");
        give_back(text);
        return NULL;
    }
    return text;
}

char *read_whole(const char *path, char *why, size_t room)
{
    /* What is no file must not hold the program: a FIFO waits for its other end. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        if (errno == ENOENT)
            return take_memory(1);
        snprintf(why, room, "%s", strerror(errno));
        return NULL;
    }
    char *text = read_file(file, why, room);
    close(file);
    errno = 0;
    return text;
}
