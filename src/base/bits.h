/* SPDX-License-Identifier: Apache-2.0
 *
 * A double as the 64 bits that an atomic holds, and back.
 */
#ifndef ROLTER_BASE_BITS_H
#define ROLTER_BASE_BITS_H

#include <stdint.h>
#include <string.h>

static inline double bits_to_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint64_t double_to_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

#endif
