/* SPDX-License-Identifier: Apache-2.0
 *
 * rolter-replay: a trace of requests through the pick code over a model, or to a live API.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "live.h"
#include "offline.h"
#include "progress.h"
#include "record.h"
#include "report.h"

enum { EXIT_BAD_USE = 2, OUTPUT_MAX = 1 << 30 };

static int complain(const char *what)
{
    fprintf(stderr, "rolter-replay: %s\n", what);
    return EXIT_FAILURE;
}

static void tell(void *arg, const char *text)
{
    (void)arg;
    complain(text);
}

/* Beside and renamed, so that nobody reads half of it. */
static bool write_file(const char *path, struct span text)
{
    if (strcmp(path, "-") == 0)
        return fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0;
    char *beside = mem_printf("%s.tmp", path);
    FILE *f = fopen(beside, "w");
    bool ok = f && fwrite(text.p, 1, text.n, f) == text.n;
    ok = (!f || fclose(f) == 0) && ok && rename(beside, path) == 0;
    if (!ok)
        fprintf(stderr, "rolter-replay: %s: %s\n", path, strerror(errno));
    free(beside);
    return ok;
}

static bool write_records(const struct report *r)
{
    FILE *f = fopen(r->o->record, "w");
    bool ok = f != NULL;
    for (unsigned i = 0; i < r->n && ok; i++)
        ok = record_write(f, &r->runs[i]);
    ok = (!f || fclose(f) == 0) && ok;
    if (!ok)
        fprintf(stderr, "rolter-replay: %s: %s\n", r->o->record, strerror(errno));
    return ok;
}

static int write_all(const struct report *r)
{
    struct buf json, page;
    bool ok = true;
    buf_init(&json, OUTPUT_MAX);
    buf_init(&page, OUTPUT_MAX);
    report_json(r, &json);
    if (r->o->json)
        ok = !json.full && write_file(r->o->json, buf_view(&json));
    if (r->o->html) {
        report_page(buf_view(&json), &page);
        ok = !page.full && write_file(r->o->html, buf_view(&page)) && ok;
    }
    if (r->o->record)
        ok = write_records(r) && ok;
    if (!r->o->json || strcmp(r->o->json, "-") != 0)
        report_table(r, stdout);
    buf_fini(&json);
    buf_fini(&page);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int unknown_strategy(const char *name)
{
    fprintf(stderr, "rolter-replay: no strategy %s; there are:", name);
    for (unsigned i = 0; offline_name(i); i++)
        fprintf(stderr, " %s", offline_name(i));
    fputs(" all ours\n", stderr);
    return EXIT_BAD_USE;
}

static int run_offline(const struct options *o, const struct trace *t)
{
    struct offline_item items[OFFLINE_ITEMS_MAX];
    unsigned n_items;
    char text[OPTIONS_ERROR_BYTES] = "";
    if (!offline_items(o->strategies, items, &n_items, text, sizeof text))
        return unknown_strategy(text);
    struct progress p;
    progress_begin(&p, isatty(STDERR_FILENO), clock_mono_ms());
    struct offline *f = offline_new(o, t);
    unsigned total = n_items * (o->follow ? 1 : o->n_blocks);
    struct run *runs = mem_array(total, sizeof *runs);
    struct report r = {.o = o, .trace = t, .runs = runs};
    int code = EXIT_SUCCESS;
    for (unsigned i = 0; i < total && code == EXIT_SUCCESS; i++) {
        const struct offline_item *item = &items[i % n_items];
        if (i >= n_items && offline_is_endless(item))
            continue; /* the same for all sizes */
        if (progress_is_due(&p, clock_mono_ms())) {
            snprintf(text, sizeof text, "run %u of %u: %s", i + 1, total, item->name);
            progress_show(&p, clock_mono_ms(), text);
        }
        if (!o->follow)
            offline_run(f, item, (uint32_t)o->blocks[i / n_items], &runs[r.n++]);
        else if (offline_follow(f, item, o->follow, &runs[r.n], text))
            r.n++;
        else
            code = complain(text);
    }
    progress_end(&p);
    if (code == EXIT_SUCCESS)
        code = write_all(&r);
    for (unsigned i = 0; i < r.n; i++)
        run_fini(&runs[i]);
    free(runs);
    offline_free(f);
    return code;
}

static int run_live(const struct options *o, const struct trace *t)
{
    struct run run;
    char error[OPTIONS_ERROR_BYTES] = "";
    bool was_stopped = false;
    if (!live_run(o, t, &run, &was_stopped, error))
        return complain(error);
    struct report r = {.o = o, .trace = t, .runs = &run, .n = 1, .was_stopped = was_stopped};
    int code = write_all(&r);
    if (code == EXIT_SUCCESS && run.ok == 0)
        code = complain("no request went well");
    run_fini(&run);
    return code;
}

int main(int argc, char **argv)
{
    struct options o;
    struct trace t;
    char error[OPTIONS_ERROR_BYTES] = "";
    int code = EXIT_SUCCESS;
    enum options_result read = options_read(&o, argc, argv, error);
    if (read == OPTIONS_HELP)
        options_help();
    else if (read == OPTIONS_VERSION)
        puts("rolter-replay " ROLTER_VERSION);
    else if (read == OPTIONS_BAD)
        fprintf(stderr, "rolter-replay: %s (--help lists the options)\n", error);
    if (read != OPTIONS_OK) {
        options_fini(&o);
        return read == OPTIONS_BAD ? EXIT_BAD_USE : EXIT_SUCCESS;
    }
    trace_init(&t, (uint32_t)o.block_tokens);
    if (!trace_read_file(&t, o.trace, o.limit, tell, NULL))
        code = EXIT_FAILURE;
    else if (t.skipped && !o.skip_bad)
        code = complain("the trace has bad lines; --skip-bad goes on without them");
    else if (t.n == 0)
        code = complain("the trace has no requests");
    else
        code = o.is_live ? run_live(&o, &t) : run_offline(&o, &t);
    trace_fini(&t);
    options_fini(&o);
    return code;
}
