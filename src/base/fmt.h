/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and times as text, without locale and without allocation. Each writes at most its *_MAX bytes to
 * <out>, adds no NUL, and returns how many it wrote.
 */
#ifndef ROLTER_BASE_FMT_H
#define ROLTER_BASE_FMT_H

#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

enum { FMT_U64_MAX = 20, FMT_HEX_MAX = 16, FMT_TIME_MAX = 24 };

size_t fmt_u64(char *out, uint64_t v);
/* Lower-case hexadecimal without leading zeros (chunk sizes); 0 gives "0". */
size_t fmt_hex(char *out, uint64_t v);
/* 2 * n lower-case hexadecimal digits of <bytes>. */
void fmt_hex_bytes(char *out, const uint8_t *bytes, size_t n);
/* RFC 3339 in UTC with milliseconds: 2026-12-01T05:04:06.123Z (24 bytes). <wall_ms> counts from the epoch. */
size_t fmt_time(char *out, uint64_t wall_ms);
/* RFC 3339 date-time with any offset, fractional seconds optional; milliseconds from the epoch. */
bool fmt_parse_time(struct span s, int64_t *ret_wall_ms);

#endif
