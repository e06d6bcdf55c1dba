/* SPDX-License-Identifier: Apache-2.0 */
#include "mapfile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 4 << 20 };

int parse_address(const char *text, struct gid *address)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    if (inet_pton(AF_INET6, text, address->raw) == 1)
        return 1;
    memcpy(address->raw, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, address->raw + 12) == 1;
}

char *read_whole(const char *path, char *why, size_t room)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        if (errno == ENOENT)
            return strdup("");
        snprintf(why, room, "%s", strerror(errno));
        return NULL;
    }
    struct stat about;
    char *text = NULL;
    if (fstat(fileno(file), &about) || !S_ISREG(about.st_mode) || about.st_size > MOST_BYTES) {
        snprintf(why, room, "no file, or larger than 4 MiB");
    } else if ((text = malloc((size_t)about.st_size + 1))) {
        size_t length = fread(text, 1, (size_t)about.st_size, file);
        text[length] = 0;
        if (length != (size_t)about.st_size || strlen(text) != length) {
            snprintf(why, room, "cut short, or no text");
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}
