/* SPDX-License-Identifier: Apache-2.0 */
#include "socketmap.h"
#include "mapfile.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line that the agent writes. A map that a person wrote may lack it. */
#define HEADER "# polyrhythm sockets 1 entries="

enum { FIELDS = 9 };

/* A number up to `most` that ends at `end`. Returns 0 for anything else. */
static int number(const char **at, int base, char end, unsigned long most, unsigned long *found)
{
    char *stop;
    if (!strchr("0123456789abcdefABCDEF", **at) || !**at)
        return 0;
    *found = strtoul(*at, &stop, base);
    if (stop == *at || stop - *at > 9 || *stop != end || *found > most)
        return 0;
    *at = stop + (end != 0);
    return 1;
}

static int parse_ranges(char *text, struct socket_entry *entry)
{
    if (!strcmp(text, "-"))
        return 1;
    for (char *item; (item = strsep(&text, ","));) {
        const char *at = item;
        unsigned long low, high;
        if (entry->range_count == MOST_RANGES)
            return 0;
        if (strchr(item, '-')) {
            if (!number(&at, 10, '-', 0xFFFF, &low) || !number(&at, 10, 0, 0xFFFF, &high))
                return 0;
        } else if (number(&at, 10, 0, 0xFFFF, &low)) {
            high = low;
        } else {
            return 0;
        }
        if (!low || low > high)
            return 0;
        entry->ranges[entry->range_count].low = (uint16_t)low;
        entry->ranges[entry->range_count++].high = (uint16_t)high;
    }
    return 1;
}

static int parse_conditions(char *text, struct conditions *conditions)
{
    if (!strcmp(text, "-"))
        return 1;
    for (char *item; (item = strsep(&text, ","));) {
        const char *at = item;
        unsigned long local, peer, odd;
        if (conditions->count == MOST_CONDITIONS || !number(&at, 16, ':', 0xFFFF, &local) ||
            !number(&at, 16, ':', 0xFFFF, &peer) || !number(&at, 16, 0, 1, &odd))
            return 0;
        struct condition *one = &conditions->each[conditions->count++];
        one->local = (uint16_t)local;
        one->peer = (uint16_t)peer;
        one->odd = (int)odd;
    }
    return 1;
}

static int parse_line(char *line, struct socket_entry *entry)
{
    char *fields[FIELDS];
    size_t count = 0;
    for (char *field; (field = strsep(&line, " \t"));) {
        if (!*field)
            continue;
        if (count == FIELDS)
            return 0;
        fields[count++] = field;
    }
    if (count != FIELDS)
        return 0;
    unsigned long index, dscp;
    const char *at = fields[4], *code = fields[5];
    if (!strcmp(fields[0], "tcp"))
        entry->protocol = IPPROTO_TCP;
    else if (!strcmp(fields[0], "udp"))
        entry->protocol = IPPROTO_UDP;
    else
        return 0;
    if (strlen(fields[1]) > MOST_JOB_CHARS || !parse_address(fields[2], &entry->source) ||
        !parse_address(fields[3], &entry->destination) || !number(&at, 10, 0, 0xFFFF, &index))
        return 0;
    entry->index = (unsigned)index;
    entry->dscp = -1;
    if (strcmp(code, "-")) {
        if (!number(&code, 10, 0, 63, &dscp))
            return 0;
        entry->dscp = (int)dscp;
    }
    if (!parse_ranges(fields[6], entry) || !parse_conditions(fields[7], &entry->sent) ||
        !parse_conditions(fields[8], &entry->returned))
        return 0;
    entry->job = fields[1];
    return 1;
}

static int parse_all(struct socket_map *map, char *text, char *why, size_t room)
{
    size_t length = strlen(text), lines = 1, number_of_line = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    if (length && text[length - 1] != '\n') {
        snprintf(why, room, "the last line has no end: the file is not whole");
        return 0;
    }
    long promised = strncmp(text, HEADER, strlen(HEADER)) ? -1 : atol(text + strlen(HEADER));
    map->entries = take_memory(lines * sizeof *map->entries);
    if (!map->entries) {
        snprintf(why, room, "no memory");
        return 0;
    }
    for (char *line; (line = strsep(&text, "\n"));) {
        number_of_line++;
        line[strcspn(line, "#\r")] = 0;
        if (!line[strspn(line, " \t")])
            continue;
        if (!parse_line(line, &map->entries[map->count++])) {
            snprintf(why, room, "line %zu is not PROTOCOL JOB SOURCE DESTINATION INDEX DSCP PORTS SENT RETURNED",
                     number_of_line);
            return 0;
        }
    }
    if (promised >= 0 && (size_t)promised != map->count) {
        snprintf(why, room, "%zu entries of %ld: the file is not whole", map->count, promised);
        return 0;
    }
    return 1;
}

struct socket_map *socket_map_read(const char *path, char *why, size_t room)
{
    char *text = read_whole(path, why, room);
    if (!text)
        return NULL;
    struct socket_map *map = take_memory(sizeof *map);
    if (!map) {
        snprintf(why, room, "no memory");
        give_back(text);
        return NULL;
    }
    map->text = text;
    if (!parse_all(map, text, why, room)) {
        socket_map_free(map);
        map = NULL;
    }
    return map;
}

void socket_map_free(struct socket_map *map)
{
    if (!map)
        return;
    give_back(map->entries);
    give_back(map->text);
    give_back(map);
}

int entry_is_for(const struct socket_entry *entry, const char *job)
{
    return !strcmp(entry->job, "*") || !strcmp(entry->job, job);
}

int parities_add(struct parities *parities, const struct conditions *conditions, uint16_t peer)
{
    for (size_t i = 0; i < conditions->count; i++) {
        const struct condition *one = &conditions->each[i];
        unsigned mask = one->local;
        int odd = one->odd ^ __builtin_parity(peer & one->peer);
        for (size_t j = 0; j < parities->count; j++)
            if ((mask ^ parities->each[j].mask) < mask) { /* it has the highest bit of this one */
                mask ^= parities->each[j].mask;
                odd ^= parities->each[j].odd;
            }
        if (!mask && odd)
            return 0;
        if (!mask)
            continue;
        size_t at = parities->count++;
        for (; at && parities->each[at - 1].mask < mask; at--)
            parities->each[at] = parities->each[at - 1];
        parities->each[at].mask = (uint16_t)mask;
        parities->each[at].odd = odd;
    }
    return 1;
}

int fulfils(const struct parities *parities, uint16_t port)
{
    for (size_t i = 0; i < parities->count; i++)
        if (__builtin_parity(port & parities->each[i].mask) != parities->each[i].odd)
            return 0;
    return 1;
}
