/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing reply heads and chunk framing, for owners of server connections. The head goes into a struct buf
 * that its owner clears and uses again; body bytes are never copied: they stand beside it in the vectored
 * write. Thread: none of its own; the text of the Date field is kept per thread and made anew once a second.
 */
#ifndef ROLTER_NET_HTTP_REPLY_H
#define ROLTER_NET_HTTP_REPLY_H

#include "base/buf.h"

/* "HTTP/1.1 200 OK\r\n" and the Date field for <wall_ms>. */
void reply_begin(struct buf *b, int status, uint64_t wall_ms);
/* Adds "name: value\r\n". A value that may not stand in a field, or a name that is no token, adds nothing and
 * gives false, so that bytes of an outsider cannot end the head. */
bool reply_field(struct buf *b, struct span name, struct span value);
void reply_content_length(struct buf *b, uint64_t n);
void reply_chunked(struct buf *b);
void reply_connection_close(struct buf *b);
/* The empty line. False when something did not fit into the buffer. */
bool reply_end(struct buf *b);

enum { REPLY_CHUNK_HEAD_MAX = 20 };
/* The line before <n> (> 0) bytes of chunk data, as "1a2b\r\n"; returns its length. REPLY_CHUNK_TAIL follows
 * them. */
size_t reply_chunk_head(char out[REPLY_CHUNK_HEAD_MAX], size_t n);
#define REPLY_CHUNK_TAIL "\r\n"
#define REPLY_LAST_CHUNK "0\r\n\r\n"

/* The 29 characters of an HTTP date ("Tue, 01 Dec 2026 05:04:06 GMT"); lives until the thread's next call. */
struct span reply_date(uint64_t wall_ms);

#endif
