/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdlib.h>

#include "base/mem.h"
#include "demo.h"

enum { ROUNDS_MAX = 8 };

static const char usage[] = "rolter-demo: drives conversations through a gateway and tells what happened\n"
                            "\n"
                            "usage: rolter-demo --url URL --model NAME [--model NAME]... [options]\n"
                            "\n"
                            "      --url URL            the gateway, e.g. http://127.0.0.1:4000\n"
                            "      --model NAME         a route; several are compared, one after the other\n"
                            "      --conversations N    how many at once [14]\n"
                            "      --turns N            questions of each [6]\n"
                            "      --key KEY            a virtual key\n"
                            "      --endpoints          ask each endpoint once as well\n"
                            "  -h, --help\n"
                            "\n"
                            "Exit status: 0, or 1 when a request failed.\n";

unsigned demo_replica(struct demo *d, struct span name)
{
    for (unsigned i = 0; i < d->n_replicas; i++)
        if (span_eq(span_str(d->replicas[i]), name))
            return i;
    if (name.n == 0 || d->n_replicas == REPLICAS_MAX - 1)
        return REPLICAS_MAX - 1;
    d->replicas[d->n_replicas] = mem_spandup(name);
    return d->n_replicas++;
}

void demo_fields(const struct demo *d, struct buf *head)
{
    if (d->key)
        buf_printf(head, "Authorization: Bearer %s\r\n", d->key);
}

struct options {
    const char *models[ROUNDS_MAX];
    unsigned n_models;
    bool endpoints;
};

static bool read_count(const char *text, unsigned max, unsigned *ret)
{
    uint64_t v;
    if (!span_to_u64(span_str(text), &v) || v < 1 || v > max)
        return false;
    *ret = (unsigned)v;
    return true;
}

static bool read_option(struct demo *d, struct options *o, int c, const char *value)
{
    switch (c) {
    case 'u':
        d->url = value;
        return true;
    case 'm':
        if (o->n_models == ROUNDS_MAX)
            return false;
        o->models[o->n_models++] = value;
        return true;
    case 'c':
        return read_count(value, CONVERSATIONS_MAX, &d->conversations);
    case 't':
        return read_count(value, TURNS_MAX, &d->turns);
    case 'k':
        d->key = value;
        return true;
    case 'e':
        o->endpoints = true;
        return true;
    default:
        return false;
    }
}

/* Exit status, or -1 to go on. */
static int read_options(struct demo *d, struct options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"url", required_argument, NULL, 'u'},   {"model", required_argument, NULL, 'm'},
        {"turns", required_argument, NULL, 't'}, {"conversations", required_argument, NULL, 'c'},
        {"key", required_argument, NULL, 'k'},   {"endpoints", no_argument, NULL, 'e'},
        {"help", no_argument, NULL, 'h'},        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (!read_option(d, o, c, optarg)) {
            if (c != '?')
                fprintf(stderr, "rolter-demo: bad value: %s\n", optarg);
            return 2;
        }
    }
    const char *why = NULL;
    if (optind < argc || !d->url || o->n_models == 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (!origin_parse(span_str(d->url), &d->origin, &why)) {
        fprintf(stderr, "rolter-demo: %s: %s\n", d->url, why);
        return 2;
    }
    return -1;
}

static void run(struct demo *d, const struct options *o)
{
    struct round rounds[ROUNDS_MAX];
    CHECK_MSG(net_loop_init(&d->loop, 0) == 0, "cannot make an event loop");
    d->pool = pool_new(&d->loop, CONVERSATIONS_MAX, 30000);
    printf("%u conversations of %u turns through each route, all at once, three of four answers streamed\n\n",
           d->conversations, d->turns);
    fflush(stdout);
    for (unsigned i = 0; i < o->n_models; i++)
        round_run(d, &rounds[i], o->models[i]);
    report_print(d, rounds, o->n_models);
    for (unsigned i = 0; i < o->n_models; i++)
        round_fini(&rounds[i]);
    if (o->endpoints) {
        printf("\neach endpoint once\n\n");
        d->failed |= !doors_run(d, o->models[0]);
    }
    pool_free(d->pool);
    net_loop_fini(&d->loop);
}

int main(int argc, char **argv)
{
    struct demo d = {.conversations = 14, .turns = 6};
    struct options o = {0};
    int status = read_options(&d, &o, argc, argv);
    if (status >= 0)
        return status;
    run(&d, &o);
    while (d.n_replicas)
        MEM_FREE(d.replicas[--d.n_replicas]);
    origin_fini(&d.origin);
    return d.failed ? 1 : 0;
}
