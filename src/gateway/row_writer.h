/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that takes request rows out of the workers' rings and writes them: JSON lines to a file or
 * stdout, and batches to ClickHouse over HTTP (JSONEachRow into the table request_logs). Off the hot path: a
 * worker never waits for it; a full ring, a full batch queue or a failed batch drops rows and counts them.
 */
#ifndef ROLTER_GATEWAY_ROW_WRITER_H
#define ROLTER_GATEWAY_ROW_WRITER_H

#include "gateway/settings.h"
#include "observe/row.h"

struct row_writer;

/* <rings> are the workers'; they outlive the writer. NULL with a text in ret_error (256 bytes) when the file
 * cannot be opened. */
struct row_writer *row_writer_start(const struct logging_settings *s, struct row_ring *const *rings,
                                    unsigned n, char *ret_error);
/* <bytes> were put into a ring, whose owner keeps <unsaid> (0 at first). Rows are taken 20 times a
 * second; the first ones after a pause, and those of a ring that fills, at once. From any thread, while the
 * writer lives; mostly a load. */
void row_writer_note(struct row_writer *w, size_t *unsaid, size_t bytes);
/* Takes rows soon. From any thread, while the writer lives. */
void row_writer_kick(struct row_writer *w);
/* Takes new settings over and opens the file anew (log rotation). From the signals thread. False with a text
 * when the new file cannot be opened: the old one stays. */
bool row_writer_update(struct row_writer *w, const struct logging_settings *s, char *ret_error);
/* Writes what is left (ClickHouse: one last batch, for at most two seconds), ends the thread. */
void row_writer_stop(struct row_writer *w);

#endif
