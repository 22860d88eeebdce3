/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect/parts.h"

#include "base/check.h"

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
static void take(const struct json_doc *d, uint32_t obj, const char *name, uint64_t *io)
{
    uint64_t v;
    if (json_u64(d, json_get(d, obj, name), &v) && v != UNKNOWN)
        *io = v;
}

void usage_read(const struct json_doc *d, uint32_t usage, struct usage *io)
{
    if (!json_is(d, usage, JSON_OBJECT))
        return;
    take(d, usage, "prompt_tokens", &io->prompt);
    take(d, usage, "input_tokens", &io->prompt);
    take(d, usage, "completion_tokens", &io->completion);
    take(d, usage, "output_tokens", &io->completion);
    take(d, usage, "total_tokens", &io->total);
    take(d, json_get(d, usage, "prompt_tokens_details"), "cached_tokens", &io->cache_read);
    take(d, json_get(d, usage, "input_tokens_details"), "cached_tokens", &io->cache_read);
    take(d, usage, "cache_read_input_tokens", &io->cache_read);
    take(d, usage, "cache_creation_input_tokens", &io->cache_write);
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

/* Quotes inside of strings are escaped, so the name with its quotes is a member's name or a string's whole
 * value. */
bool dialect_may_have_usage(enum dialect_id id, struct span data)
{
    static const char name[] = "\"usage\"";
    const char *p = data.p, *end = data.p + data.n;
    (void)id; /* every dialect calls it so */
    while (data.n && (p = memmem(p, (size_t)(end - p), name, sizeof name - 1))) {
        p = skip_space(p + sizeof name - 1, end);
        if (p == end || *p != ':')
            continue;
        p = skip_space(p + 1, end);
        /* OpenAI sends a null with every chunk but the last. */
        if (end - p < 4 || memcmp(p, "null", 4) != 0)
            return true;
    }
    return false;
}
