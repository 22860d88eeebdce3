/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "demo.h"

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The smallest time that <share> of all streams did not exceed, in milliseconds. */
static double first_ms(const struct round *r, double share)
{
    if (r->n_first == 0)
        return 0;
    size_t rank = (size_t)(share * r->n_first + 0.999999);
    return (double)r->first_us[rank ? rank - 1 : 0] / 1000;
}

/* Indexes of the replicas in the order of their names. */
static void order_by_name(const struct demo *d, unsigned *ret)
{
    for (unsigned i = 0; i < d->n_replicas; i++) {
        unsigned at = i;
        for (; at > 0 && strcmp(d->replicas[ret[at - 1]], d->replicas[i]) > 0; at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
    }
}

static void print_round(struct demo *d, struct round *r, const unsigned *order, int width)
{
    qsort(r->first_us, r->n_first, sizeof *r->first_us, by_time);
    printf("  %-*s %8u %6u ", width, r->model, r->requests, r->failures);
    for (unsigned i = 0; i < d->n_replicas; i++)
        printf(" %9u", r->by_replica[order[i]]);
    double cached = r->prompt_tokens ? 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens : 0;
    printf(" %6u/%-3u %6.1f %%  %6.0f ms %6.0f ms %6.1f s\n", r->stayed, d->conversations, cached,
           first_ms(r, 0.5), first_ms(r, 0.99), (double)(r->ended_us - r->begun_us) / 1e6);
}

void report_print(struct demo *d, struct round *rounds, unsigned n)
{
    int width = 5;
    unsigned order[REPLICAS_MAX];
    order_by_name(d, order);
    for (unsigned i = 0; i < n; i++)
        width = (int)strlen(rounds[i].model) > width ? (int)strlen(rounds[i].model) : width;
    printf("  %-*s requests failed ", width, "route");
    for (unsigned i = 0; i < d->n_replicas; i++)
        printf(" %9.9s", d->replicas[order[i]]);
    printf("  at home   cached  first token p50, p99     took\n");
    for (unsigned i = 0; i < n; i++)
        print_round(d, &rounds[i], order, width);
    for (unsigned i = 0; i < n; i++)
        if (rounds[i].failures)
            printf("  %s failed first in %s\n", rounds[i].model, rounds[i].failure);
    printf("\n"
           "  at home: conversations that one replica served from beginning to end\n"
           "  cached:  prompt tokens that the replicas found in their KV cache instead of computing them\n");
}
