/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <math.h>

#include "json/write.h"
#include "page_html.h"

static const char *const kinds[] = {
    [RUN_STRATEGY] = "strategy", [RUN_RULE] = "rule", [RUN_BOUND] = "bound", [RUN_LIVE] = "live"};

enum { LATE_MS = 100 }; /* what is worth a word */

/* The table */

static void cell(FILE *to, int width, int digits, double v)
{
    if (isnan(v))
        fprintf(to, "  %*s", width, "-");
    else
        fprintf(to, "  %*.*f", width, digits, v);
}

static void table_row(const struct report *r, const struct run *run, FILE *to)
{
    fprintf(to, "%-17s", run->strategy);
    if (run->blocks)
        fprintf(to, "  %8llu", (unsigned long long)run->blocks);
    else
        fprintf(to, "  %8s", "-");
    cell(to, 6, 2, r->o->follow ? NAN : 100 * run->hit_share);
    cell(to, 8, 3, run->ttft_mean_ms / 1000);
    cell(to, 8, 3, run->ttft_p50_ms / 1000);
    cell(to, 8, 3, run->ttft_p99_ms / 1000);
    cell(to, 7, 3, r->o->follow ? NAN : run->busiest);
    if (r->o->follow)
        fprintf(to, "  %7.2f", run->compared ? 100.0 * (double)run->agreed / (double)run->compared : 0);
    else
        fprintf(to, "  %7zu", run->errors);
    fprintf(to, "  %7.2f\n", run->took_ms / 1000);
}

void report_table(const struct report *r, FILE *to)
{
    const struct trace *t = r->trace;
    fprintf(to, "%s: %zu requests, %llu input tokens", r->o->trace, t->n,
            (unsigned long long)t->input_tokens);
    if (t->skipped)
        fprintf(to, ", %zu lines left out", t->skipped);
    if (r->was_stopped)
        fprintf(to, "; stopped before the end");
    fprintf(to, "\n%-17s  %8s  %6s  %8s  %8s  %8s  %7s  %7s  %7s\n", "", "blocks", "hits %", "mean s",
            "p50 s", "p99 s", "busiest", r->o->follow ? "agree %" : "errors", "took s");
    for (unsigned i = 0; i < r->n; i++)
        table_row(r, &r->runs[i], to);
    if (r->o->is_live && r->runs[0].unreported)
        fprintf(to, "%zu replies said nothing of cached tokens: they count as misses\n",
                r->runs[0].unreported);
    if (r->o->is_live && r->runs[0].late_max_ms > LATE_MS)
        fprintf(to, "requests were sent up to %.0f ms late: this machine was too slow for the speed\n",
                r->runs[0].late_max_ms);
    for (unsigned i = 0; i < r->n && !r->o->follow; i++)
        for (unsigned k = 0; k < r->runs[i].n_error_kinds; k++)
            fprintf(to, "%s: %zu x %s\n", r->runs[i].strategy, r->runs[i].error_kinds[k].n,
                    r->runs[i].error_kinds[k].what);
}

/* JSON */

/* Figures need no more than six digits; shorter files, and no noise behind them. */
static double rounded(double v)
{
    if (!isfinite(v) || v == 0)
        return v;
    double scale = pow(10, 5 - floor(log10(fabs(v))));
    return scale >= 1 && isfinite(scale) ? round(v * scale) / scale : v;
}

static void member(struct json_out *o, const char *name, double v)
{
    json_out_member_double(o, name, rounded(v));
}

static void json_trace(struct json_out *o, const struct report *r)
{
    const struct trace *t = r->trace;
    json_out_name(o, "trace");
    json_out_object(o);
    json_out_member_str(o, "file", r->o->trace);
    json_out_member_u64(o, "requests", t->n);
    json_out_member_u64(o, "lines", t->lines);
    json_out_member_u64(o, "skipped_lines", t->skipped);
    member(o, "span_ms", t->n ? (double)(t->requests[t->n - 1].at_us - t->requests[0].at_us) / 1000 : 0);
    json_out_member_u64(o, "input_tokens", t->input_tokens);
    json_out_member_u64(o, "output_tokens", t->output_tokens);
    json_out_member_u64(o, "block_tokens", t->block_tokens);
    json_out_member_u64(o, "blocks", t->n_blocks);
    json_out_member_u64(o, "distinct_blocks", t->n_ids);
    json_out_object_end(o);
}

/* Not the key. */
static void json_settings(struct json_out *o, const struct options *s)
{
    json_out_name(o, "settings");
    json_out_object(o);
    json_out_member_double(o, "speed", s->speed);
    json_out_member_u64(o, "limit", s->limit);
    json_out_member_u64(o, "scale", s->scale);
    if (s->is_live) {
        json_out_member_str(o, "url", s->url);
        json_out_member_str(o, "model", s->model);
        json_out_member_u64(o, "max_output", s->max_output);
        json_out_member_double(o, "gap_ms", s->gap_ms);
    } else {
        json_out_member_u64(o, "replicas", s->replicas);
        json_out_member_u64(o, "gateways", s->gateways);
        if (s->sync_lag_ms >= 0)
            json_out_member_double(o, "sync_lag_ms", s->sync_lag_ms);
        json_out_member_double(o, "prefill_tps", s->prefill_tps);
        json_out_member_double(o, "decode_ms", s->decode_ms);
        json_out_member_double(o, "threshold", s->threshold);
        json_out_member_u64(o, "balance_abs", s->balance_abs);
        json_out_member_double(o, "balance_rel", s->balance_rel);
        json_out_member_double(o, "miss_weight", s->miss_weight);
        json_out_member_double(o, "home_bonus", s->home_bonus);
        json_out_member_u64(o, "seed", s->seed);
        json_out_member_str(o, "follow", s->follow);
    }
    json_out_object_end(o);
}

