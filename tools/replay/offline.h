/* SPDX-License-Identifier: Apache-2.0
 *
 * The offline replay: a trace, a strategy and a model of the fleet in virtual time. Runs are independent of
 * each other and repeat exactly for one seed.
 */
#ifndef ROLTER_REPLAY_OFFLINE_H
#define ROLTER_REPLAY_OFFLINE_H

#include "options.h"
#include "prompt_text.h"
#include "run.h"

struct offline; /* what all runs share */

struct offline *offline_new(const struct options *o, const struct trace *t);
void offline_free(struct offline *f);

/* What --strategies names. */
enum { OFFLINE_ITEMS_MAX = 64 };
struct offline_item {
    const char *name;
    enum run_kind kind;
    int id; /* enum strategy_id, enum rule_id, or which bound */
};
/* False with the name that is none. "all" and "ours" stand for several. */
bool offline_items(const char *list, struct offline_item *ret, unsigned *ret_n, char *ret_unknown,
                   size_t size);
/* Every name, ours first; for help and errors. NULL behind the last. */
const char *offline_name(unsigned i);

/* Whether the size of the caches does not matter to it. */
bool offline_is_endless(const struct offline_item *item);
/* One run, summarized. */
void offline_run(struct offline *f, const struct offline_item *item, uint32_t blocks, struct run *ret);

/* The way of a recording: each request is picked with the loads of its moment, compared with where it went,
 * and then charged to where it went. False with a line for people when the recording cannot be read or is of
 * another trace. */
bool offline_follow(struct offline *f, const struct offline_item *item, const char *path, struct run *ret,
                    char *ret_error);

#endif
