/* SPDX-License-Identifier: Apache-2.0
 *
 * Query strings of the admin listener.
 */
#ifndef ROLTER_ADMIN_QUERY_H
#define ROLTER_ADMIN_QUERY_H

#include "base/span.h"

enum { QUERY_VALUE_MAX = 128 };

/* 0 to 15, or -1. */
int query_hex_digit(char c);
/* The value of <name> in a query string, %XX decoded, in <ret>; what is longer is cut. Empty when it is not
 * there. */
struct span query_value(struct span query, struct span name, char ret[QUERY_VALUE_MAX]);

#endif
