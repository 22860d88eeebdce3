/* SPDX-License-Identifier: Apache-2.0
 *
 * A list that is accepted can be written out again and then reads as the same numbers; what is refused leaves
 * the count alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "gateway/token_ids.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_of((const char *)data, size);
    size_t most = 1, n = 0, again_n = 0, at = 0;
    for (size_t i = 0; i < size; i++)
        most += data[i] == ',';
    uint32_t *out = malloc(most * sizeof *out), *again = malloc(most * sizeof *again);
    char *written = malloc(most * 11 + 1);
    CHECK(out && again && written);
    if (token_ids_parse(text, out, &n)) {
        CHECK(n == most);
        for (size_t i = 0; i < n; i++)
            at += (size_t)sprintf(written + at, "%s%u", i ? "," : "", out[i]);
        CHECK(token_ids_parse(span_of(written, at), again, &again_n) && again_n == n);
        CHECK(memcmp(out, again, n * sizeof *out) == 0);
    } else {
        CHECK(n == 0);
    }
    free(out);
    free(again);
    free(written);
    return 0;
}
