/* SPDX-License-Identifier: Apache-2.0 */
#include "portmap.h"
#include "mapfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PORT = 0xC000 };

/* The first line that the agent writes. A map that a person wrote may lack it. */
#define HEADER "# polyrhythm 1 entries="

uint32_t map_label(uint16_t port)
{
    /* sport = ((label & 0x3FFF) ^ (label >> 14)) | 0xC000, and label 0 means "hash the QP numbers". */
    return port == FIRST_PORT ? 0x4001 : port & 0x3FFF;
}

/* "srcIP,dstIP=port,port,..." */
static int parse_line(char *line, struct map_entry *entry)
{
    char *comma = strchr(line, ',');
    char *equals = comma ? strchr(comma, '=') : NULL;
    if (!equals)
        return 0;
    *comma = *equals = 0;
    if (!parse_address(line, &entry->source) || !parse_address(comma + 1, &entry->destination))
        return 0;
    size_t room = 1;
    for (const char *at = equals + 1; *at; at++)
        room += *at == ',';
    entry->ports = calloc(room, sizeof *entry->ports);
    if (!entry->ports)
        return 0;
    for (char *at = equals + 1;; at++) {
        char *end;
        if (*at < '0' || *at > '9')
            return 0;
        long port = strtol(at, &end, 10);
        if ((*end && *end != ',') || port < FIRST_PORT || port > 0xFFFF)
            return 0;
        entry->ports[entry->count++] = (uint16_t)port;
        at = end;
        if (!*at)
            return 1;
    }
}

static struct port_map *refuse(struct port_map *map, char *text, char *why, size_t room, size_t line)
{
    snprintf(why, room, "line %zu is not srcIP,dstIP=port,... with ports 49152-65535", line);
    map_free(map);
    give_back(text);
    return NULL;
}

struct port_map *map_read(const char *path, char *why, size_t room)
{
    char *text = read_whole(path, why, room);
    if (!text)
        return NULL;
    size_t length = strlen(text), lines = 1;
    struct port_map *map = calloc(1, sizeof *map);
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    if (map)
        map->entries = calloc(lines, sizeof *map->entries);
    if (!map || !map->entries || (length && text[length - 1] != '\n')) {
        snprintf(why, room, "the last line has no end: the file is not whole");
        map_free(map);
        give_back(text);
        return NULL;
    }
    long promised = strncmp(text, HEADER, strlen(HEADER)) ? -1 : atol(text + strlen(HEADER));
    size_t number = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        number++;
        line[strcspn(line, "#\r")] = 0;
        char *end = line + strlen(line);
        while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        if (!*line)
            continue;
        if (!parse_line(line, &map->entries[map->count++]))
            return refuse(map, text, why, room, number);
    }
    give_back(text);
    if (promised >= 0 && (size_t)promised != map->count) {
        snprintf(why, room, "%zu entries of %ld: the file is not whole", map->count, promised);
        map_free(map);
        return NULL;
    }
    return map;
}

void map_free(struct port_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; map->entries && i < map->count; i++)
        free(map->entries[i].ports);
    free(map->entries);
    free(map);
}

const struct map_entry *map_find(const struct port_map *map, const struct gid *source,
                                 const struct gid *destination)
{
    for (size_t i = 0; map && i < map->count; i++) {
        const struct map_entry *entry = &map->entries[i];
        if (!memcmp(&entry->source, source, sizeof *source) &&
            !memcmp(&entry->destination, destination, sizeof *destination))
            return entry;
    }
    return NULL;
}
