/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_reply.h"

#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/fmt.h"
#include "http/head.h"

enum { DATE_CHARS = 29 };

struct span reply_date(uint64_t wall_ms)
{
    static _Thread_local uint64_t second_of_text = UINT64_MAX;
    static _Thread_local char text[64];
    uint64_t second = wall_ms / 1000;
    if (second != second_of_text) {
        /* Not strftime: its names depend on the locale. */
        static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        time_t t = (time_t)second;
        struct tm tm;
        CHECK(gmtime_r(&t, &tm));
        int n = snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
                         tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
        CHECK(n == DATE_CHARS);
        second_of_text = second;
    }
    return span_of(text, DATE_CHARS);
}

void reply_begin(struct buf *b, int status, uint64_t wall_ms)
{
    CHECK(status >= 100 && status <= 999);
    if (status == 200) {
        BUF_LIT(b, "HTTP/1.1 200 OK\r\ndate: ");
    } else {
        BUF_LIT(b, "HTTP/1.1 ");
        buf_add_u64(b, (uint64_t)status);
        buf_add_char(b, ' ');
        buf_add_str(b, http_status_text(status));
        BUF_LIT(b, "\r\ndate: ");
    }
    buf_add_span(b, reply_date(wall_ms));
    BUF_LIT(b, "\r\n");
}

bool reply_field(struct buf *b, struct span name, struct span value)
{
    if (!http_is_token(name) || !http_value_is_safe(value))
        return false;
    buf_add_span(b, name);
    BUF_LIT(b, ": ");
    buf_add_span(b, value);
    BUF_LIT(b, "\r\n");
    return true;
}

void reply_content_length(struct buf *b, uint64_t n)
{
    BUF_LIT(b, "content-length: ");
    buf_add_u64(b, n);
    BUF_LIT(b, "\r\n");
}

void reply_chunked(struct buf *b)
{
    BUF_LIT(b, "transfer-encoding: chunked\r\n");
}

void reply_connection_close(struct buf *b)
{
    BUF_LIT(b, "connection: close\r\n");
}

bool reply_end(struct buf *b)
{
    BUF_LIT(b, "\r\n");
    return !b->full;
}

size_t reply_chunk_head(char out[REPLY_CHUNK_HEAD_MAX], size_t n)
{
    CHECK(n > 0); /* a chunk of no bytes would end the body */
    size_t at = fmt_hex(out, n);
    out[at++] = '\r';
    out[at++] = '\n';
    return at;
}
