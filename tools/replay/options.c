/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "prompt_text.h"
#include "rules.h"

enum kind { TEXT, COUNT, POSITIVE, NUMBER, RATE, FLAG, LIST, TARGET };
enum mode { OFFLINE = 1, LIVE = 2, BOTH = 3 };

struct row {
    const char *name;
    enum kind kind;
    enum mode mode;
    size_t at;
    const char *value, *fallback, *help;
};

#define AT(member) offsetof(struct options, member)
static const struct row table[] = {
    {"json", TEXT, BOTH, AT(json), "FILE", NULL,
     "write the figures there as JSON (-: standard output, no table)"},
    {"html", TEXT, BOTH, AT(html), "FILE", NULL, "write a page with plots there"},
    {"record", TEXT, BOTH, AT(record), "FILE", NULL,
     "write a JSON line for each request: target, times, tokens"},
    {"speed", RATE, BOTH, AT(speed), "X", "1", "send so many times as fast as the trace says"},
    {"limit", COUNT, BOTH, AT(limit), "N", "0", "only the first N requests; 0: all"},
    {"block-tokens", POSITIVE, BOTH, AT(block_tokens), "N", "512", "tokens of the prompt for each hash id"},
    {"scale", POSITIVE, BOTH, AT(scale), "BYTES", "2048", "text for each hash id; a multiple of 8"},
    {"skip-bad", FLAG, BOTH, AT(skip_bad), "", "false", "go on without lines that cannot be read"},

    {"replicas", POSITIVE, OFFLINE, AT(replicas), "N", "8", "replicas of the model"},
    {"blocks", LIST, OFFLINE, 0, "N[,N...]", "2000",
     "blocks of each replica's cache; several: a run for each"},
    {"strategies", TEXT, OFFLINE, AT(strategies), "A[,B...]", "all",
     "ours by name; sglang, lmetric, llmd, exact; pooled_lru, ceiling; all, ours"},
    {"prefill-tps", NUMBER, OFFLINE, AT(prefill_tps), "N", "8000", "tokens a second; 0: infinitely fast"},
    {"decode-ms", NUMBER, OFFLINE, AT(decode_ms), "MS", "30", "for each token of a reply"},
    {"gateways", POSITIVE, OFFLINE, AT(gateways), "N", "1",
     "gateways that know nothing of each other's picks"},
    {"sync-lag-ms", NUMBER, OFFLINE, AT(sync_lag_ms), "MS", NULL,
     "least_prefill: gateways tell each other their placements, which are heard so much later"},
    {"own-loads", FLAG, OFFLINE, AT(own_loads), "", "false",
     "each gateway sees the load of its own requests only (strategies, not others' rules)"},
    {"seed", COUNT, OFFLINE, AT(seed), "N", "1", "of everything that is left to chance"},
    {"threshold", NUMBER, OFFLINE, AT(threshold), "SHARE", "0.5",
     "cache_aware: share of the prompt that pins"},
    {"balance-abs", COUNT, OFFLINE, AT(balance_abs), "N", "2",
     "cache_aware: requests a warm target may be ahead"},
    {"balance-rel", NUMBER, OFFLINE, AT(balance_rel), "X", "1.5", "cache_aware: and times the least load"},
    {"miss-weight", NUMBER, OFFLINE, AT(miss_weight), "X", "3",
     "least_prefill: what a token that is not cached costs"},
    {"home-bonus", NUMBER, OFFLINE, AT(home_bonus), "SHARE", "0",
     "least_prefill: share of a prompt that its owner counts as holding"},
    {"event-lag-ms", NUMBER, OFFLINE, AT(event_lag_ms), "MS", "0",
     "precise_cache_aware, exact: until it is known that a cache has changed"},
    {"follow", TEXT, OFFLINE, AT(follow), "FILE", NULL,
     "go the way of a recording (--record of a live run) and count equal picks"},
    {"slack-ms", NUMBER, OFFLINE, AT(slack_ms), "MS", "2",
     "a recorded end so soon behind a pick may have come before it"},
    {"target", TARGET, OFFLINE, 0, "NAME,API_BASE,MODEL", NULL,
     "a target of the recorded gateway, in the order of its configuration (may repeat)"},

    {"url", TEXT, LIVE, AT(url), "URL", NULL, "where the API is; /v1 is added when it has no path"},
    {"model", TEXT, LIVE, AT(model), "NAME", NULL, "the model to ask for"},
    {"key", TEXT, LIVE, AT(key), "KEY", NULL, "API key; better in the environment, as ROLTER_REPLAY_KEY"},
    {"gap-ms", NUMBER, LIVE, AT(gap_ms), "MS", "0",
     "between two requests at least; traces with coarse times have bursts"},
    {"max-output", COUNT, LIVE, AT(max_output), "N", "0",
     "ask for at most so many tokens; 0: what the trace says"},
    {"timeout-ms", COUNT, LIVE, AT(timeout_ms), "MS", "600000", "without a byte of a reply; 0: no limit"},
    {"ignore-eos", FLAG, LIVE, AT(ignore_eos), "", "false",
     "ask for replies of exactly the trace's length (vLLM and SGLang understand it)"},
    {"insecure", FLAG, LIVE, AT(insecure), "", "false", "do not check the certificate"},
};

