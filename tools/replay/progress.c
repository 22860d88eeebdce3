/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>

enum { FIRST_MS = 1000, TERMINAL_MS = 250, LINES_MS = 2000 };

void progress_begin(struct progress *p, bool is_terminal, uint64_t now_ms)
{
    *p = (struct progress){.is_terminal = is_terminal, .begun_ms = now_ms};
    p->next_ms = now_ms + (is_terminal ? FIRST_MS : LINES_MS);
}

bool progress_is_due(const struct progress *p, uint64_t now_ms)
{
    return now_ms >= p->next_ms;
}

void progress_show(struct progress *p, uint64_t now_ms, const char *text)
{
    double secs = (double)(now_ms - p->begun_ms) / 1000;
    if (p->is_terminal)
        fprintf(stderr, "\r\033[K%.1f s: %s", secs, text);
    else
        fprintf(stderr, "%.1f s: %s\n", secs, text);
    fflush(stderr);
    p->is_shown = true;
    p->next_ms = now_ms + (p->is_terminal ? TERMINAL_MS : LINES_MS);
}

void progress_end(struct progress *p)
{
    if (p->is_shown && p->is_terminal)
        fputs("\r\033[K", stderr);
    p->is_shown = false;
}
