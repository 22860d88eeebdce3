/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/vector_block.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

/* How far a float dot product of two unit vectors may be from the exact one: at least eight sums run beside
 * each other. A bound computed in floats is nearer to the bound. */
static double float_slack(unsigned width)
{
    return 2e-6 + 1e-8 * width;
}

/* When the bytes decide less than half of so many entries, the floats are read at once. */
enum { DOUBT_AFTER = 32 };

unsigned vector_width(unsigned dims)
{
    return (dims + VECTOR_STEP - 1) / VECTOR_STEP * VECTOR_STEP;
}

static void *aligned(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    CHECK(p != NULL);
    return p;
}

/* Length in double; 0 when something is not finite. */
static double length_of(const float *x, unsigned dims)
{
    double sum = 0;
    for (unsigned i = 0; i < dims; i++)
        sum += (double)x[i] * x[i];
    return isfinite(sum) ? sqrt(sum) : 0;
}

bool vectors_is_direction(const float *x, unsigned dims)
{
    return dims > 0 && dims <= VECTORS_DIMS_MAX && length_of(x, dims) > 0;
}

bool packed_vector_init(struct packed_vector *p, const float *x, unsigned dims)
{
    double length = dims > 0 && dims <= VECTORS_DIMS_MAX ? length_of(x, dims) : 0;
    if (length <= 0)
        return false;
    unsigned width = vector_width(dims);
    char *memory = aligned((sizeof(float) + 1) * (size_t)width);
    float *floats = (float *)memory;
    int8_t *packed = (int8_t *)(memory + sizeof(float) * width);
    memset(memory, 0, (sizeof(float) + 1) * (size_t)width);
    float most = 0;
    for (unsigned i = 0; i < dims; i++) {
        floats[i] = (float)(x[i] / length);
        most = fmaxf(most, fabsf(floats[i]));
    }
    float scale = most / 127;
    double error = 0, norm = 0;
    for (unsigned i = 0; i < dims && scale > 0; i++) {
        long q = lrintf(floats[i] / scale);
        packed[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        double near = (double)scale * packed[i], off = floats[i] - near;
        error += off * off;
        norm += near * near;
    }
    *p = (struct packed_vector){.width = width, .packed = packed, .floats = floats, .memory = memory};
    p->length = length_of(floats, dims);
    p->scale = scale;
    p->error = (float)(sqrt(error) * 1.000001);
    p->norm = (float)(sqrt(norm) * 1.000001);
    return true;
}

void packed_vector_fini(struct packed_vector *p)
{
    MEM_FREE(p->memory);
}

struct vector_block *vector_block_new(unsigned cap, unsigned width)
{
    struct vector_block *b = MEM_NEW(struct vector_block);
    b->heads = mem_array(cap, sizeof(*b->heads));
    b->tails = mem_array(cap, sizeof(*b->tails));
    b->packed = aligned((size_t)cap * width);
    b->floats = aligned((size_t)cap * width * sizeof(float));
    atomic_init(&b->refs, 1);
    b->cap = cap;
    b->width = width;
    b->bytes = sizeof(*b) + cap * (sizeof(*b->heads) + sizeof(*b->tails) + width * (sizeof(float) + 1));
    return b;
}

void vector_block_ref(struct vector_block *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

void vector_block_unref(struct vector_block *b)
{
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < b->n; i++)
        free(b->tails[i].note);
    free(b->heads);
    free(b->tails);
    free(b->packed);
    free(b->floats);
    free(b);
}

static struct slot_tail *next_slot(struct vector_block *b, struct span note)
{
    CHECK(b->n < b->cap && note.n <= VECTORS_NOTE_MAX);
    struct slot_tail *t = &b->tails[b->n];
    if (note.n) {
        t->note = mem_alloc(note.n);
        memcpy(t->note, note.p, note.n);
        t->note_bytes = note.n;
        b->bytes += note.n;
    }
    return t;
}

void vector_block_add(struct vector_block *b, const struct packed_vector *p, const struct vectors_entry *e)
{
    CHECK(p->width == b->width);
    struct slot_tail *t = next_slot(b, e->note);
    struct slot_head *h = &b->heads[b->n];
    h->expires_ms = e->expires_ms;
    h->scale = p->scale;
    h->error = p->error;
    h->norm = p->norm;
    h->length = p->length;
    atomic_init(&h->dead, false);
    memcpy(t->id, e->id, sizeof(t->id));
    t->created_ms = e->created_ms;
    memcpy(b->packed + (size_t)b->n * b->width, p->packed, b->width);
    memcpy(b->floats + (size_t)b->n * b->width, p->floats, b->width * sizeof(float));
    b->n++;
}

void vector_block_copy(struct vector_block *b, const struct vector_block *from, unsigned slot)
{
    const struct slot_tail *t = &from->tails[slot];
    const struct slot_head *h = &from->heads[slot];
    struct packed_vector p = {.width = from->width,
                              .scale = h->scale,
                              .error = h->error,
                              .norm = h->norm,
                              .length = h->length,
                              .packed = from->packed + (size_t)slot * from->width,
                              .floats = from->floats + (size_t)slot * from->width};
    struct vectors_entry e = {
        .created_ms = t->created_ms, .expires_ms = h->expires_ms, .note = span_of(t->note, t->note_bytes)};
    memcpy(e.id, t->id, sizeof(e.id));
    vector_block_add(b, &p, &e);
}

/* What a further match must reach. */
static double bar(const struct vector_search *s)
{
    return s->n == s->want ? s->best[s->n - 1].similarity : s->threshold;
}

static void take(struct vector_search *s, const struct vector_block *b, unsigned slot)
{
    const float *f = b->floats + (size_t)slot * b->width;
    if (s->dot->floats(s->query->floats, f, b->width) + float_slack(b->width) < bar(s))
        return;
    /* The floats' own length is 1 only as far as floats can say it. */
    float similarity =
        (float)(s->dot->exact(s->query->floats, f, b->width) / (s->query->length * b->heads[slot].length));
    similarity = fminf(1, fmaxf(-1, similarity));
    if (similarity < s->threshold)
        return;
    unsigned at = s->n;
    while (at > 0 && s->best[at - 1].similarity < similarity) /* of equals the newer one stays first */
        at--;
    if (at == s->want)
        return;
    if (s->n < s->want)
        s->n++;
    memmove(&s->best[at + 1], &s->best[at], (s->n - 1 - at) * sizeof(s->best[0]));
    s->best[at].similarity = similarity;
    s->best[at].block = b;
    s->best[at].slot = slot;
}

/* Query u and vector v are s_u q_u + e_u and s_v q_v + e_v with |e| known, so
 * u.v = s_u s_v q_u.q_v + u.e_v + e_u.(s_v q_v) is at most the first term + |e_v| + |e_u| |s_v q_v|. */
static bool may_match(const struct vector_search *s, const struct vector_block *b, unsigned slot)
{
    const struct slot_head *h = &b->heads[slot];
    int32_t dot = s->dot->bytes(s->query->packed, b->packed + (size_t)slot * b->width, b->width);
    double most = (double)s->query->scale * h->scale * dot + h->error + (double)s->query->error * h->norm;
    return most + float_slack(b->width) >= bar(s);
}

/* As good as can be, and of equals the newer ones count: the same text asked again and again. */
static bool is_settled(const struct vector_search *s)
{
    return s->n == s->want && s->best[s->n - 1].similarity >= 1;
}

void vector_search_block(struct vector_search *s, const struct vector_block *b, unsigned n)
{
    for (unsigned i = n; i-- > 0 && s->left && !is_settled(s);) {
        if (!vector_block_is_live(b, i, s->now_ms))
            continue;
        s->left--;
        s->seen++;
        bool sure = s->doubtful > DOUBT_AFTER / 2 && s->doubtful * 2 > s->seen;
        if (!sure && !may_match(s, b, i))
            continue;
        s->doubtful++;
        take(s, b, i);
    }
}
