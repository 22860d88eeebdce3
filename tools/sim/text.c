/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include "base/hash.h"

void text_write(char *out, uint64_t seed, size_t from, size_t to)
{
    static const char consonants[16] = "bdfghjklmnprstvz";
    static const char vowels[8] = "aeiouaeo";
    for (size_t i = from; i < to; i++, out += TOKEN_BYTES) {
        uint64_t x = hash_mix(seed, i);
        char a = consonants[x & 15], b = vowels[x >> 4 & 7], c = consonants[x >> 7 & 15];
        out[0] = i ? ' ' : (char)(consonants[x >> 11 & 15] - 'a' + 'A');
        out[1] = i ? a : vowels[x >> 15 & 7];
        out[2] = i ? b : a;
        out[3] = i ? c : b;
    }
}
