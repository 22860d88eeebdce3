/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of a Redis server: bytes in any split go in, replies come out. What a server may make us allocate
 * is bounded. RESP2 is what we ask for (the reader of Debian 12's hiredis knows no other); with a newer
 * hiredis the types of RESP3 are read as their counterparts. Thread: one owner.
 */
#ifndef ROLTER_REDIS_REPLY_H
#define ROLTER_REDIS_REPLY_H

#include "base/arena.h"

enum redis_type {
    REDIS_STRING,
    REDIS_STATUS, /* "OK", "PONG", "QUEUED" */
    REDIS_ERROR,  /* "WRONGTYPE Operation ..." */
    REDIS_INTEGER,
    REDIS_NIL,
    REDIS_ARRAY,
};

struct redis_reply {
    enum redis_type type;
    struct span text; /* STRING, STATUS, ERROR; binary, with a NUL behind it */
    int64_t integer;
    struct redis_reply **items; /* ARRAY; none is NULL */
    size_t n;
};

/* Whether it is an error whose code (its first word) is <word>. */
bool redis_reply_is_error(const struct redis_reply *r, const char *word);
/* The first word of an error, or the empty span. It is all of an error that may stand in a log: the text
 * behind it repeats what was sent, passwords included. */
struct span redis_reply_error_code(const struct redis_reply *r);
static inline bool redis_reply_is_text(const struct redis_reply *r)
{
    return r->type == REDIS_STRING || r->type == REDIS_STATUS;
}

struct redis_reader;

/* No reply may be larger than <max_bytes>, in the bytes it comes in and in what it takes once read. */
struct redis_reader *redis_reader_new(size_t max_bytes);
void redis_reader_free(struct redis_reader *r);
/* Takes bytes. False: not Redis, or too large; the connection is of no use any more. */
bool redis_reader_feed(struct redis_reader *r, const char *p, size_t n);
/* The next reply; it lives until the next call. NULL: none is complete, or what came is no reply (then
 * redis_reader_is_broken). */
const struct redis_reply *redis_reader_next(struct redis_reader *r);
bool redis_reader_is_broken(const struct redis_reader *r);

#endif
