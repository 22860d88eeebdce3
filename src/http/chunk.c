/* SPDX-License-Identifier: Apache-2.0 */
#include "http/chunk.h"

#include "base/check.h"
#include "http/head.h"
#include "http/scan.h"

enum { DIGITS_MAX = 16, EXTENSION_MAX = 256, TRAILERS_MAX = 8192 };

enum state {
    SIZE,
    EXTENSION,
    SIZE_LF, /* CR of the size line seen */
    DATA,
    DATA_CR, /* chunk complete, its CR LF to come */
    DATA_LF,
    TRAILER_START, /* behind the last chunk, at the start of a line */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF, /* CR of the empty line seen */
    END,
    BAD,
};

void http_chunk_init(struct http_chunk *c)
{
    *c = (struct http_chunk){.state = SIZE};
}

static int hex_digit(unsigned char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static enum state after_size_line(struct http_chunk *c)
{
    bool last = c->left == 0;
    c->digits = 0;
    c->line = 0;
    return last ? TRAILER_START : DATA;
}

static enum state step_size(struct http_chunk *c, unsigned char ch)
{
    int d = hex_digit(ch);
    if (d >= 0) {
        if (c->digits == DIGITS_MAX)
            return BAD;
        c->digits++;
        c->left = c->left << 4 | (uint64_t)d;
        return SIZE;
    }
    if (c->digits == 0)
        return BAD;
    if (ch == '\r')
        return SIZE_LF;
    c->line = 1;
    return ch == ';' ? EXTENSION : BAD; /* white space before the semicolon: parsers disagree */
}

static enum state step_extension(struct http_chunk *c, unsigned char ch)
{
    if (ch == '\r')
        return SIZE_LF;
    return scan_is_control(ch) || ++c->line > EXTENSION_MAX ? BAD : EXTENSION;
}

/* Trailers are dropped, but must look like fields: whoever takes the next request for a trailer is found
 * here. */
static enum state step_trailer(struct http_chunk *c, unsigned char ch)
{
    if (++c->line > TRAILERS_MAX)
        return BAD;
    switch (c->state) {
    case TRAILER_START:
        if (ch == '\r')
            return END_LF;
        return http_is_token(span_of((const char *)&ch, 1)) ? TRAILER_NAME : BAD;
    case TRAILER_NAME:
        if (ch == ':')
            return TRAILER_VALUE;
        return http_is_token(span_of((const char *)&ch, 1)) ? TRAILER_NAME : BAD;
    case TRAILER_VALUE:
        if (ch == '\r')
            return TRAILER_LF;
        return scan_is_control(ch) ? BAD : TRAILER_VALUE;
    case TRAILER_LF:
        return ch == '\n' ? TRAILER_START : BAD;
    default:
        return ch == '\n' ? END : BAD;
    }
}

static enum state step(struct http_chunk *c, unsigned char ch)
{
    switch (c->state) {
    case SIZE:
        return step_size(c, ch);
    case EXTENSION:
        return step_extension(c, ch);
    case SIZE_LF:
        return ch == '\n' ? after_size_line(c) : BAD;
    case DATA_CR:
        return ch == '\r' ? DATA_LF : BAD;
    case DATA_LF:
        return ch == '\n' ? SIZE : BAD;
    default:
        return step_trailer(c, ch);
    }
}

HOT enum http_chunk_event http_chunk_feed(struct http_chunk *c, const char *p, size_t n, size_t *ret_used,
                                          struct span *ret_data)
{
    size_t i = 0;
    while (i < n && c->state < END) {
        if (c->state != DATA) {
            c->state = (uint8_t)step(c, (unsigned char)p[i++]);
            continue;
        }
        size_t take = c->left < n - i ? (size_t)c->left : n - i;
        c->left -= take;
        if (c->left == 0)
            c->state = DATA_CR;
        *ret_data = span_of(p + i, take);
        *ret_used = i + take;
        return HTTP_CHUNK_DATA;
    }
    if (c->state == BAD)
        return HTTP_CHUNK_BAD;
    *ret_data = SPAN_NONE;
    *ret_used = i;
    return c->state == END ? HTTP_CHUNK_END : HTTP_CHUNK_MORE;
}
