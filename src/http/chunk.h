/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoder of the chunked transfer coding (RFC 9112 §7.1): strict, resumable at every byte, no allocation.
 * Sizes are hexadecimal digits only, at most 16; lines end in CR LF only; extensions up to 256 bytes (with
 * their semicolon) are skipped; trailers must look like fields and are dropped, up to 8 KiB in all. Does not
 * bound the body: the caller counts what comes out. Thread: one owner. Complexity: O(bytes).
 */
#ifndef ROLTER_HTTP_CHUNK_H
#define ROLTER_HTTP_CHUNK_H

#include "base/span.h"

struct http_chunk {
    uint64_t left; /* bytes of the current chunk still to come */
    uint32_t line; /* bytes of the current extension or trailers so far */
    uint8_t state;
    uint8_t digits;
};

enum http_chunk_event {
    HTTP_CHUNK_DATA, /* *ret_data is body; call again with the rest */
    HTTP_CHUNK_MORE, /* everything consumed, nothing to say yet */
    HTTP_CHUNK_END,  /* the body is complete; what was not consumed belongs to the next message */
    HTTP_CHUNK_BAD,  /* the coding is broken; the connection cannot be used any more */
};

void http_chunk_init(struct http_chunk *c);
/* Consumes from <p>; *ret_used says how much. *ret_data is empty unless HTTP_CHUNK_DATA. HTTP_CHUNK_BAD
 * leaves both alone. After END or BAD the answer stays the same and nothing is consumed. */
enum http_chunk_event http_chunk_feed(struct http_chunk *c, const char *p, size_t n, size_t *ret_used,
                                      struct span *ret_data);

#endif
