/* SPDX-License-Identifier: Apache-2.0
 *
 * Doubles as text and back: the C++ library is the one part of the toolchain that does both shortest, exactly
 * and without regard to the locale.
 */
#ifndef ROLTER_JSON_NUMBER_H
#define ROLTER_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { JSON_DOUBLE_MAX = 32 };

/* <p> is a JSON number. Too small gives zero; too large gives false. */
bool json_number_read(const char *p, size_t n, double *ret);
/* Writes at most JSON_DOUBLE_MAX bytes and returns how many; <v> is finite. */
size_t json_number_write(char *out, double v);

#ifdef __cplusplus
}
#endif
#endif