static bool split3(const char *text, struct target_option *t)
{
    const char *a = strchr(text, ','), *b = a ? strchr(a + 1, ',') : NULL;
    if (!b || a == text || b == a + 1 || !b[1])
        return false;
    *t = (struct target_option){mem_spandup(span_of(text, (size_t)(a - text))),
                                mem_spandup(span_of(a + 1, (size_t)(b - a - 1))), mem_strdup(b + 1)};
    return true;
}

static bool set_list(struct options *o, const char *text)
{
    struct span rest = span_str(text), part;
    o->n_blocks = 0;
    while (span_split(&rest, ',', &part)) {
        uint64_t v;
        if (o->n_blocks == OPTIONS_LIST_MAX || !span_to_u64(part, &v) || v < 1 || v > 1u << 30)
            return false;
        o->blocks[o->n_blocks++] = v;
    }
    return o->n_blocks > 0;
}

static bool set_count(void *at, const char *text, bool is_positive)
{
    uint64_t v;
    if (!span_to_u64(span_str(text), &v) || (is_positive && (v < 1 || v > 1u << 30)))
        return false;
    *(uint64_t *)at = v;
    return true;
}

static bool set_double(void *at, const char *text, bool is_positive)
{
    char *end;
    double v = strtod(text, &end);
    if (!*text || *end || !(v >= 0 && v <= 1e12) || (is_positive && v < 1e-6))
        return false;
    *(double *)at = v;
    return true;
}

static bool set(struct options *o, const struct row *r, const char *text)
{
    char *at = (char *)o + r->at;
    switch (r->kind) {
    case TEXT:
        free(*(char **)at);
        *(char **)at = mem_strdup(text);
        return *text != 0;
    case COUNT:
    case POSITIVE:
        return set_count(at, text, r->kind == POSITIVE);
    case NUMBER:
    case RATE:
        return set_double(at, text, r->kind == RATE);
    case FLAG:
        *(bool *)at = strcmp(text, "true") == 0;
        return *(bool *)at || strcmp(text, "false") == 0;
    case LIST:
        return set_list(o, text);
    case TARGET:
        return o->n_targets < OPTIONS_LIST_MAX && split3(text, &o->targets[o->n_targets]) && ++o->n_targets;
    }
    UNREACHABLE();
}

static const struct row *find(struct span name)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (span_eq(name, span_str(table[i].name)))
            return &table[i];
    return NULL;
}

static bool bad(char *ret_error, const char *what, const char *which)
{
    snprintf(ret_error, OPTIONS_ERROR_BYTES, "%s %.160s", what, which);
    return false;
}

