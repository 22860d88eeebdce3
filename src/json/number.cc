/* SPDX-License-Identifier: Apache-2.0 */
#include "json/number.h"

#include <charconv>
#include <cmath>
#include <system_error>

/* Whether a number out of a double's range is so because it is small. Its size is told by where its first
 * digit other than zero stands, moved by the exponent; near the limits of the range that is never close to
 * zero. */
static bool is_small(const char *p, const char *end)
{
    long place = 0;
    bool seen = false, point = false;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = true;
        else if (*p != '-' && (seen || *p != '0'))
            seen = true, place += !point;
        else if (*p == '0')
            place -= point;
    }
    if (p == end)
        return place < 0;
    long exponent = 0;
    bool minus = *++p == '-';
    for (p += *p == '-' || *p == '+'; p < end && exponent < 10000000000L; p++)
        exponent = exponent * 10 + (*p - '0');
    return place + (minus ? -exponent : exponent) < 0;
}

bool json_number_read(const char *p, size_t n, double *ret)
{
    double v = 0;
    auto r = std::from_chars(p, p + n, v);
    if (r.ec == std::errc::result_out_of_range) {
        if (!is_small(p, p + n))
            return false;
        v = *p == '-' ? -0.0 : 0.0;
    } else if (r.ec != std::errc() || r.ptr != p + n) {
        return false;
    }
    *ret = v;
    return true;
}

size_t json_number_write(char *out, double v)
{
    /* 100000 rather than 1e+05: some readers want integers to look like integers. */
    std::to_chars_result r = v == std::trunc(v) && std::fabs(v) < 1e15
                                 ? std::to_chars(out, out + JSON_DOUBLE_MAX, v, std::chars_format::fixed)
                                 : std::to_chars(out, out + JSON_DOUBLE_MAX, v);
    return static_cast<size_t>(r.ptr - out);
}
