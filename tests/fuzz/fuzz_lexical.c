/* SPDX-License-Identifier: Apache-2.0
 *
 * Any two texts have signatures within their bound that are compared alike both ways, and a text agrees with
 * itself; any bytes may be given as a signature. The input: two texts with a NUL between them.
 */
#include <stdlib.h>

#include "base/check.h"
#include "cache/lexical.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul ? (size_t)(nul - data) : size;
    struct span a = span_of((const char *)data, n);
    struct span b = nul ? span_of((const char *)nul + 1, size - n - 1) : a;
    struct arena arena;
    arena_init(&arena, NULL);
    struct span x = lexical_signature(a, &arena), y = lexical_signature(b, &arena);
    CHECK(x.n <= LEXICAL_SIGNATURE_MAX && y.n <= LEXICAL_SIGNATURE_MAX);
    CHECK((lexical_differ(x, y) == NULL) == (lexical_differ(y, x) == NULL));
    CHECK(lexical_differ(x, x) == NULL);
    struct span copy = arena_dup(&arena, x); /* equal bytes somewhere else */
    CHECK(lexical_differ(x, copy) == NULL);
    (void)lexical_differ(a, b);
    (void)lexical_differ(x, b);
    arena_reset(&arena);
    return 0;
}
