/* SPDX-License-Identifier: Apache-2.0 */
#include "offline_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "balance/block_chain.h"
#include "base/clock.h"
#include "base/mem.h"
#include "block_events.h"
#include "rules.h"

struct offline *offline_new(const struct options *o, const struct trace *t)
{
    struct offline *f = MEM_NEW(struct offline);
    f->o = o;
    f->trace = t;
    f->text = (struct prompt_text){t, (uint32_t)o->scale};
    f->n_targets = (unsigned)o->replicas;
    for (unsigned i = 0; i < f->n_targets; i++) {
        const struct target_option *own = i < o->n_targets ? &o->targets[i] : NULL;
        snprintf(f->names[i], sizeof f->names[i], "r%u", i);
        snprintf(f->bases[i], sizeof f->bases[i], "http://r%u", i);
        f->targets[i] = own ? (struct rig_target){own->name, own->api_base, own->model}
                            : (struct rig_target){f->names[i], f->bases[i], "replay"};
    }
    return f;
}

void offline_free(struct offline *f)
{
    if (!f)
        return;
    free(f->digests);
    free(f->keys);
    free(f->keys_at);
    free(f->homes);
    free(f);
}

/* All of the text, once for all runs. */
static const uint64_t *digests(struct offline *f)
{
    if (f->digests)
        return f->digests;
    f->digests = mem_array(f->trace->n + 1, sizeof *f->digests);
    for (size_t i = 0; i < f->trace->n; i++)
        f->digests[i] = prompt_turn_digest(&f->text, &f->trace->requests[i]);
    return f->digests;
}

static const struct rig_blocks *block_keys(struct offline *f)
{
    size_t n = f->trace->n, all = 0;
    if (f->keys)
        return &f->rig_blocks;
    for (size_t i = 0; i < n; i++)
        all += prompt_turn_bytes(&f->text, &f->trace->requests[i]) / BLOCK_BYTES;
    f->keys = mem_array(all + 1, sizeof *f->keys);
    f->keys_at = mem_array(n + 1, sizeof *f->keys_at);
    f->homes = mem_array(n + 1, sizeof *f->homes);
    for (size_t i = 0; i < n; i++)
        f->keys_at[i + 1] = f->keys_at[i] + prompt_turn_blocks(&f->text, &f->trace->requests[i],
                                                               f->keys + f->keys_at[i], &f->homes[i]);
    f->rig_blocks = (struct rig_blocks){f->keys, f->keys_at, f->homes};
    return &f->rig_blocks;
}

struct rig *offline_rig(struct offline *f, int strategy, uint64_t blocks, struct kv_source *const *sources)
{
    bool reads_blocks = strategy_reads_blocks((enum strategy_id)strategy);
    struct strategy_settings settings = STRATEGY_SETTINGS_DEFAULT;
    bool reads = strategy_reads_prompt((enum strategy_id)strategy);
    settings.threshold = f->o->threshold;
    settings.balance_abs = (unsigned)f->o->balance_abs;
    settings.balance_rel = f->o->balance_rel;
    settings.miss_weight = f->o->miss_weight;
    settings.home_bonus = f->o->home_bonus;
    return rig_new(&(struct rig_options){
        .strategy = (enum strategy_id)strategy,
        .targets = f->targets,
        .n_targets = f->n_targets,
        .gateways = (unsigned)f->o->gateways,
        .own_loads = f->o->own_loads,
        .talks = f->o->sync_lag_ms >= 0 && f->o->gateways > 1,
        .sync_lag_us = f->o->sync_lag_ms >= 0 ? (uint64_t)(f->o->sync_lag_ms * 1000) : 0,
        .seed = f->o->seed,
        .text = &f->text,
        .sources = sources,
        .digests = reads ? digests(f) : NULL,
        .blocks = reads_blocks ? block_keys(f) : NULL,
        .cache_tokens = blocks * f->trace->block_tokens,
        .settings = settings});
}

