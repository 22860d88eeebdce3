/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum kind { TEXT, NAMES, COUNT, POSITIVE, STATUS, NUMBER, RATE, FLAG };

struct row {
    const char *name;
    enum kind kind;
    bool is_fault;
    size_t at;
    const char *value; /* in the help */
    const char *fallback;
    const char *help;
};

#define AT(member) offsetof(struct sim_options, member)
static const struct row table[] = {
    {"listen", TEXT, false, AT(listen), "HOST:PORT", "127.0.0.1:0",
     "where to listen; port 0: the kernel chooses"},
    {"port-file", TEXT, false, AT(port_file), "FILE", NULL, "write the port there when ready"},
    {"name", TEXT, false, AT(name), "NAME", "sim",
     "this replica's name, in x-sim-name and system_fingerprint"},
    {"model", NAMES, false, AT(models), "NAME", NULL,
     "a model that is served (may repeat); without it any model is"},
    {"lora", NAMES, false, AT(loras), "NAME", NULL, "an adapter that is served, too (may repeat)"},
    {"api-key", TEXT, false, AT(api_key), "KEY", NULL, "ask for this key on /v1"},
    {"block-size", POSITIVE, false, AT(block_size), "N", "16", "tokens of a cache block"},
    {"blocks", POSITIVE, true, AT(blocks), "N", "4096", "blocks of the cache"},
    {"max-model-len", COUNT, false, AT(max_model_len), "N", "0",
     "tokens of prompt and reply; 0: what the cache holds"},
    {"prefill-tps", NUMBER, false, AT(prefill_tps), "N", "8000",
     "prefill, tokens a second; 0: infinitely fast"},
    {"decode-tps", NUMBER, false, AT(decode_tps), "N", "50",
     "decode, tokens a second and request; 0: infinitely fast"},
    {"max-running", POSITIVE, false, AT(max_running), "N", "64", "requests that run side by side"},
    {"max-waiting", COUNT, false, AT(max_waiting), "N", "0", "requests that wait; over it: 503; 0: no limit"},
    {"tokens", POSITIVE, false, AT(tokens), "N", "16", "length of a reply when it is not cut by max_tokens"},
    {"seed", COUNT, false, AT(seed), "N", "1", "of the random faults"},
    {"record", COUNT, false, AT(record), "N", "0", "keep the last N requests for GET /sim/requests"},
    {"events", TEXT, false, AT(events), "ENDPOINT", NULL,
     "publish KV events there: tcp://127.0.0.1:* binds a free port, tcp://HOST:PORT connects"},
    {"events-replay", TEXT, false, AT(events_replay), "ENDPOINT", NULL, "replay of KV events"},
    {"events-topic", TEXT, false, AT(events_topic), "TEXT", "", "their topic"},
    {"events-format", TEXT, false, AT(events_format), "NAME", "vllm-map",
     "vllm-map (0.24 and later), vllm-array (0.21 to 0.23), sglang-map, sglang-array"},
    {"events-hash-bytes", FLAG, false, AT(events_hash_bytes), "", "false", "block hashes as 32 bytes"},
    {"events-replay-topic", FLAG, false, AT(events_replay_topic), "", "false",
     "replays have the topic frame (vLLM 0.26 and later)"},
    {"events-rank", COUNT, false, AT(events_rank), "N", "0", "data-parallel rank that events tell"},
    {"fail-rate", RATE, true, AT(fail_rate), "P", "0", "share of requests that are answered with an error"},
    {"fail-status", STATUS, true, AT(fail_status), "CODE", "500", "status of that error"},
    {"retry-after", COUNT, true, AT(retry_after), "SECONDS", "0", "Retry-After on 429 and 503; 0: none"},
    {"error-body", TEXT, true, AT(error_body), "TEXT", NULL,
     "body of injected errors instead of the dialect's"},
    {"stall-rate", RATE, true, AT(stall_rate), "P", "0", "share of requests that are never answered"},
    {"cut-rate", RATE, true, AT(cut_rate), "P", "0", "share of replies that break in the middle"},
    {"cut-clean", FLAG, true, AT(cut_clean), "", "false",
     "cut streams end in correct framing, without terminal event"},
    {"head-delay-ms", COUNT, true, AT(head_delay_ms), "MS", "0", "wait before a request enters the engine"},
    {"slow-start-ms", COUNT, true, AT(slow_start_ms), "MS", "0", "503 for so long after a start"},
    {"health-status", STATUS, true, AT(health_status), "CODE", "200", "status of GET /health"},
    {"chunk-usage", FLAG, true, AT(chunk_usage), "", "false", "usage on every chunk of OpenAI streams"},
    {"no-usage", FLAG, true, AT(no_usage), "", "false", "leave usage out"},
    {"events-keep", COUNT, true, AT(events_faults.keep), "N", "10000", "batches that a replay can give"},
    {"events-drop-every", COUNT, true, AT(events_faults.drop_every), "N", "0",
     "each N-th batch is not sent: a gap"},
    {"events-malformed-every", COUNT, true, AT(events_faults.malformed_every), "N", "0",
     "each N-th batch is cut in the middle"},
    {"events-duplicate-every", COUNT, true, AT(events_faults.duplicate_every), "N", "0",
     "each N-th batch is sent twice"},
    {"told-blocks", COUNT, true, AT(told_blocks), "N", "0", "blocks that /metrics tells; 0: the truth"},
    {"template-tokens", COUNT, true, AT(template_tokens), "N", "0",
     "tokens that the chat template puts first, other ones for each N (at most 65536)"},
    {"lmcache-occupancy", TEXT, true, AT(lmcache_occupancy), "TEXT", NULL,
     "occupancy that GET /lmcache and lmcache_mp_l1_usage_ratio tell, instead of the cache's"},
    {"lmcache-body", TEXT, true, AT(lmcache_body), "TEXT", NULL, "body of GET /lmcache"},
    {"lmcache-status", STATUS, true, AT(lmcache_status), "CODE", "200", "status of GET /lmcache"},
    {"lmcache-stall", FLAG, true, AT(lmcache_stall), "", "false", "GET /lmcache is never answered"},
    {"no-done", FLAG, true, AT(no_done), "", "false", "leave [DONE] out of OpenAI streams"},
};

