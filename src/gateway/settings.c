/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/settings.h"

#include <stdlib.h>

void settings_free(struct settings *s)
{
    if (!s)
        return;
    arena_reset(&s->arena);
    free(s);
}
