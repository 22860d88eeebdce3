/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *cond, const char *file, int line, const char *msg)
{
    fprintf(stderr, "rolter: internal error: %s at %s:%d %s\n", cond, file, line, msg);
    fflush(stderr);
    abort();
}
