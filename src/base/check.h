/* SPDX-License-Identifier: Apache-2.0
 *
 * Assertions that stay on in every build. They state what must be true if our own code is right; what an
 * outsider (client, engine, author of a configuration) can get wrong is an error code, never a CHECK.
 */
#ifndef ROLTER_BASE_CHECK_H
#define ROLTER_BASE_CHECK_H

/* Prints the condition, place and message to stderr, then aborts. */
_Noreturn void check_failed(const char *cond, const char *file, int line, const char *msg);

#define CHECK(cond)          ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__, ""))
#define CHECK_MSG(cond, msg) ((cond) ? (void)0 : check_failed(#cond, __FILE__, __LINE__, (msg)))
#define UNREACHABLE()        check_failed("unreachable", __FILE__, __LINE__, "")

/* Objects that cross modules or threads carry a magic number as their first member `magic`. */
#define MAGIC_CHECK(obj, value) CHECK((obj) != NULL && (obj)->magic == (value))

#define ARRAY_LEN(a)            (sizeof(a) / sizeof((a)[0]))
#define MUST_CHECK              __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
/* What every relayed event runs through: stands together, so that a core that was busy with something else
 * meanwhile has few pages and lines to fetch. */
#define HOT         __attribute__((hot))
#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
