/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect/parts.h"

#include "base/check.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define UNKNOWN UINT64_MAX

void usage_init(struct usage *u)
{
    *u = (struct usage){UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN};
}

bool usage_is_known(const struct usage *u)
{
    return u->prompt != UNKNOWN || u->completion != UNKNOWN || u->total != UNKNOWN;
}

uint64_t usage_total(const struct usage *u)
{
    if (u->total != UNKNOWN)
        return u->total;
    uint64_t prompt = u->prompt == UNKNOWN ? 0 : u->prompt,
             completion = u->completion == UNKNOWN ? 0 : u->completion;
    return prompt > UINT64_MAX - completion ? UINT64_MAX : prompt + completion;
}

/* UINT64_MAX means unknown, so an upstream that says it is not believed. */
static void take(const struct json_doc *d, uint32_t i, uint64_t *io)
{
    uint64_t v;
    if (json_u64(d, i, &v) && v != UNKNOWN)
        *io = v;
}

static void take_details(const struct json_doc *d, uint32_t details, struct usage *io)
{
    take(d, json_get(d, details, "cached_tokens"), &io->cache_read);
}

/* One pass over the members; what comes last counts. */
void usage_read(const struct json_doc *d, uint32_t usage, struct usage *io)
{
#define IS(literal) (n == sizeof(literal) - 1 && memcmp(p, literal, n) == 0)
    if (!json_is(d, usage, JSON_OBJECT))
        return;
    for (uint32_t i = json_first(d, usage); i != JSON_NODE_NONE; i = json_next(d, usage, i)) {
        struct span name = json_raw(d, i);
        const char *p = name.p + 1;
        size_t n = name.n - 2;
        if (IS("prompt_tokens") || IS("input_tokens"))
            take(d, i + 1, &io->prompt);
        else if (IS("completion_tokens") || IS("output_tokens"))
            take(d, i + 1, &io->completion);
        else if (IS("total_tokens"))
            take(d, i + 1, &io->total);
        else if (IS("prompt_tokens_details") || IS("input_tokens_details"))
            take_details(d, i + 1, io);
        else if (IS("cache_read_input_tokens"))
            take(d, i + 1, &io->cache_read);
        else if (IS("cache_creation_input_tokens"))
            take(d, i + 1, &io->cache_write);
    }
#undef IS
}

void usage_at_root(const struct json_doc *d, struct usage *io)
{
    usage_read(d, json_get(d, 0, "usage"), io);
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

static const char name[] = "\"usage\"";
enum { NAME_BYTES = sizeof name - 1, TAIL_MAX = 1024 };

/* The name in [p, end), or NULL. Every event of a stream is looked at, and memmem takes a step for each byte:
 * so 16 places at once, by the first two bytes. */
HOT static const char *find_name(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= 16 + NAME_BYTES; p += 16) {
        __m128i quote = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8('"'));
        __m128i u = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + 1)), _mm_set1_epi8('u'));
        unsigned hits = (unsigned)_mm_movemask_epi8(_mm_and_si128(quote, u));
        for (; hits; hits &= hits - 1) {
            const char *at = p + __builtin_ctz(hits);
            if (memcmp(at, name, NAME_BYTES) == 0)
                return at;
        }
    }
#endif
    return memmem(p, (size_t)(end - p), name, NAME_BYTES);
}

/* The last place in [p, end) where the name begins, or NULL. */
static const char *find_last_name(const char *p, const char *end)
{
    while ((end = memrchr(p, '"', (size_t)(end - p))))
        if (end - p >= NAME_BYTES - 1 && memcmp(end - (NAME_BYTES - 1), name, NAME_BYTES - 1) == 0)
            return end - (NAME_BYTES - 1);
    return NULL;
}

/* A reply ends with its usage, more or less: the end, from the name on, is an object's text but for its brace
 * if the name is a member of the root. Inside of something else, more brackets close. False: look at all of
 * it. */
static bool read_from_end(enum dialect_id id, struct span body, struct arena *a, struct usage *io)
{
    char tail[TAIL_MAX + 1];
    const char *end = body.p + body.n, *from = body.n > TAIL_MAX ? end - TAIL_MAX : body.p;
    const char *at = end;
    do {
        at = find_last_name(from, at);
        if (!at || at == body.p || at[-1] == '\\') /* the end of a longer string */
            return false;
        const char *colon = skip_space(at + NAME_BYTES, end);
        if (colon < end && *colon == ':')
            break;
    } while (true);
    size_t n = (size_t)(end - at);
    tail[0] = '{';
    memcpy(tail + 1, at, n);
    struct json_doc d;
    struct json_fault fault;
    if (!json_parse(a, span_of(tail, n + 1), NULL, &d, &fault))
        return false;
    dialect_get(id)->reply_usage(&d, io);
    return true;
}

void dialect_reply_usage(enum dialect_id id, struct span body, struct arena *a, struct usage *io)
{
    struct json_doc d;
    struct json_fault fault;
    if (!read_from_end(id, body, a, io) && json_parse(a, body, NULL, &d, &fault))
        dialect_get(id)->reply_usage(&d, io);
    arena_reset(a);
}

/* Quotes inside of strings are escaped, so the name with its quotes is a member's name or a string's whole
 * value. */
HOT bool dialect_may_have_usage(enum dialect_id id, struct span data)
{
    (void)id;        /* every dialect calls it so */
    if (data.n == 0) /* the slice of an empty one may be NULL */
        return false;
    const char *p = data.p, *end = data.p + data.n;
    while ((p = find_name(p, end))) {
        p = skip_space(p + NAME_BYTES, end);
        if (p == end || *p != ':')
            continue;
        p = skip_space(p + 1, end);
        /* OpenAI sends a null with every chunk but the last. */
        if (end - p < 4 || memcmp(p, "null", 4) != 0)
            return true;
    }
    return false;
}
