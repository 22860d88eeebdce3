/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>

#include "base/check.h"
#include "base/span.h"

void other_parse(struct span text);

void other_parse(struct span text)
{
    json_t *v = json_loadb(text.p, text.n, 0, NULL);
    CHECK(v != NULL);
    json_decref(v);
}
