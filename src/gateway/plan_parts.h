/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of plan_build and of freeing a plan; used by plan*.c only.
 */
#ifndef ROLTER_GATEWAY_PLAN_PARTS_H
#define ROLTER_GATEWAY_PLAN_PARTS_H

#include "gateway/plan.h"

void plan_build_keys(struct plan *p);
void plan_free_keys(struct plan *p);
/* Behind keys and routes, whose limits these are. */
void plan_build_limits(struct plan *p, struct plan *previous);
void plan_free_limits(struct plan *p);
void plan_build_providers(struct plan *p);
void plan_free_providers(struct plan *p, uint64_t now_ms);
void plan_build_routes(struct plan *p, struct plan *previous);
void plan_free_routes(struct plan *p, uint64_t now_ms);
/* After routes and providers. */
void plan_build_cache(struct plan *p);
void plan_build_semantic(struct plan *p);
void plan_free_semantic(struct plan *p);
void plan_pool_init(struct plan *p, struct plan_pool *pool, enum strategy_id strategy,
                    const struct strategy_settings *settings, const struct target_settings *targets,
                    unsigned n, const char *public_model, const struct plan_pool *previous);
/* "<name>: <value>" with its CR LF, or nothing when the value is empty or may not stand in a field. */
struct span plan_field_line(struct arena *a, const char *name, struct span value);
/* Overwrites a text before its memory goes back. NULL is nothing. */
void plan_free_secret(char *text);
void plan_pool_fini(struct plan *p, struct plan_pool *pool, uint64_t now_ms);

#endif
