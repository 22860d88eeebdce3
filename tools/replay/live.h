/* SPDX-License-Identifier: Apache-2.0
 *
 * The live replay: sends the trace at its times (divided by --speed) to an OpenAI-compatible chat API as
 * streaming requests, however many are under way, and notes for each: time to the first event with content,
 * cached tokens as the usage says them, which replica answered (x-rolter-provider), or why it failed. Nothing
 * is sent twice.
 *
 * One thread, one loop. SIGINT stops sending and lets what is under way end; a second one ends those too.
 */
#ifndef ROLTER_REPLAY_LIVE_H
#define ROLTER_REPLAY_LIVE_H

#include "options.h"
#include "run.h"
#include "trace.h"

/* A summarized run. False with a line for people (OPTIONS_ERROR_BYTES) when there is no way to begin: a URL
 * that is none. */
bool live_run(const struct options *o, const struct trace *t, struct run *ret, bool *ret_was_stopped,
              char *ret_error);

#endif
