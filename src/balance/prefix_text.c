/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts. A short one lies behind its header. A long one is cut at the multiples of PIECE, counted from the
 * root, and its header points to the pieces: so a node that is split, or merged with another, hands its
 * pieces on, and only what lies next to the seam is copied, however long prompts are. Pieces have one owner,
 * and are of a size that allocators keep at hand; what one prompt gives back the next one takes.
 */
#include <stdlib.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "balance/epoch.h"
#include "balance/prefix_tree.h"
#include "base/mem.h"

enum {
    PIECE = 4096,
    FLAT_MAX = 6136 /* with the header a size class of jemalloc */
};
_Static_assert(PIECE / sizeof(char *) >= 2 * TEXT_CHARGE_EACH,
               "pointers are charged, those at both ends as well");

static bool is_flat(uint32_t len)
{
    return len <= FLAT_MAX;
}

static char **pieces(const struct text *t)
{
    return (char **)(void *)(uintptr_t)t->bytes;
}

static uint32_t end_of(const struct text *t)
{
    return t->start + t->len;
}

static uint32_t pieces_of(uint32_t start, uint32_t len)
{
    return is_flat(len) ? 0 : (start + len - 1) / PIECE - start / PIECE + 1;
}

static size_t header_bytes(uint32_t start, uint32_t len)
{
    return sizeof(struct text) + (is_flat(len) ? len : pieces_of(start, len) * sizeof(char *));
}

/* Where the <k>th piece begins; that of the one behind the last is the end. */
static uint32_t piece_start(const struct text *t, uint32_t k)
{
    uint32_t at = (t->start / PIECE + k) * PIECE;
    return at < t->start ? t->start : at < end_of(t) ? at : end_of(t);
}

static uint32_t piece_len(const struct text *t, uint32_t k)
{
    return piece_start(t, k + 1) - piece_start(t, k);
}

size_t text_bytes(const struct text *t)
{
    return header_bytes(t->start, t->len) + (is_flat(t->len) ? 0 : t->len);
}

const char *text_at(const struct text *t, uint32_t pos, uint32_t *ret_n)
{
    if (is_flat(t->len)) {
        *ret_n = end_of(t) - pos;
        return t->bytes + (pos - t->start);
    }
    uint32_t k = pos / PIECE - t->start / PIECE;
    *ret_n = piece_start(t, k + 1) - pos;
    return pieces(t)[k] + (pos - piece_start(t, k));
}

static struct text *header_new(struct lane *by, uint32_t start, uint32_t len)
{
    size_t bytes = header_bytes(start, len);
    struct text *t = mem_alloc(bytes);
    t->start = start;
    t->len = len;
    lane_allocated(by, (int64_t)bytes);
    return t;
}

static char *piece_new(struct lane *by, uint32_t len)
{
    lane_allocated(by, len);
    return mem_alloc(len);
}

/* A piece is written now and read by a later turn at the earliest, so it does not pass through the caches:
 * there it would put out what is needed now, and its old content would be read from memory first. */
static void copy_piece(char *to, const char *from, uint32_t n)
{
    uint32_t i = 0;
#if defined(__SSE2__)
    for (; n - i >= 64; i += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + i)),
                b = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 16)),
                c = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 32)),
                d = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 48));
        _mm_stream_si128((__m128i *)(void *)(to + i), a);
        _mm_stream_si128((__m128i *)(void *)(to + i + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + i + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + i + 48), d);
    }
#endif
    memcpy(to + i, from + i, n - i);
}

struct text *text_new(struct lane *by, uint32_t start, const char *bytes, uint32_t len)
{
    struct text *t = header_new(by, start, len);
    if (is_flat(len))
        memcpy(t->bytes, bytes, len);
    for (uint32_t k = 0, n = pieces_of(start, len); k < n; k++) {
        uint32_t part = piece_len(t, k);
        pieces(t)[k] = piece_new(by, part);
        copy_piece(pieces(t)[k], bytes, part);
        bytes += part;
    }
#if defined(__SSE2__)
    if (!is_flat(len))
        _mm_sfence(); /* before others are told of it: such stores keep no order of themselves */
#endif
    return t;
}

/* The piece of <t> that stands for just this run, or NULL. */
static char *piece_like(const struct text *t, uint32_t start, uint32_t len)
{
    if (!t || is_flat(t->len) || start < t->start || start >= end_of(t))
        return NULL;
    uint32_t k = start / PIECE - t->start / PIECE;
    return piece_start(t, k) == start && piece_len(t, k) == len ? pieces(t)[k] : NULL;
}

/* Copies a run out of <a>, and out of <b> what is behind the end of <a>. */
static void copy_run(char *to, uint32_t start, uint32_t len, const struct text *a, const struct text *b)
{
    while (len > 0) {
        uint32_t n;
        const char *from = text_at(start < end_of(a) ? a : b, start, &n);
        n = n < len ? n : len;
        memcpy(to, from, n);
        to += n;
        start += n;
        len -= n;
    }
}

struct text *text_compose(struct lane *by, uint32_t start, uint32_t end, const struct text *a,
                          const struct text *b)
{
    struct text *t = header_new(by, start, end - start);
    if (is_flat(t->len))
        copy_run(t->bytes, start, t->len, a, b);
    for (uint32_t k = 0, n = pieces_of(start, t->len); k < n; k++) {
        uint32_t from = piece_start(t, k), len = piece_len(t, k);
        char *shared = piece_like(a, from, len);
        shared = shared ? shared : piece_like(b, from, len);
        pieces(t)[k] = shared ? shared : piece_new(by, len);
        if (!shared)
            copy_run(pieces(t)[k], from, len, a, b);
    }
    return t;
}

void text_retire(struct lane *by, struct text *t, const struct text *a, const struct text *b)
{
    if (!t)
        return;
    for (uint32_t k = 0, n = pieces_of(t->start, t->len); k < n; k++) {
        char *piece = pieces(t)[k];
        uint32_t from = piece_start(t, k), len = piece_len(t, k);
        if (piece == piece_like(a, from, len) || piece == piece_like(b, from, len))
            continue;
        lane_allocated(by, -(int64_t)len);
        epoch_retire(piece, len);
    }
    size_t bytes = header_bytes(t->start, t->len);
    lane_allocated(by, -(int64_t)bytes);
    epoch_retire(t, bytes);
}

bool text_serves(const struct text *t, uint32_t from)
{
    return t->start <= from && from - t->start <= (is_flat(t->len) ? TEXT_EARLY : 0);
}

void text_free(struct text *t)
{
    for (uint32_t k = 0, n = t ? pieces_of(t->start, t->len) : 0; k < n; k++)
        free(pieces(t)[k]);
    free(t);
}
