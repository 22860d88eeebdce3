/* SPDX-License-Identifier: Apache-2.0
 *
 * Registry of providers and targets. A plan takes references while it is built and gives them back when the
 * last request that uses it has ended; what nobody refers to any more is kept for <keep_ms> (so that a target
 * that a reload removes and another brings back is still warm), then freed.
 *
 * Threads: any; the lock is taken at configuration time only.
 */
#ifndef ROLTER_FLEET_FLEET_H
#define ROLTER_FLEET_FLEET_H

#include "fleet/target.h"

struct fleet;

struct fleet *fleet_new(uint64_t keep_ms);
/* Nobody holds a lease or a slot any more; references do not matter. */
void fleet_free(struct fleet *f);
/* Finds or makes; takes a reference. */
struct provider *fleet_provider_get(struct fleet *f, const char *name);
void fleet_provider_put(struct fleet *f, struct provider *p, uint64_t now_ms);
struct target *fleet_target_get(struct fleet *f, const char *provider, const char *api_base,
                                const char *model);
void fleet_target_put(struct fleet *f, struct target *t, uint64_t now_ms);
/* Frees what has been without references for longer than keep_ms and has no lease out. */
void fleet_sweep(struct fleet *f, uint64_t now_ms);
/* Every one that is known, also those without references; in the order they came. For metrics and status,
 * O(all). <each> runs under the fleet's lock: it must not call this module's functions above. */
void fleet_each_provider(struct fleet *f, void (*each)(struct provider *p, void *arg), void *arg);
void fleet_each_target(struct fleet *f, void (*each)(struct target *t, void *arg), void *arg);

#endif
