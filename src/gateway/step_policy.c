/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: what the request must pass before anything is looked up or sent (C13): guardrails, plugins, the
 * sanitizer's request leg, and the refusal of streams that a policy on replies would have to see.
 */
#include "gateway/request.h"

enum step step_policy(struct request *r)
{
    return STEP_context;
}
