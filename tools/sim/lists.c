/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings and rerank. The bodies are made when the request is read; the engine only lets them wait their
 * time.
 */
#include "sim.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "vectors.h"

enum { NUMBERS_MAX = 4 << 20, INPUTS_MAX = 2048 };

struct embed {
    struct sim_request *r;
    const struct json_doc *d;
    unsigned dims;
    bool base64;
    float vector[VECTOR_DIMS_MAX];
};

static void put_vector(struct embed *e, struct buf *b, uint32_t index)
{
    BUF_LIT(b, "{\"object\":\"embedding\",\"index\":");
    buf_add_u64(b, index);
    BUF_LIT(b, ",\"embedding\":");
    if (e->base64) { /* little-endian floats; this machine's, as everywhere that we run */
        size_t n = (e->dims * sizeof(float) + 2) / 3 * 4;
        buf_add_char(b, '"');
        if (buf_reserve(b, n + 1)) {
            EVP_EncodeBlock((unsigned char *)b->p + b->n, (const unsigned char *)e->vector,
                            (int)(e->dims * sizeof(float)));
            b->n += n;
        }
        BUF_LIT(b, "\"}");
        return;
    }
    for (unsigned i = 0; i < e->dims; i++)
        buf_printf(b, "%c%.9g", i ? ',' : '[', (double)e->vector[i]);
    BUF_LIT(b, "]}");
}

/* A string or an array of token ids. False: neither. */
static bool embed_one(struct embed *e, struct buf *b, uint32_t input, uint32_t index)
{
    struct tokens *t = &e->r->sim->tokens;
    if (index)
        buf_add_char(b, ',');
    if (json_is(e->d, input, JSON_STRING)) {
        struct span text = json_string(e->d, input, &e->r->sim->scratch);
        tokens_text(t, text.p, text.n);
        tokens_end(t);
        vector_of_text(text, e->vector, e->dims);
    } else if (json_is(e->d, input, JSON_ARRAY)) {
        uint32_t n = e->d->node[input].count, k = 0;
        uint32_t *ids = arena_alloc(&e->r->sim->scratch, (n + 1) * sizeof *ids);
        for (uint32_t i = json_first(e->d, input); i != JSON_NODE_NONE; i = json_next(e->d, input, i)) {
            uint64_t id;
            if (!json_u64(e->d, i, &id))
                return false;
            ids[k++] = (uint32_t)id;
            tokens_mark(t, (uint32_t)id);
        }
        vector_of_tokens(ids, n, e->vector, e->dims);
    } else {
        return false;
    }
    put_vector(e, b, index);
    return true;
}

static void keep_body(struct sim_request *r)
{
    struct sim *s = r->sim;
    r->ready_body = arena_dup(&r->arena, buf_view(&s->out));
    r->er.no_cache = true;
    r->er.prompt_n = s->tokens.total < UINT32_MAX ? (uint32_t)s->tokens.total : UINT32_MAX;
    r->n = 1;
}

static void put_end(struct sim_request *r, struct buf *b)
{
    BUF_LIT(b, "],\"model\":");
    buf_add_span(b, r->model_json);
    if (!r->sim->o.no_usage) {
        BUF_LIT(b, ",\"usage\":{\"prompt_tokens\":");
        buf_add_u64(b, r->sim->tokens.total);
        BUF_LIT(b, ",\"total_tokens\":");
        buf_add_u64(b, r->sim->tokens.total);
        BUF_LIT(b, "}");
    }
    buf_add_char(b, '}');
}

