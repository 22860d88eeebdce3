/* SPDX-License-Identifier: Apache-2.0
 *
 * What every unit test includes first: cmocka wants these headers before its own.
 */
#ifndef ROLTER_TESTS_UNIT_H
#define ROLTER_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
