/* SPDX-License-Identifier: Apache-2.0 */
#include "dialect/prompt.h"

#include "base/check.h"

/* Roles that are written where the body has none may make the text longer than the body. */
enum { TEXT_SLACK = 64 };

static const struct prompt_options no_options;

void prompt_begin(struct prompt_writer *w, const struct json_doc *d, const struct prompt_options *o,
                  struct arena *a)
{
    /* Not an initializer: it would clear the hash's state, which most prompts never use. */
    w->doc = d;
    w->arena = a;
    w->options = o ? o : &no_options;
    w->text = NULL;
    w->n = w->seen = w->cap = 0;
    w->max = PROMPT_TEXT_MAX;
    w->is_cut = w->is_hashing = w->has_user = false;
    w->len = w->head_len = w->turn_len = 0;
}

static void hash_piece(struct prompt_writer *w, const char *p, size_t n)
{
    if (w->options->each_only)
        return;
    if (!w->is_hashing) {
        hash_begin(&w->hash);
        w->is_hashing = true;
    }
    hash_update(&w->hash, p, n);
}

static void each_piece(struct prompt_writer *w, const char *p, size_t n)
{
    if (w->options->each && n)
        w->options->each(w->options->arg, p, n);
}

/* Text that was copied so far goes into the hash before something that is not copied. */
static void flush(struct prompt_writer *w)
{
    if (w->seen == w->n)
        return;
    hash_piece(w, w->text + w->seen, w->n - w->seen);
    each_piece(w, w->text + w->seen, w->n - w->seen);
    w->seen = w->n;
}

/* To the body's size first: most requests are much smaller than the cap. */
static void grow(struct prompt_writer *w, size_t n)
{
    size_t cap = PROMPT_TEXT_MAX, body = w->doc->text.n + TEXT_SLACK;
    if (w->cap == 0 && n <= body && body < cap)
        cap = body;
    char *bigger = arena_alloc(w->arena, cap);
    if (w->n)
        memcpy(bigger, w->text, w->n);
    w->text = bigger;
    w->cap = cap;
}

/* The first piece that does not fit: its beginning is copied up to a character boundary. The boundary may lie
 * before this piece, since strings come in pieces that are cut anywhere. */
static void put_cut(struct prompt_writer *w, const char *p, size_t n)
{
    size_t room = w->max - w->n;
    flush(w);
    hash_piece(w, p, n);
    each_piece(w, p, n);
    memcpy(w->text + w->n, p, room);
    w->n += room;
    if (((unsigned char)p[room] & 0xc0) == 0x80) {
        while (w->n > 0 && ((unsigned char)w->text[w->n - 1] & 0xc0) == 0x80)
            w->n--;
        if (w->n > 0)
            w->n--; /* the character's first byte */
    }
    w->seen = w->n;
    w->is_cut = true;
}

static void put_text(void *arg, const char *p, size_t n)
{
    struct prompt_writer *w = arg;
    w->len += n;
    if (w->options->each_only || UNLIKELY(w->is_cut)) {
        hash_piece(w, p, n);
        each_piece(w, p, n);
        return;
    }
    if (UNLIKELY(n > w->cap - w->n) && w->cap < PROMPT_TEXT_MAX)
        grow(w, n);
    if (UNLIKELY(n > w->max - w->n)) {
        put_cut(w, p, n);
        return;
    }
    memcpy(w->text + w->n, p, n);
    w->n += n;
}

static void put_measured(void *arg, const char *p, size_t n)
{
    struct prompt_writer *w = arg;
    w->len += n;
    hash_piece(w, p, n);
    each_piece(w, p, n);
}

static void put_media(void *arg, const char *p, size_t n)
{
    struct prompt_writer *w = arg;
    hash_piece(w, p, n);
    if (w->options->each_only)
        w->media = hash_bytes_seed(p, n, w->media);
}

void prompt_literal(struct prompt_writer *w, struct span s)
{
    put_text(w, s.p, s.n);
}

void prompt_string(struct prompt_writer *w, uint32_t i)
{
    json_string_each(w->doc, i, put_text, w);
}

void prompt_measured(struct prompt_writer *w, uint32_t i)
{
    flush(w);
    if (json_is(w->doc, i, JSON_STRING))
        json_string_each(w->doc, i, put_measured, w);
    else
        json_compact_each(w->doc, i, put_measured, w);
}

void prompt_media(struct prompt_writer *w, uint32_t i)
{
    flush(w);
    w->media = 1;
    json_compact_each(w->doc, i, put_media, w);
    if (w->options->each_only)
        each_piece(w, (const char *)&w->media, sizeof w->media);
}

void prompt_tools(struct prompt_writer *w, uint32_t tools)
{
    if (!w->options->include_tools || !json_is(w->doc, tools, JSON_ARRAY))
        return;
    w->max = PROMPT_TEXT_MAX / 2;
    json_compact_each(w->doc, tools, put_text, w);
    /* A cut here ends the tools, not the text: the turns have the other half for themselves. */
    flush(w);
    w->max = PROMPT_TEXT_MAX;
    w->is_cut = false;
}

void prompt_end(struct prompt_writer *w, struct prompt_context *ret)
{
    uint64_t digest;
    if (w->options->each_only) {
        digest = 0;
    } else if (w->is_hashing) {
        flush(w);
        digest = hash_end(&w->hash);
    } else {
        each_piece(w, w->text, w->n);
        digest = hash_bytes(w->text, w->n);
    }
    *ret = (struct prompt_context){
        .text = span_of(w->text, w->n),
        .len = w->len,
        .digest = digest,
        .head_len = w->has_user ? w->head_len : w->len,
        .turn_len = w->turn_len,
    };
}