static const char *read_embed(struct embed *e)
{
    const struct json_doc *d = e->d;
    struct buf *b = &e->r->sim->out;
    uint32_t input = json_get(d, 0, "input"), dims = json_get(d, 0, "dimensions"),
             format = json_get(d, 0, "encoding_format");
    uint64_t n = VECTOR_DIMS_DEFAULT;
    if (dims != JSON_NODE_NONE && !json_is(d, dims, JSON_NULL) &&
        (!json_u64(d, dims, &n) || n < 1 || n > VECTOR_DIMS_MAX))
        return "dimensions must be between 1 and 4096";
    e->dims = (unsigned)n;
    e->base64 = json_string_eq(d, format, SPAN("base64"));
    if (json_is(d, format, JSON_STRING) && !e->base64 && !json_string_eq(d, format, SPAN("float")))
        return "encoding_format must be float or base64";
    uint32_t first = json_first(d, input);
    if (json_is(d, input, JSON_STRING) || json_is(d, first, JSON_NUMBER))
        return embed_one(e, b, input, 0) ? NULL : "input must be text or token ids";
    if (!json_is(d, input, JSON_ARRAY) || first == JSON_NODE_NONE || d->node[input].count > INPUTS_MAX ||
        (uint64_t)d->node[input].count * n > NUMBERS_MAX)
        return "input must be a string or a non-empty array (at most 2048 items, 4194304 numbers)";
    uint32_t index = 0;
    for (uint32_t i = first; i != JSON_NODE_NONE; i = json_next(d, input, i))
        if (!embed_one(e, b, i, index++))
            return "input must hold strings or arrays of token ids";
    return NULL;
}

static const char *read_embeddings(struct sim_request *r, const struct json_doc *d)
{
    struct embed *e = ARENA_NEW(&r->sim->scratch, struct embed);
    e->r = r;
    e->d = d;
    buf_clear(&r->sim->out);
    BUF_LIT(&r->sim->out, "{\"object\":\"list\",\"data\":[");
    const char *why = read_embed(e);
    if (why)
        return why;
    put_end(r, &r->sim->out);
    keep_body(r);
    return NULL;
}

struct ranked {
    double score;
    uint32_t index;
    struct span text;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static void put_ranked(struct sim_request *r, const struct ranked *list, uint64_t n, bool with_text)
{
    struct json_out o;
    struct buf *b = &r->sim->out;
    buf_clear(b);
    BUF_LIT(b, "{\"id\":\"");
    reply_id(b, "rerank-", r->id);
    BUF_LIT(b, "\",\"results\":[");
    json_out_init(&o, b);
    for (uint64_t i = 0; i < n; i++) {
        json_out_object(&o);
        json_out_member_u64(&o, "index", list[i].index);
        if (with_text) {
            json_out_name(&o, "document");
            json_out_object(&o);
            json_out_member_span(&o, "text", list[i].text);
            json_out_object_end(&o);
        }
        json_out_member_double(&o, "relevance_score", list[i].score);
        json_out_object_end(&o);
    }
    put_end(r, b);
}

static const char *read_rerank(struct sim_request *r, const struct json_doc *d)
{
    struct sim *s = r->sim;
    uint32_t query = json_get(d, 0, "query"), documents = json_get(d, 0, "documents");
    uint64_t top = UINT64_MAX;
    if (!json_is(d, query, JSON_STRING) || !json_is(d, documents, JSON_ARRAY) || !d->node[documents].count ||
        d->node[documents].count > INPUTS_MAX)
        return "query must be a string and documents a non-empty array (at most 2048)";
    json_u64(d, json_get(d, 0, "top_n"), &top);
    struct span words = json_string(d, query, &s->scratch);
    struct ranked *list = ARENA_ARRAY(&s->scratch, struct ranked, d->node[documents].count);
    uint32_t n = 0;
    for (uint32_t i = json_first(d, documents); i != JSON_NODE_NONE; i = json_next(d, documents, i), n++) {
        uint32_t at = json_is(d, i, JSON_OBJECT) ? json_get(d, i, "text") : i;
        if (!json_is(d, at, JSON_STRING))
            return "documents must hold strings or objects with a text";
        struct span text = json_string(d, at, &s->scratch);
        list[n] = (struct ranked){rerank_score(words, text), n, text};
        tokens_text(&s->tokens, words.p, words.n);
        tokens_end(&s->tokens);
        tokens_text(&s->tokens, text.p, text.n);
        tokens_end(&s->tokens);
    }
    qsort(list, n, sizeof *list, by_score);
    put_ranked(r, list, top < n ? top : n, !json_is(d, json_get(d, 0, "return_documents"), JSON_FALSE));
    keep_body(r);
    return NULL;
}

static void whole(struct sim_request *r, struct buf *b)
{
    buf_add_span(b, r->ready_body);
}

const struct sim_api sim_embeddings = {.read = read_embeddings, .whole = whole};
const struct sim_api sim_rerank = {.read = read_rerank, .whole = whole};
