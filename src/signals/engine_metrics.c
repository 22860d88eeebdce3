/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/engine_metrics.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

enum slot { RUNNING, WAITING, KV_USAGE, START_TIME, GENERATION_RATE, SLOTS };

/* Per slot, best name first. */
static const struct {
    const char *name;
    enum slot slot;
    bool largest; /* of several label sets the largest counts, not the sum */
} known[] = {
    {"vllm:num_requests_running", RUNNING, false},
    {"sglang:num_running_reqs", RUNNING, false},
    {"num_requests_running", RUNNING, false},
    {"tgi_batch_current_size", RUNNING, false},
    {"vllm:num_requests_waiting", WAITING, false},
    {"sglang:num_queue_reqs", WAITING, false},
    {"num_requests_waiting", WAITING, false},
    {"tgi_queue_size", WAITING, false},
    {"vllm:kv_cache_usage_perc", KV_USAGE, true},
    {"vllm:gpu_cache_usage_perc", KV_USAGE, true},
    {"sglang:token_usage", KV_USAGE, true},
    {"process_start_time_seconds", START_TIME, true},
    {"vllm:avg_generation_throughput_toks_per_s", GENERATION_RATE, false},
    {"sglang:gen_throughput", GENERATION_RATE, false},
};

static const char cache_config[] = "vllm:cache_config_info";

static bool to_double(struct span s, double *ret)
{
    char text[64], *end;
    s = span_trim(s);
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    double v = strtod(text, &end);
    if (*end || !isfinite(v))
        return false;
    *ret = v;
    return true;
}

/* Splits "name{labels} value timestamp". Label values may hold escaped quotes and braces. */
static bool split_sample(struct span line, struct span *name, struct span *labels, struct span *value)
{
    size_t i = 0;
    while (i < line.n && line.p[i] != '{' && line.p[i] != ' ' && line.p[i] != '\t')
        i++;
    *name = span_of(line.p, i);
    *labels = SPAN_NONE;
    if (i < line.n && line.p[i] == '{') {
        size_t from = ++i;
        bool quoted = false;
        for (; i < line.n && (quoted || line.p[i] != '}'); i++) {
            if (quoted && line.p[i] == '\\')
                i++;
            else if (line.p[i] == '"')
                quoted = !quoted;
        }
        if (i >= line.n)
            return false;
        *labels = span_of(line.p + from, i - from);
        i++;
    }
    struct span rest = span_trim(span_of(line.p + i, line.n - i));
    return span_split(&rest, ' ', value) && value->n > 0;
}

static bool label_number(struct span labels, struct span name, double *ret)
{
    ptrdiff_t at = span_find(labels, name);
    if (at < 0)
        return false;
    struct span rest = span_of(labels.p + at + name.n, labels.n - (size_t)at - name.n), part;
    return span_split(&rest, '"', &part) && to_double(part, ret);
}

bool engine_metrics_parse(struct span text, struct engine_metrics *ret)
{
    double found[ARRAY_LEN(known)], cache_blocks = NAN, block_tokens = NAN;
    for (size_t k = 0; k < ARRAY_LEN(known); k++)
        found[k] = NAN;
    bool any = false;
    for (struct span line; span_split(&text, '\n', &line);) {
        struct span name, labels, value;
        double v;
        if (line.n == 0 || line.p[0] == '#' || !split_sample(line, &name, &labels, &value))
            continue;
        if (span_eq(name, SPAN(cache_config))) {
            label_number(labels, SPAN("num_gpu_blocks=\""), &cache_blocks);
            label_number(labels, SPAN("block_size=\""), &block_tokens);
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(known); k++) {
            if (!span_eq(name, span_str(known[k].name)) || !to_double(value, &v))
                continue;
            any = true;
            if (isnan(found[k]))
                found[k] = v;
            else
                found[k] = known[k].largest ? fmax(found[k], v) : found[k] + v;
            break;
        }
    }
    if (!any)
        return false;
    double slots[SLOTS] = {NAN, NAN, NAN, NAN, NAN};
    for (size_t k = 0; k < ARRAY_LEN(known); k++)
        if (isnan(slots[known[k].slot]))
            slots[known[k].slot] = found[k];
    *ret = (struct engine_metrics){
        .running = slots[RUNNING],
        .waiting = slots[WAITING],
        .kv_usage = slots[KV_USAGE],
        .start_time_secs = slots[START_TIME],
        .generation_tokens_per_sec = slots[GENERATION_RATE],
        .cache_blocks = cache_blocks,
        .block_tokens = block_tokens,
    };
    return true;
}
