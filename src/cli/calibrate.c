/* SPDX-License-Identifier: Apache-2.0
 *
 * rolter semantic-calibrate: which threshold a file of labelled pairs asks for. Similarities stand in the
 * file, or a provider of embeddings is asked for the texts.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cache/calibration.h"
#include "cache/embedding.h"
#include "cli/commands.h"
#include "net/call.h"

static const char usage[] =
    "usage: rolter semantic-calibrate [options] PAIRS.csv\n"
    "\n"
    "PAIRS.csv has a head line with the columns a, b (two requests), same (1: one answer serves both; 0: it "
    "does\n"
    "not) and optionally similarity (their cosine). Without it the embeddings are asked for.\n"
    "\n"
    "options\n"
    "      --error SHARE       wrong hits that are borne, of all hits (default 0.02)\n"
    "      --url URL           API base of the provider: http://host:port[/v1]\n"
    "      --model MODEL       embedding model\n"
    "      --api-key-env NAME  environment variable with the provider's key\n"
    "      --timeout-ms MS     for one embedding (default 10000)\n"
    "      --csv FILE          writes the pairs with their similarities and what the guard says\n"
    "  -h, --help\n";

enum { AT_A_TIME = 8, FILE_MAX = 256 << 20, REPLY_MAX = 4 << 20 };

struct options {
    double error;
    const char *url, *model, *key_env, *csv;
    unsigned timeout_ms;
};

/* The texts that are asked for, each on its way or done. */
struct asking {
    const struct options *o;
    struct net_loop loop;
    struct pool *pool;
    struct net_origin origin;
    struct buf path, headers;
    struct labelled_pairs *pairs;
    struct embedding **vector; /* two for each pair */
    size_t next, open, failed;
    char why[160];
};

struct question {
    struct asking *all;
    size_t which;
};

static void ask_more(struct asking *a);

static void on_reply(struct call *c, void *arg, const struct call_reply *r)
{
    (void)c;
    struct question *q = arg;
    struct asking *a = q->all;
    uint64_t tokens;
    const char *why = NULL;
    if (r->failed)
        why = r->timed_out ? "timeout" : exchange_fail_name(r->why);
    else if (r->status != 200)
        snprintf(a->why, sizeof(a->why), "status %d: %.*s", r->status, r->body.n < 100 ? (int)r->body.n : 100,
                 r->body.p);
    else
        a->vector[q->which] = embedding_read(r->body, &tokens, &why);
    if (why)
        snprintf(a->why, sizeof(a->why), "%s", why);
    a->failed += !a->vector[q->which];
    a->open--;
    free(q);
    ask_more(a);
    if (a->open == 0)
        net_loop_stop(&a->loop);
}

static void ask_more(struct asking *a)
{
    while (a->open < AT_A_TIME && a->next < 2 * a->pairs->n && !a->failed) {
        const struct labelled_pair *l = &a->pairs->at[a->next / 2];
        struct question *q = MEM_NEW(struct question);
        struct buf body;
        buf_init(&body, SIZE_MAX);
        embedding_write_request(&body, span_str(a->o->model), a->next % 2 ? l->b : l->a);
        *q = (struct question){a, a->next++};
        a->open++;
        call_start(a->pool,
                   &(struct call_request){.origin = &a->origin,
                                          .method = "POST",
                                          .path = buf_view(&a->path),
                                          .headers = buf_view(&a->headers),
                                          .body = buf_view(&body),
                                          .timeout_ms = a->o->timeout_ms,
                                          .max_reply_bytes = REPLY_MAX},
                   on_reply, q);
        buf_fini(&body);
    }
}

static double cosine(const struct embedding *x, const struct embedding *y)
{
    double xy = 0, xx = 0, yy = 0;
    for (unsigned i = 0; i < x->dims && i < y->dims; i++) {
        xy += (double)x->x[i] * y->x[i];
        xx += (double)x->x[i] * x->x[i];
        yy += (double)y->x[i] * y->x[i];
    }
    return x->dims == y->dims ? xy / sqrt(xx * yy) : -1;
}

static bool ends_in_v1(const char *base)
{
    size_t n = strlen(base);
    return n >= 3 && strcmp(base + n - 3, "/v1") == 0;
}