void offline_start_run(const struct offline *f, struct run *r)
{
    r->n = f->trace->n;
    r->rows = mem_array(r->n + 1, sizeof *r->rows);
    for (unsigned i = 0; i < f->n_targets; i++)
        run_replica_named(r, span_str(f->targets[i].name));
}

/* Names */

enum bound { BOUND_POOLED, BOUND_CEILING, BOUND_COUNT };
static const char *const bounds[BOUND_COUNT] = {"pooled_lru", "ceiling"};

static bool item_at(unsigned i, struct offline_item *ret)
{
    if (i < STRATEGY_COUNT)
        *ret = (struct offline_item){strategy_name((enum strategy_id)i), RUN_STRATEGY, (int)i};
    else if ((i -= STRATEGY_COUNT) < RULE_COUNT)
        *ret = (struct offline_item){rule_name((enum rule_id)i), RUN_RULE, (int)i};
    else if ((i -= RULE_COUNT) < BOUND_COUNT)
        *ret = (struct offline_item){bounds[i], RUN_BOUND, (int)i};
    else
        return false;
    return true;
}

const char *offline_name(unsigned i)
{
    struct offline_item item;
    return item_at(i, &item) ? item.name : NULL;
}

bool offline_items(const char *list, struct offline_item *ret, unsigned *ret_n, char *ret_unknown,
                   size_t size)
{
    struct span rest = span_str(list), part;
    unsigned n = 0;
    while (span_split(&rest, ',', &part)) {
        bool is_all = span_eq(part, SPAN("all")), is_ours = span_eq(part, SPAN("ours")), found = false;
        struct offline_item item;
        for (unsigned i = 0; item_at(i, &item); i++)
            if (is_all || (is_ours && item.kind == RUN_STRATEGY) || span_eq(part, span_str(item.name))) {
                if (n == OFFLINE_ITEMS_MAX)
                    break;
                ret[n++] = item;
                found = true;
            }
        if (!found) {
            snprintf(ret_unknown, size, "%.*s", SPAN_FMT(part));
            return false;
        }
    }
    *ret_n = n;
    return n > 0;
}

/* One run */

struct drive {
    struct offline *f;
    struct run *run;
    struct model *model;
    struct rig *rig;                 /* for a strategy */
    struct rule_history **histories; /* for a rule: of each gateway */
    struct block_events *events;     /* what the caches tell, to whom it helps */
    uint32_t matched[RULES_REPLICAS_MAX];
    uint32_t blocks;
    enum rule_id rule;
    uint64_t next_tend_us;
    struct rng rng;
};

static void catch_up(struct drive *d, uint64_t until_us)
{
    struct model_event e;
    while (model_next(d->model, until_us, &e)) {
        if (d->events && e.kind == MODEL_FIRST)
            block_events_add(d->events, e.replica, model_take_change(d->model, e.request), e.us);
        if (!d->rig)
            continue;
        const struct run_row *row = &d->run->rows[e.request];
        if (e.kind == MODEL_FIRST)
            rig_first_token(d->rig, e.request, e.us);
        else if (e.kind == MODEL_END)
            rig_end(d->rig, e.request, (double)(e.us - row->at_us) / 1000, row->hit, e.us);
    }
    if (d->events)
        block_events_apply(d->events, until_us);
}

static unsigned pick_by_rule(struct drive *d, unsigned gateway, size_t i, uint64_t now_us)
{
    const struct trace_request *r = &d->f->trace->requests[i];
    bool is_exact = d->rule == RULE_EXACT;
    struct rule_history *h = is_exact ? block_events_view(d->events) : d->histories[gateway];
    rule_history_match(h, r, d->matched);
    unsigned to = rule_pick(d->rule, &(struct rule_view){.model = d->model,
                                                         .request = r,
                                                         .matched = d->matched,
                                                         .replicas = d->f->n_targets,
                                                         .cache_blocks = d->blocks,
                                                         .now_us = now_us,
                                                         .rng = &d->rng});
    if (!is_exact)
        rule_history_add(h, r, to);
    return to;
}

