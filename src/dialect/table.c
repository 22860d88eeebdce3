/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "dialect/parts.h"
#include "dialect/prompt.h"

static const struct dialect *const table[DIALECT_COUNT] = {
    [DIALECT_CHAT] = &dialect_chat,
    [DIALECT_COMPLETIONS] = &dialect_completions,
    [DIALECT_MESSAGES] = &dialect_messages,
    [DIALECT_RESPONSES] = &dialect_responses,
    [DIALECT_EMBEDDINGS] = &dialect_embeddings,
    [DIALECT_RERANK] = &dialect_rerank,
};

const struct dialect *dialect_get(enum dialect_id id)
{
    CHECK((unsigned)id < DIALECT_COUNT);
    return table[id];
}

const struct dialect *dialect_by_path(struct span path, enum dialect_id *ret)
{
    /* No two paths have the same length, so one comparison decides. */
    enum dialect_id id;
    switch (path.n) {
    case sizeof("/v1/chat/completions") - 1:
        id = DIALECT_CHAT;
        break;
    case sizeof("/v1/completions") - 1:
        id = DIALECT_COMPLETIONS;
        break;
    case sizeof("/v1/messages") - 1:
        id = DIALECT_MESSAGES;
        break;
    case sizeof("/v1/responses") - 1:
        id = DIALECT_RESPONSES;
        break;
    case sizeof("/v1/embeddings") - 1:
        id = DIALECT_EMBEDDINGS;
        break;
    case sizeof("/v1/rerank") - 1:
        id = DIALECT_RERANK;
        break;
    default:
        return NULL;
    }
    if (memcmp(path.p, table[id]->path, path.n) != 0)
        return NULL;
    if (ret)
        *ret = id;
    return table[id];
}

/* The first bytes of the body, cut on a character boundary; a slice of it. The body is valid UTF-8. */
static void raw_prompt(const struct json_doc *d, const struct prompt_options *o, struct prompt_context *ret)
{
    struct span text = d->text;
    if (text.n > PROMPT_TEXT_MAX) {
        text.n = PROMPT_TEXT_MAX;
        while (text.n > 0 && ((unsigned char)text.p[text.n] & 0xc0) == 0x80)
            text.n--;
    }
    *ret = (struct prompt_context){
        .text = o && o->each_only ? SPAN_NONE : text,
        .len = d->text.n,
        .digest = o && o->each_only ? 0 : hash_bytes(d->text.p, d->text.n),
        .head_len = d->text.n,
        .is_raw = true,
    };
    if (o && o->each && d->text.n)
        o->each(o->arg, d->text.p, d->text.n);
}

void dialect_prompt_with(enum dialect_id id, const struct json_doc *d, const struct prompt_options *options,
                         struct arena *a, struct prompt_context *ret)
{
    struct prompt_writer w;
    if (id != DIALECT_RERANK) {
        prompt_begin(&w, d, options, a);
        dialect_get(id)->prompt(&w);
        if (w.len > 0) {
            prompt_end(&w, ret);
            return;
        }
    }
    raw_prompt(d, options, ret);
}

void dialect_prompt(enum dialect_id id, const struct json_doc *d, struct arena *a, struct prompt_context *ret)
{
    dialect_prompt_with(id, d, NULL, a, ret);
}