/* One word of the command line and perhaps the next. */
static bool read_word(struct options *o, int argc, char **argv, int *i, char *ret_error)
{
    const char *a = argv[*i];
    if (a[0] != '-' || strcmp(a, "-") == 0) {
        if (o->trace)
            return bad(ret_error, "one trace at a time, and not", a);
        o->trace = mem_strdup(a);
        return true;
    }
    const char *eq = strchr(a, '=');
    size_t n = eq ? (size_t)(eq - a) : strlen(a);
    const struct row *r = n > 2 && a[1] == '-' ? find(span_of(a + 2, n - 2)) : NULL;
    if (!r)
        return bad(ret_error, "unknown option", a);
    if (!(r->mode & (o->is_live ? LIVE : OFFLINE)))
        return bad(ret_error, o->is_live ? "only for offline:" : "only for live:", a);
    const char *value = eq ? eq + 1 : r->kind == FLAG ? "true" : *i + 1 < argc ? argv[++*i] : NULL;
    if (!value)
        return bad(ret_error, "a value is missing for", a);
    if (!set(o, r, value)) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES, "bad value for --%s: %.160s", r->name, value);
        return false;
    }
    return true;
}

static bool check(struct options *o, char *ret_error)
{
    const char *missing = !o->trace                 ? "TRACE"
                          : o->is_live && !o->url   ? "--url"
                          : o->is_live && !o->model ? "--model"
                                                    : NULL;
    if (missing)
        return bad(ret_error, "missing:", missing);
    if (o->scale % 8 || o->scale > PROMPT_BLOCK_BYTES_MAX)
        return bad(ret_error, "bad value for --scale:", "a multiple of 8, at most 1048576");
    if (o->replicas > RULES_REPLICAS_MAX || o->gateways > RULES_REPLICAS_MAX)
        return bad(ret_error, "at most 64:", o->gateways > RULES_REPLICAS_MAX ? "--gateways" : "--replicas");
    if (o->follow && o->n_targets == 0)
        return bad(ret_error, "--follow needs the gateway's targets:", "--target NAME,API_BASE,MODEL");
    if (o->n_targets > 0)
        o->replicas = o->n_targets;
    return true;
}

enum options_result options_read(struct options *o, int argc, char **argv, char *ret_error)
{
    *o = (struct options){.sync_lag_ms = -1};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].fallback)
            CHECK(set(o, &table[i], table[i].fallback));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return OPTIONS_HELP;
        if (strcmp(argv[i], "--version") == 0)
            return OPTIONS_VERSION;
    }
    const char *mode = argc > 1 ? argv[1] : "";
    o->is_live = strcmp(mode, "live") == 0;
    if (!o->is_live && strcmp(mode, "offline") != 0) {
        bad(ret_error, "offline or live? Not", argc > 1 ? mode : "nothing");
        return OPTIONS_BAD;
    }
    for (int i = 2; i < argc; i++)
        if (!read_word(o, argc, argv, &i, ret_error))
            return OPTIONS_BAD;
    if (!o->key && getenv("ROLTER_REPLAY_KEY"))
        o->key = mem_strdup(getenv("ROLTER_REPLAY_KEY"));
    return check(o, ret_error) ? OPTIONS_OK : OPTIONS_BAD;
}

void options_fini(struct options *o)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].kind == TEXT)
            MEM_FREE(*(char **)((char *)o + table[i].at));
    for (unsigned i = 0; i < o->n_targets; i++) {
        free(o->targets[i].name);
        free(o->targets[i].api_base);
        free(o->targets[i].model);
    }
    o->n_targets = 0;
    MEM_FREE(o->trace);
}

static void help_of(enum mode mode, const char *title)
{
    printf("\n%s\n", title);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct row *r = &table[i];
        char left[64];
        if (r->mode != mode)
            continue;
        snprintf(left, sizeof left, "--%s %s", r->name, r->value);
        printf("  %-28s %s%s%s%s\n", left, r->help, r->fallback ? " [" : "", r->fallback ? r->fallback : "",
               r->fallback ? "]" : "");
    }
}

void options_help(void)
{
    puts(
        "rolter-replay: sends a trace of requests (Mooncake's format, gzipped or not) through the gateway's "
        "pick code\n"
        "over a model of replicas, or to a live API, and tells hit rate, time to first token and balance.\n\n"
        "Usage: rolter-replay offline TRACE [options]\n"
        "       rolter-replay live TRACE --url URL --model NAME [options]");
    help_of(BOTH, "Both:");
    help_of(OFFLINE, "Offline:");
    help_of(LIVE, "Live:");
}
