/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include <stdlib.h>

#include "base/list.h"
#include "base/mem.h"

struct told {
    struct list node;
    uint64_t us;
    unsigned from;
    struct placement placement;
    uint64_t keys[];
};

/* One gateway's end. */
struct teller {
    struct exchange_of_placements *exchange;
    unsigned index;
};

struct exchange_of_placements {
    struct balancer *const *balancers;
    struct teller *tellers;
    unsigned n;
    uint64_t lag_us, now_us;
    struct list under_way; /* struct told, the oldest first */
};

static void on_placed(void *arg, const struct placement *p)
{
    struct teller *t = arg;
    struct told *x = mem_alloc(sizeof *x + p->n * sizeof *p->keys);
    *x = (struct told){.us = t->exchange->now_us, .from = t->index, .placement = *p};
    memcpy(x->keys, p->keys, p->n * sizeof *p->keys);
    x->placement.keys = x->keys;
    list_push(&t->exchange->under_way, &x->node);
}

struct exchange_of_placements *placements_share(struct balancer *const *balancers, unsigned n,
                                                uint64_t lag_us)
{
    struct exchange_of_placements *x = MEM_NEW(struct exchange_of_placements);
    x->balancers = balancers;
    x->n = n;
    x->lag_us = lag_us;
    x->tellers = mem_array(n, sizeof *x->tellers);
    list_init(&x->under_way);
    for (unsigned i = 0; i < n; i++) {
        x->tellers[i] = (struct teller){x, i};
        balance_set_sink(balancers[i], &(struct placement_sink){on_placed, &x->tellers[i]});
    }
    return x;
}

void placements_free(struct exchange_of_placements *x)
{
    if (!x)
        return;
    for (unsigned i = 0; i < x->n; i++)
        balance_set_sink(x->balancers[i], NULL);
    for (struct list *node; (node = list_pop(&x->under_way));)
        free(LIST_ITEM(node, struct told, node));
    free(x->tellers);
    free(x);
}

void placements_apply(struct exchange_of_placements *x, uint64_t now_us)
{
    x->now_us = now_us;
    while (!list_empty(&x->under_way)) {
        struct told *t = LIST_ITEM(x->under_way.next, struct told, node);
        if (now_us - t->us < x->lag_us)
            return;
        for (unsigned i = 0; i < x->n; i++)
            if (i != t->from)
                balance_place(x->balancers[i], &t->placement);
        list_remove(&t->node);
        free(t);
    }
}
