/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/affinity.h"

#include <stdlib.h>

#include "base/mem.h"

void affinity_init(struct affinity *a, const struct balancer *b)
{
    a->index = b->prompts;
    prefix_limits_set(a->index, b->settings.limits);
    a->slot = mem_array(b->n, sizeof *a->slot);
    for (unsigned i = 0; i < b->n; i++)
        a->slot[i] = prefix_slot_get(a->index, target_identity(b->targets[i].target));
}

/* A few prompts at a time, since picks that help with it wait meanwhile. */
void affinity_tend(const struct affinity *a, const struct balancer *b)
{
    enum { AT_A_TIME = 64, TIMES = 256 };
    for (unsigned i = 0; i < b->n; i++)
        affinity_look(a, b, i);
    for (unsigned i = 0; i < TIMES && !prefix_tidy(a->index, AT_A_TIME); i++)
        ;
}

void affinity_fini(struct affinity *a, const struct balancer *b)
{
    for (unsigned i = 0; i < b->n; i++)
        prefix_slot_put(a->index, a->slot[i]);
    free(a->slot);
}
