/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a request, once. STEP(name, what it does, what it may wait for). Each step is a function
 * step_<name> in a file of its own that returns the next step, or STEP_PARKED when it waits: an event or a
 * deadline then calls request_resume with the step to go on with.
 *
 * Retry is the loop pick <-> exchange and stands nowhere else. Once a byte of the reply has gone to the
 * client there is no way back to pick.
 */
STEP(admit, "path, dialect, request id, client key; asks for the body", "client")
STEP(parse, "reads the JSON body once: model, stream", "-")
STEP(route, "route or provider/model, variant order, which targets the key and the dialect may use", "-")
STEP(limits, "budgets and rate limits of the key and the route", "-")
STEP(policy, "guardrails, plugins and the sanitizer on the request; refuses streams that policy must see",
     "policy")
STEP(lookup, "response cache: may it be answered from the store, and is it there", "the store, an embedding")
STEP(fill, "a miss leads the call that fills the store, or follows the identical one under way", "the leader")
STEP(context, "conversation text, length and digest for the strategies that read them", "-")
STEP(tokenize, "token ids of the prompt from an engine, where the route wants them from there",
     "an engine, up to a deadline")
STEP(pick, "eligible targets asked once, strategy picks, lease taken", "a back-off before the same provider")
STEP(queue, "a slot of the provider's bounded queue", "a slot")
STEP(exchange, "sends the request; the reply's head decides: relay, hold and retry, or refuse", "upstream")
STEP(deliver, "the one policy function on a buffered reply, then the reply whole", "policy")
STEP(give_up, "nothing left to try: the last upstream reply, or 502, 503, 504", "-")
STEP(finish, "row, counters, charges back, arena reset, next request of the connection", "-")