static bool set_number(void *at, enum kind kind, double v)
{
    if (!(v >= 0 && v <= 1e15))
        return false;
    if (kind == NUMBER || kind == RATE) {
        if (kind == RATE && v > 1)
            return false;
        *(double *)at = v;
        return true;
    }
    if (v != (double)(uint64_t)v || (kind == POSITIVE && (v < 1 || v > 1 << 28)) ||
        (kind == STATUS && (v < 200 || v > 599)))
        return false;
    *(uint64_t *)at = (uint64_t)v;
    return true;
}

static bool set_text(struct sim_options *o, const struct row *r, const char *text)
{
    char *at = (char *)o + r->at, *end;
    switch (r->kind) {
    case TEXT:
        free(*(char **)at);
        *(char **)at = mem_strdup(text);
        return true;
    case NAMES: {
        struct sim_names *names = (struct sim_names *)(void *)at;
        if (names->n == SIM_MODELS_MAX)
            return false;
        names->v[names->n++] = mem_strdup(text);
        return true;
    }
    case FLAG:
        *(bool *)at = strcmp(text, "false") != 0;
        return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    default: {
        double v = strtod(text, &end);
        return *text && !*end && set_number(at, r->kind, v);
    }
    }
}

/* <c> is what stands for '-' inside the name. */
static const struct row *find(struct span name, char c)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *t = table[i].name;
        size_t k = 0;
        while (k < name.n && t[k] && name.p[k] == (t[k] == '-' ? c : t[k]))
            k++;
        if (k == name.n && !t[k])
            return &table[i];
    }
    return NULL;
}

