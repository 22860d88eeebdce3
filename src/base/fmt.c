/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fmt.h"

#include <stdio.h>
#include <time.h>

size_t fmt_u64(char *out, uint64_t v)
{
    char tmp[FMT_U64_MAX];
    size_t n = 0;
    do {
        tmp[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    for (size_t i = 0; i < n; i++)
        out[i] = tmp[n - 1 - i];
    return n;
}

static const char hex_digits[] = "0123456789abcdef";

size_t fmt_hex(char *out, uint64_t v)
{
    char tmp[FMT_HEX_MAX];
    size_t n = 0;
    do {
        tmp[n++] = hex_digits[v & 15];
        v >>= 4;
    } while (v);
    for (size_t i = 0; i < n; i++)
        out[i] = tmp[n - 1 - i];
    return n;
}

void fmt_hex_bytes(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = hex_digits[bytes[i] >> 4];
        out[2 * i + 1] = hex_digits[bytes[i] & 15];
    }
}

size_t fmt_time(char *out, uint64_t wall_ms)
{
    time_t secs = (time_t)(wall_ms / 1000);
    struct tm tm;
    gmtime_r(&secs, &tm);
    char tmp[64];
    int n = snprintf(tmp, sizeof tmp, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall_ms % 1000));
    size_t len = n > FMT_TIME_MAX ? FMT_TIME_MAX : (size_t)n;
    memcpy(out, tmp, len);
    return len;
}

/* Reads exactly <n> digits at *at. */
static bool digits(struct span s, size_t *at, size_t n, int *ret)
{
    if (s.n - *at < n)
        return false;
    int v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s.p[*at + i];
        if (c < '0' || c > '9')
            return false;
        v = v * 10 + (c - '0');
    }
    *at += n;
    *ret = v;
    return true;
}

static bool literal(struct span s, size_t *at, const char *any_of)
{
    if (*at >= s.n || !strchr(any_of, s.p[*at]) || s.p[*at] == 0)
        return false;
    (*at)++;
    return true;
}

static bool parse_fraction(struct span s, size_t *at, int *ret_ms)
{
    int ms = 0, scale = 100, n = 0;
    while (*at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9') {
        ms += (s.p[*at] - '0') * scale;
        scale /= 10;
        (*at)++;
        n++;
    }
    *ret_ms = ms;
    return n > 0;
}

bool fmt_parse_time(struct span s, int64_t *ret_wall_ms)
{
    size_t at = 0;
    int year, mon, day, hour, min, sec, ms = 0, off_h = 0, off_m = 0, sign = 0;
    if (!digits(s, &at, 4, &year) || !literal(s, &at, "-") || !digits(s, &at, 2, &mon) || !literal(s, &at, "-") ||
        !digits(s, &at, 2, &day) || !literal(s, &at, "Tt ") || !digits(s, &at, 2, &hour) || !literal(s, &at, ":") ||
        !digits(s, &at, 2, &min) || !literal(s, &at, ":") || !digits(s, &at, 2, &sec))
        return false;
    if (mon < 1 || mon > 12 || day < 1 || day > 31 || hour > 23 || min > 59 || sec > 60)
        return false;
    if (literal(s, &at, ".") && !parse_fraction(s, &at, &ms))
        return false;
    if (!literal(s, &at, "Zz")) {
        if (at >= s.n || (s.p[at] != '+' && s.p[at] != '-'))
            return false;
        sign = s.p[at++] == '+' ? 1 : -1;
        if (!digits(s, &at, 2, &off_h) || !literal(s, &at, ":") || !digits(s, &at, 2, &off_m) || off_h > 23 ||
            off_m > 59)
            return false;
    }
    if (at != s.n)
        return false;
    struct tm tm = {
        .tm_year = year - 1900, .tm_mon = mon - 1, .tm_mday = day, .tm_hour = hour, .tm_min = min, .tm_sec = sec};
    int64_t secs = (int64_t)timegm(&tm);
    if (tm.tm_mday != day)
        return false; /* 30 February */
    *ret_wall_ms = (secs - sign * (off_h * 3600 + off_m * 60)) * 1000 + ms;
    return true;
}
