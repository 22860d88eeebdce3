/* SPDX-License-Identifier: Apache-2.0
 *
 * A line on stderr about a long run: on a terminal one line that is written over, else a new line every two
 * seconds.
 */
#ifndef ROLTER_REPLAY_PROGRESS_H
#define ROLTER_REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool is_terminal, is_shown;
    uint64_t begun_ms, next_ms;
};

void progress_begin(struct progress *p, bool is_terminal, uint64_t now_ms);
/* Whether it is time for a line. */
bool progress_is_due(const struct progress *p, uint64_t now_ms);
void progress_show(struct progress *p, uint64_t now_ms, const char *text);
/* Takes the line off the terminal. */
void progress_end(struct progress *p);

#endif
