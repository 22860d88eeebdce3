/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON writer into a struct buf: commas and escapes are its business, nesting is the caller's. A buf that is
 * full stays full; look at buf.full once at the end.
 */
#ifndef ROLTER_JSON_WRITE_H
#define ROLTER_JSON_WRITE_H

#include "base/buf.h"

struct json_out {
    struct buf *b;
    bool comma; /* the next item needs one */
};

void json_out_init(struct json_out *o, struct buf *b);
void json_out_object(struct json_out *o); /* { */
void json_out_object_end(struct json_out *o);
void json_out_array(struct json_out *o); /* [ */
void json_out_array_end(struct json_out *o);
void json_out_name(struct json_out *o, const char *name); /* "name": , then one value */
void json_out_name_span(struct json_out *o, struct span name);
/* Invalid UTF-8 in <s> becomes U+FFFD, so the output is always valid JSON. */
void json_out_string(struct json_out *o, struct span s);
void json_out_str(struct json_out *o, const char *s); /* NULL gives null */
void json_out_u64(struct json_out *o, uint64_t v);
void json_out_i64(struct json_out *o, int64_t v);
/* Shortest text that reads back as the same double, whole numbers below 1e15 without exponent (100000, not
 * 1e+05); NaN and infinities give null. */
void json_out_double(struct json_out *o, double v);
void json_out_bool(struct json_out *o, bool v);
void json_out_null(struct json_out *o);
void json_out_raw(struct json_out *o, struct span json); /* a value that is JSON text already */

/* Shorthands for the common pair. */
void json_out_member_span(struct json_out *o, const char *name, struct span v);
void json_out_member_str(struct json_out *o, const char *name, const char *v);
void json_out_member_u64(struct json_out *o, const char *name, uint64_t v);
void json_out_member_double(struct json_out *o, const char *name, double v);
void json_out_member_bool(struct json_out *o, const char *name, bool v);

/* Escapes <s> into <b> without quotes. */
void json_escape(struct buf *b, struct span s);

#endif