static void json_ttft(struct json_out *o, const struct run *run)
{
    json_out_name(o, "ttft_ms");
    json_out_object(o);
    member(o, "mean", run->ttft_mean_ms);
    member(o, "p50", run->ttft_p50_ms);
    member(o, "p90", run->ttft_p90_ms);
    member(o, "p99", run->ttft_p99_ms);
    member(o, "max", run->ttft_max_ms);
    json_out_name(o, "quantiles");
    json_out_array(o);
    for (unsigned i = 0; i < RUN_POINTS && !isnan(run->ttft_mean_ms); i++) {
        json_out_array(o);
        json_out_double(o, run_point_quantile(i));
        json_out_double(o, rounded(run->points[i]));
        json_out_array_end(o);
    }
    json_out_array_end(o);
    json_out_object_end(o);
}

static void json_replicas(struct json_out *o, const struct run *run)
{
    json_out_name(o, "replicas");
    json_out_array(o);
    for (unsigned i = 0; i < run->n_replicas; i++) {
        const struct run_replica *at = &run->replicas[i];
        json_out_object(o);
        json_out_member_str(o, "name", at->name);
        json_out_member_u64(o, "requests", at->requests);
        json_out_member_u64(o, "input_tokens", at->input);
        json_out_member_u64(o, "work_tokens", at->work);
        json_out_name(o, "in_flight");
        json_out_array(o);
        for (unsigned b = 0; b < RUN_BINS; b++)
            json_out_double(o, round(run->load[(size_t)i * RUN_BINS + b] * 100.0) / 100);
        json_out_array_end(o);
        json_out_object_end(o);
    }
    json_out_array_end(o);
}

static void json_run(struct json_out *o, const struct report *r, const struct run *run)
{
    json_out_object(o);
    json_out_member_str(o, "strategy", run->strategy);
    json_out_member_str(o, "kind", kinds[run->kind]);
    json_out_name(o, "blocks");
    run->blocks ? json_out_u64(o, run->blocks) : json_out_null(o);
    json_out_member_u64(o, "requests", run->kind == RUN_BOUND ? r->trace->n : run->n);
    json_out_member_u64(o, "errors", run->errors);
    json_out_name(o, "error_kinds");
    json_out_object(o);
    for (unsigned i = 0; i < run->n_error_kinds; i++)
        json_out_member_u64(o, run->error_kinds[i].what, run->error_kinds[i].n);
    json_out_object_end(o);
    json_out_member_u64(o, "input_tokens", run->input);
    json_out_member_u64(o, "hit_tokens", run->hit);
    member(o, "hit_rate", run->hit_share);
    json_ttft(o, run);
    member(o, "busiest_to_mean", run->busiest);
    if (r->o->follow) {
        json_out_member_u64(o, "picks_compared", run->compared);
        json_out_member_u64(o, "picks_agreed", run->agreed);
        json_out_member_u64(o, "picks_agreed_without_slack", run->agreed_at_once);
    }
    if (r->o->is_live) {
        json_out_member_u64(o, "without_cached_tokens", run->unreported);
        member(o, "sent_late_max_ms", run->late_max_ms);
    }
    member(o, "took_ms", run->took_ms);
    member(o, "bin_ms", run->bin_ms);
    json_replicas(o, run);
    json_out_object_end(o);
}

void report_json(const struct report *r, struct buf *ret)
{
    struct json_out o;
    json_out_init(&o, ret);
    json_out_object(&o);
    json_out_member_str(&o, "tool", "rolter-replay");
    json_out_member_str(&o, "version", ROLTER_VERSION);
    json_out_member_str(&o, "mode", r->o->is_live ? "live" : r->o->follow ? "follow" : "offline");
    json_out_member_bool(&o, "stopped", r->was_stopped);
    json_trace(&o, r);
    json_settings(&o, r->o);
    json_out_name(&o, "runs");
    json_out_array(&o);
    for (unsigned i = 0; i < r->n; i++)
        json_run(&o, r, &r->runs[i]);
    json_out_array_end(&o);
    json_out_object_end(&o);
    buf_add_char(ret, '\n');
}

/* The page: a fixed text with the JSON in its middle. */
void report_page(struct span json, struct buf *ret)
{
    struct span page = span_of((const char *)page_html, sizeof page_html - 1), mark = SPAN("@@DATA@@");
    size_t at = (size_t)span_find(page, mark);
    buf_add(ret, page.p, at);
    /* Inside of a script element nothing but "<" could end it. */
    for (size_t i = 0; i < json.n; i++)
        if (json.p[i] == '<')
            BUF_LIT(ret, "\\u003c");
        else
            buf_add_char(ret, json.p[i]);
    buf_add(ret, page.p + at + mark.n, page.n - at - mark.n);
}