enum sim_options_result sim_options_read(struct sim_options *o, int argc, char **argv, char *ret_error)
{
    *o = (struct sim_options){0};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].fallback)
            CHECK(set_text(o, &table[i], table[i].fallback));
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
            return SIM_OPTIONS_HELP;
        const char *eq = strchr(a, '=');
        size_t n = eq ? (size_t)(eq - a) : strlen(a);
        const struct row *r = n > 2 && a[0] == '-' && a[1] == '-' ? find(span_of(a + 2, n - 2), '-') : NULL;
        const char *value = eq                ? eq + 1
                            : !r              ? NULL
                            : r->kind == FLAG ? "true"
                            : i + 1 < argc    ? argv[++i]
                                              : NULL;
        if (!r || !value || !set_text(o, r, value)) {
            snprintf(ret_error, 256, "%s %.200s", r ? "bad or missing value for" : "unknown option", a);
            return SIM_OPTIONS_BAD;
        }
    }
    uint64_t all = o->blocks * o->block_size;
    if (o->max_model_len == 0)
        o->max_model_len = all < SIM_MODEL_LEN_MAX ? all : SIM_MODEL_LEN_MAX;
    if (o->max_model_len > SIM_MODEL_LEN_MAX) {
        snprintf(ret_error, 256, "max-model-len must not be above %d", SIM_MODEL_LEN_MAX);
        return SIM_OPTIONS_BAD;
    }
    return SIM_OPTIONS_OK;
}

void sim_options_fini(struct sim_options *o)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].kind == TEXT)
            MEM_FREE(*(char **)((char *)o + table[i].at));
    while (o->models.n)
        free(o->models.v[--o->models.n]);
    while (o->loras.n)
        free(o->loras.v[--o->loras.n]);
}

void sim_options_help(void)
{
    puts("rolter-sim: an engine that behaves like a vLLM replica where it matters, without a model.\n\n"
         "Usage: rolter-sim [--listen HOST:PORT] [options]\n\nOptions (* may change at run time, POST "
         "/sim/faults):");
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct row *r = &table[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", r->name, r->value);
        printf(" %c %-27s %s%s%s%s\n", r->is_fault ? '*' : ' ', left, r->help, r->fallback ? " [" : "",
               r->fallback ? r->fallback : "", r->fallback ? "]" : "");
    }
    puts("\nFor one request, by header: x-sim-fail: STATUS, x-sim-stall: 1, x-sim-cut: EVENTS, x-sim-error: "
         "EVENTS,\n"
         "x-sim-tokens: N, x-sim-delay-ms: N.\n\n"
         "POST /sim/restart           as if the process had been started anew; events begin with number 0\n"
         "POST /sim/silent-restart    the cache is empty, and nothing tells: no counter, start time, event\n"
         "POST /sim/restart-events    events begin with number 0, and nothing else\n"
         "POST /reset_prefix_cache    as vLLM's, with the event\n"
         "GET /lmcache                {\"occupancy\", \"cache_available\"}\n"
         "GET /sim/stats, GET /sim/requests");
}

static bool set_json(struct sim_options *o, const struct row *r, const struct json_doc *d, uint32_t v,
                     struct arena *a)
{
    double number;
    if (r->kind == TEXT) {
        if (json_is(d, v, JSON_NULL)) {
            MEM_FREE(*(char **)((char *)o + r->at));
            return true;
        }
        return json_is(d, v, JSON_STRING) && set_text(o, r, arena_dup(a, json_string(d, v, a)).p);
    }
    if (r->kind == FLAG)
        return (json_is(d, v, JSON_TRUE) || json_is(d, v, JSON_FALSE)) &&
               set_text(o, r, json_is(d, v, JSON_TRUE) ? "true" : "false");
    return json_double(d, v, &number) && set_number((char *)o + r->at, r->kind, number);
}

static void copy_text(char **at)
{
    *at = mem_strdup(*at);
}

static void free_text(char **at)
{
    MEM_FREE(*at);
}

/* The texts that may change at run time. */
static void fault_texts(struct sim_options *o, void (*fn)(char **at))
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].is_fault && table[i].kind == TEXT)
            fn((char **)((char *)o + table[i].at));
}

bool sim_options_set_faults(struct sim_options *o, const struct json_doc *d, struct arena *a, char *ret_error)
{
    if (!json_is(d, 0, JSON_OBJECT)) {
        snprintf(ret_error, 256, "expected an object");
        return false;
    }
    struct sim_options old = *o;
    fault_texts(o, copy_text);
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        struct span name = json_string(d, i, a);
        const struct row *r = find(name, '_');
        if (!r || !r->is_fault || !set_json(o, r, d, i + 1, a)) {
            snprintf(ret_error, 256, "%s fault \"%.*s\"", r && r->is_fault ? "bad value for" : "unknown",
                     (int)(name.n < 100 ? name.n : 100), name.p);
            fault_texts(o, free_text);
            *o = old;
            return false;
        }
    }
    fault_texts(&old, free_text);
    return true;
}
