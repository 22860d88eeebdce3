/* SPDX-License-Identifier: Apache-2.0
 *
 * Diagnostics, one line each on stderr: "2026-12-01T05:04:06.123Z warn reload: ...". Facts about single
 * requests belong in the request rows, not here. Modules below gateway and signals return errors and do not
 * log. Thread-safe: a line is one write.
 */
#ifndef ROLTER_BASE_LOG_H
#define ROLTER_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below <level> are not written; the default is LOG_INFO. */
void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
