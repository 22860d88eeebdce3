/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/engine_metrics.h"

#include <math.h>

#include "base/check.h"
#include "signals/prometheus.h"

enum slot { RUNNING, WAITING, KV_USAGE, START_TIME, GENERATION_RATE, CACHE_TOKENS, HOST_TOKENS, SLOTS };

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
    {"sglang:max_total_num_tokens", CACHE_TOKENS, true}, /* each rank of a model tells all of it */
    {"sglang:hicache_host_total_tokens", HOST_TOKENS, true},
};

static const char cache_config[] = "vllm:cache_config_info";

bool engine_metrics_parse(struct span text, struct engine_metrics *ret)
{
    double found[ARRAY_LEN(known)], cache_blocks = NAN, block_tokens = NAN;
    for (size_t k = 0; k < ARRAY_LEN(known); k++)
        found[k] = NAN;
    bool any = false;
    for (struct prometheus_sample x; prometheus_next(&text, &x);) {
        if (span_eq(x.name, SPAN(cache_config))) {
            prometheus_label_number(x.labels, SPAN("num_gpu_blocks=\""), &cache_blocks);
            prometheus_label_number(x.labels, SPAN("block_size=\""), &block_tokens);
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(known) && isfinite(x.value); k++) {
            if (!span_eq(x.name, span_str(known[k].name)))
                continue;
            any = true;
            if (isnan(found[k]))
                found[k] = x.value;
            else
                found[k] = known[k].largest ? fmax(found[k], x.value) : found[k] + x.value;
            break;
        }
    }
    if (!any)
        return false;
    double slots[SLOTS] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    for (size_t k = 0; k < ARRAY_LEN(known); k++)
        if (isnan(slots[known[k].slot]))
            slots[known[k].slot] = found[k];
    /* The tier in the host's memory has copies of the device's, so the larger one is what there is. fmax
     * leaves out what is not known. */
    if (isnan(cache_blocks) && isfinite(slots[CACHE_TOKENS])) {
        cache_blocks = fmax(slots[CACHE_TOKENS], slots[HOST_TOKENS]);
        block_tokens = 1;
    }
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
