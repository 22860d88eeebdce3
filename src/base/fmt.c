/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fmt.h"

#include <time.h>

static unsigned count_digits(uint64_t v)
{
    static const uint64_t least[] = {
        0,
        10u,
        100u,
        1000u,
        10000u,
        100000u,
        1000000u,
        10000000u,
        100000000u,
        1000000000u,
        10000000000u,
        100000000000u,
        1000000000000u,
        10000000000000u,
        100000000000000u,
        1000000000000000u,
        10000000000000000u,
        100000000000000000u,
        1000000000000000000u,
        10000000000000000000u,
    };
    /* log10(2) is about 1233 / 4096; one too many at most. */
    unsigned n = (64 - (unsigned)__builtin_clzll(v | 1)) * 1233 >> 12;
    return n + (v >= least[n]);
}

size_t fmt_u64(char *out, uint64_t v)
{
    if (v < 10) { /* most numbers of a row are 0 */
        out[0] = (char)('0' + v);
        return 1;
    }
    unsigned n = count_digits(v);
    for (unsigned i = n; i-- > 0; v /= 10)
        out[i] = (char)('0' + v % 10);
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

static char *two_digits(char *w, unsigned v)
{
    w[0] = (char)('0' + v / 10);
    w[1] = (char)('0' + v % 10);
    return w + 2;
}

/* By hand instead of gmtime_r and snprintf: every request row has one. The calendar is counted from 1 March
 * of the year 0 in eras of 400 years (146,097 days), so that the leap day is the last of its year. */
size_t fmt_time(char *out, uint64_t wall_ms)
{
    enum { ERA_DAYS = 146097, EPOCH_DAYS = 719468, DAY_SECS = 86400 };
    /* The form has four digits for the year; later times stand still at its end. */
    static const uint64_t last_ms = 253402300799999u;
    if (wall_ms > last_ms)
        wall_ms = last_ms;
    uint64_t secs = wall_ms / 1000, days = secs / DAY_SECS + EPOCH_DAYS;
    unsigned ms = (unsigned)(wall_ms % 1000), in_day = (unsigned)(secs % DAY_SECS);
    unsigned era = (unsigned)(days / ERA_DAYS), d = (unsigned)(days % ERA_DAYS);
    unsigned y = (d - d / 1460 + d / 36524 - d / 146096) / 365;
    unsigned in_year = d - (365 * y + y / 4 - y / 100);
    unsigned m = (5 * in_year + 2) / 153; /* 0 is March */
    unsigned year = era * 400 + y + (m >= 10);
    char *w = two_digits(out, year / 100);
    w = two_digits(w, year % 100);
    *w++ = '-';
    w = two_digits(w, m < 10 ? m + 3 : m - 9);
    *w++ = '-';
    w = two_digits(w, in_year - (153 * m + 2) / 5 + 1);
    *w++ = 'T';
    w = two_digits(w, in_day / 3600);
    *w++ = ':';
    w = two_digits(w, in_day / 60 % 60);
    *w++ = ':';
    w = two_digits(w, in_day % 60);
    *w++ = '.';
    *w++ = (char)('0' + ms / 100);
    w = two_digits(w, ms % 100);
    *w++ = 'Z';
    return (size_t)(w - out);
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
    if (!digits(s, &at, 4, &year) || !literal(s, &at, "-") || !digits(s, &at, 2, &mon) ||
        !literal(s, &at, "-") || !digits(s, &at, 2, &day) || !literal(s, &at, "Tt ") ||
        !digits(s, &at, 2, &hour) || !literal(s, &at, ":") || !digits(s, &at, 2, &min) ||
        !literal(s, &at, ":") || !digits(s, &at, 2, &sec))
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
    struct tm tm = {.tm_year = year - 1900,
                    .tm_mon = mon - 1,
                    .tm_mday = day,
                    .tm_hour = hour,
                    .tm_min = min,
                    .tm_sec = sec};
    int64_t secs = (int64_t)timegm(&tm);
    if (tm.tm_mday != day)
        return false; /* 30 February */
    *ret_wall_ms = (secs - sign * (off_h * 3600 + off_m * 60)) * 1000 + ms;
    return true;
}