static void serve(struct drive *d, size_t i)
{
    const struct trace_request *r = &d->f->trace->requests[i];
    struct run_row *row = &d->run->rows[i];
    uint64_t now_us = offline_at_us(d->f, r->at_us);
    unsigned gateway = (unsigned)rng_below(&d->rng, d->f->o->gateways), to;
    catch_up(d, now_us);
    if (d->rig) {
        if (now_us >= d->next_tend_us) {
            rig_tend(d->rig);
            d->next_tend_us = now_us + 1000000;
        }
        struct pick p = rig_pick(d->rig, gateway, i, now_us);
        rig_charge(d->rig, i, &p, now_us);
        row->reason = pick_reason_name(p.reason);
        to = (unsigned)p.index;
    } else {
        to = pick_by_rule(d, gateway, i, now_us);
    }
    struct model_served s = model_submit(d->model, to, i, now_us);
    *row = (struct run_row){.at_us = now_us,
                            .first_us = s.first_us,
                            .end_us = s.end_us,
                            .input = r->input,
                            .hit = s.hit,
                            .output = r->output,
                            .replica = (int)to,
                            .reason = row->reason};
}

static void drive(struct offline *f, const struct offline_item *item, uint32_t blocks, struct run *r)
{
    struct drive d = {.f = f, .run = r, .blocks = blocks};
    bool is_ours = item->kind == RUN_STRATEGY;
    bool hears = is_ours ? strategy_reads_tokens((enum strategy_id)item->id) : item->id == RULE_EXACT;
    d.model = model_new(f->trace, &(struct model_options){.replicas = f->n_targets,
                                                          .blocks = blocks,
                                                          .prefill_tps = f->o->prefill_tps,
                                                          .decode_ms = f->o->decode_ms,
                                                          .tells_changes = hears});
    if (hears)
        d.events = block_events_new(f->trace, f->n_targets, (uint64_t)(f->o->event_lag_ms * 1000));
    rng_seed(&d.rng, f->o->seed ^ 0x6761746577617973);
    if (is_ours) {
        d.rig = offline_rig(f, item->id, blocks, hears ? block_events_sources(d.events) : NULL);
    } else {
        d.rule = (enum rule_id)item->id;
        d.histories = mem_array(f->o->gateways, sizeof *d.histories);
        for (unsigned i = 0; i < f->o->gateways; i++)
            d.histories[i] = rule_history_new(f->trace, f->n_targets);
    }
    offline_start_run(f, r);
    for (size_t i = 0; i < f->trace->n; i++)
        serve(&d, i);
    catch_up(&d, UINT64_MAX);
    model_free(d.model);
    rig_free(d.rig);
    block_events_free(d.events);
    for (unsigned i = 0; d.histories && i < f->o->gateways; i++)
        rule_history_free(d.histories[i]);
    free(d.histories);
}

bool offline_is_endless(const struct offline_item *item)
{
    return item->kind == RUN_BOUND && item->id == BOUND_CEILING;
}

void offline_run(struct offline *f, const struct offline_item *item, uint32_t blocks, struct run *ret)
{
    uint64_t begun = clock_mono_us();
    bool is_ceiling = offline_is_endless(item);
    run_init(ret, item->name, item->kind, is_ceiling ? 0 : blocks);
    if (item->kind == RUN_BOUND) {
        ret->hit = rule_pooled_hits(f->trace, is_ceiling ? UINT64_MAX : (uint64_t)blocks * f->n_targets);
        ret->input = f->trace->input_tokens;
    } else {
        drive(f, item, blocks, ret);
    }
    ret->took_ms = (double)(clock_mono_us() - begun) / 1000;
    run_summarize(ret);
}
