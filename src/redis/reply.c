/* SPDX-License-Identifier: Apache-2.0
 *
 * hiredis' reader builds its objects through a table of functions; ours builds them on an arena, within a
 * budget.
 */
#include "redis/reply.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"

/* Memory that stays for the next reply: large values come again and again. */
enum { KEEP_BYTES = 1 << 20 };

#if HIREDIS_MAJOR >= 1
typedef size_t elements_t;
#else
typedef int elements_t;
#endif

struct redis_reader {
    redisReader *hi;
    struct arena arena; /* of the reply being read, or handed out last */
    struct buf text;    /* the same, when it is one string */
    size_t max_bytes;
    bool handed_out;
    bool broken;
};

/* ---- objects ---- */

/* NULL ends the reading: hiredis takes it for memory that is gone. */
static struct redis_reply *object_new(const redisReadTask *task, enum redis_type type, size_t more)
{
    struct redis_reader *r = task->privdata;
    if (r->arena.used_bytes + more + sizeof(struct redis_reply) > r->max_bytes)
        return NULL;
    struct redis_reply *o = ARENA_NEW(&r->arena, struct redis_reply);
    o->type = type;
    if (task->parent)
        ((struct redis_reply *)task->parent->obj)->items[task->idx] = o;
    return o;
}

static void *create_string(const redisReadTask *task, char *p, size_t n)
{
    const enum redis_type type = task->type == REDIS_REPLY_ERROR    ? REDIS_ERROR
                                 : task->type == REDIS_REPLY_STATUS ? REDIS_STATUS
                                                                    : REDIS_STRING;
    struct redis_reader *r = task->privdata;
    struct redis_reply *o = object_new(task, type, n);
    if (!o)
        return NULL;
    if (task->parent) {
        o->text = arena_dup(&r->arena, span_of(p, n));
        return o;
    }
    buf_clear(&r->text);
    buf_add(&r->text, p, n);
    buf_add_char(&r->text, '\0');
    o->text = span_of(r->text.p, n);
    return o;
}

static void *create_array(const redisReadTask *task, elements_t n)
{
    struct redis_reader *r = task->privdata;
    if ((long long)n < 0 || (size_t)n > r->max_bytes / sizeof(void *))
        return NULL;
    struct redis_reply *o = object_new(task, REDIS_ARRAY, (size_t)n * sizeof(void *));
    if (o) {
        o->items = ARENA_ARRAY(&r->arena, struct redis_reply *, (size_t)n);
        o->n = (size_t)n;
    }
    return o;
}

static void *create_integer(const redisReadTask *task, long long v)
{
    struct redis_reply *o = object_new(task, REDIS_INTEGER, 0);
    if (o)
        o->integer = v;
    return o;
}

static void *create_nil(const redisReadTask *task)
{
    return object_new(task, REDIS_NIL, 0);
}

#if HIREDIS_MAJOR >= 1
static void *create_double(const redisReadTask *task, double v, char *p, size_t n)
{
    (void)v;
    return create_string(task, p, n);
}

static void *create_bool(const redisReadTask *task, int v)
{
    return create_integer(task, v);
}
#endif

/* The arena goes as a whole. */
static void free_object(void *o)
{
    (void)o;
}

static redisReplyObjectFunctions FUNCTIONS = {
    .createString = create_string,
    .createArray = create_array,
    .createInteger = create_integer,
    .createNil = create_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = create_double,
    .createBool = create_bool,
#endif
    .freeObject = free_object,
};

/* ---- reader ---- */

struct redis_reader *redis_reader_new(size_t max_bytes)
{
    struct redis_reader *r = MEM_NEW(struct redis_reader);
    r->hi = redisReaderCreateWithFunctions(&FUNCTIONS);
    CHECK(r->hi);
    r->hi->privdata = r;
    r->hi->maxbuf = KEEP_BYTES;
    r->max_bytes = max_bytes;
    arena_init(&r->arena, NULL);
    buf_init(&r->text, max_bytes + 1);
    return r;
}

void redis_reader_free(struct redis_reader *r)
{
    if (!r)
        return;
    redisReaderFree(r->hi);
    arena_reset(&r->arena);
    buf_fini(&r->text);
    free(r);
}

bool redis_reader_feed(struct redis_reader *r, const char *p, size_t n)
{
    if (r->hi->len - r->hi->pos + n > r->max_bytes || redisReaderFeed(r->hi, p, n) != REDIS_OK)
        r->broken = true;
    return !r->broken;
}

const struct redis_reply *redis_reader_next(struct redis_reader *r)
{
    void *o = NULL;
    if (r->handed_out)
        arena_reset(&r->arena);
    if (r->handed_out && r->text.cap > KEEP_BYTES) {
        buf_fini(&r->text);
        buf_init(&r->text, r->max_bytes + 1);
    }
    r->handed_out = false;
    if (r->broken)
        return NULL;
    if (redisReaderGetReply(r->hi, &o) != REDIS_OK)
        r->broken = true;
    r->handed_out = o != NULL;
    return o;
}

bool redis_reader_is_broken(const struct redis_reader *r)
{
    return r->broken;
}

struct span redis_reply_error_code(const struct redis_reply *r)
{
    if (r->type != REDIS_ERROR)
        return SPAN("");
    const char *space = r->text.n ? memchr(r->text.p, ' ', r->text.n) : NULL;
    return span_of(r->text.p, space ? (size_t)(space - r->text.p) : r->text.n);
}

bool redis_reply_is_error(const struct redis_reply *r, const char *word)
{
    return r->type == REDIS_ERROR && span_eq(redis_reply_error_code(r), span_str(word));
}