/* Fills in the similarities. False with a message. */
static bool ask_provider(const struct options *o, struct labelled_pairs *p)
{
    struct asking a = {.o = o, .pairs = p};
    const char *why;
    if (!o->url || !o->model) {
        fprintf(stderr, "rolter: the file has no similarities: --url and --model say who embeds the texts\n");
        return false;
    }
    if (!origin_parse(span_str(o->url), &a.origin, &why)) {
        fprintf(stderr, "rolter: --url: %s\n", why);
        return false;
    }
    a.origin.verify = true;
    origin_seal(&a.origin);
    buf_init(&a.path, 4096);
    buf_init(&a.headers, 65536);
    buf_printf(&a.path, "%s%s/embeddings", a.origin.base_path, ends_in_v1(a.origin.base_path) ? "" : "/v1");
    BUF_LIT(&a.headers, "content-type: application/json\r\naccept: application/json\r\n");
    const char *key = o->key_env ? getenv(o->key_env) : NULL;
    if (key)
        buf_printf(&a.headers, "authorization: Bearer %s\r\n", key);
    a.vector = mem_array(2 * p->n + 1, sizeof(struct embedding *));
    CHECK(net_loop_init(&a.loop, 0) == 0);
    a.pool = pool_new(&a.loop, AT_A_TIME, 30000);
    ask_more(&a);
    if (a.open)
        net_loop_run(&a.loop);
    for (size_t i = 0; i < p->n && !a.failed; i++) {
        p->at[i].similarity = cosine(a.vector[2 * i], a.vector[2 * i + 1]);
        p->at[i].has_similarity = true;
    }
    for (size_t i = 0; i < 2 * p->n; i++)
        embedding_unref(a.vector[i]);
    free(a.vector);
    pool_free(a.pool);
    net_loop_fini(&a.loop);
    buf_fini(&a.path);
    buf_fini(&a.headers);
    origin_fini(&a.origin);
    if (a.failed)
        fprintf(stderr, "rolter: no embedding: %s\n", a.why);
    return !a.failed;
}

static bool read_file(const char *path, struct buf *ret)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return false;
    }
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof(block), f)) > 0;)
        buf_add(ret, block, n);
    bool ok = !ferror(f) && !ret->full;
    fclose(f);
    if (!ok)
        fprintf(stderr, "%s: cannot be read, or is too large\n", path);
    return ok;
}

static void put_quoted(FILE *f, struct span s)
{
    fputc('"', f);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '"')
            fputc('"', f);
        fputc(s.p[i], f);
    }
    fputc('"', f);
}

static bool write_pairs(const char *path, const struct labelled_pairs *p)
{
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        return false;
    }
    fputs("a,b,same,similarity,guard\n", f);
    for (size_t i = 0; i < p->n; i++) {
        put_quoted(f, p->at[i].a);
        fputc(',', f);
        put_quoted(f, p->at[i].b);
        fprintf(f, ",%d,%.6f,%s\n", p->at[i].same, p->at[i].similarity,
                p->at[i].differ ? p->at[i].differ : "");
    }
    return fclose(f) == 0;
}

static bool lacks_similarities(const struct labelled_pairs *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->at[i].has_similarity)
            return true;
    return false;
}

static int run(const struct options *o, const char *path)
{
    struct buf file, out;
    struct arena arena;
    struct labelled_pairs pairs;
    char why[256];
    int status = 1;
    arena_init(&arena, NULL);
    buf_init(&file, FILE_MAX);
    buf_init(&out, 1 << 20);
    if (!read_file(path, &file)) {
        /* said already */
    } else if (!labelled_pairs_read(buf_view(&file), &arena, &pairs, why)) {
        fprintf(stderr, "%s: %s\n", path, why);
    } else {
        if (!lacks_similarities(&pairs) || ask_provider(o, &pairs)) {
            calibration_print(&pairs, o->error, &out);
            fwrite(out.p, 1, out.n, stdout);
            status = o->csv && !write_pairs(o->csv, &pairs);
        }
        labelled_pairs_fini(&pairs);
    }
    buf_fini(&file);
    buf_fini(&out);
    arena_reset(&arena);
    return status;
}

int cli_calibrate(int argc, char **argv)
{
    enum { OPT_ERROR = 256, OPT_URL, OPT_MODEL, OPT_KEY, OPT_TIMEOUT, OPT_CSV };
    static const struct option longs[] = {{"error", required_argument, NULL, OPT_ERROR},
                                          {"url", required_argument, NULL, OPT_URL},
                                          {"model", required_argument, NULL, OPT_MODEL},
                                          {"api-key-env", required_argument, NULL, OPT_KEY},
                                          {"timeout-ms", required_argument, NULL, OPT_TIMEOUT},
                                          {"csv", required_argument, NULL, OPT_CSV},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct options o = {.error = 0.02, .timeout_ms = 10000};
    uint64_t ms;
    char *end;
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        switch (c) {
        case OPT_ERROR:
            o.error = strtod(optarg, &end);
            if (*end || !(o.error >= 0 && o.error <= 1)) {
                fprintf(stderr, "rolter: --error is a share, 0 to 1\n");
                return 2;
            }
            break;
        case OPT_URL:
            o.url = optarg;
            break;
        case OPT_MODEL:
            o.model = optarg;
            break;
        case OPT_KEY:
            o.key_env = optarg;
            break;
        case OPT_CSV:
            o.csv = optarg;
            break;
        case OPT_TIMEOUT:
            if (!span_to_u64(span_str(optarg), &ms) || ms == 0 || ms > UINT32_MAX) {
                fprintf(stderr, "rolter: --timeout-ms is a number above 0\n");
                return 2;
            }
            o.timeout_ms = (unsigned)ms;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        return 2;
    }
    return run(&o, argv[optind]);
}
