/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the configuration share.
 */
#ifndef ROLTER_TESTS_CONFIG_UNIT_H
#define ROLTER_TESTS_CONFIG_UNIT_H

#include "unit.h"

#include "config/config.h"

/* Reads <text>, which must be without errors, and prints what is wrong with it otherwise. */
static inline struct settings *config_good(const char *text, unsigned want_warnings)
{
    struct config_report r;
    config_report_init(&r);
    struct settings *s = config_parse(span_str(text), "t", NULL, &r);
    if (!s || r.warnings != want_warnings)
        fail_msg("unexpected findings:\n%.*sin:\n%s", SPAN_FMT(buf_view(&r.text)), text);
    assert_int_equal(r.errors, 0);
    config_report_fini(&r);
    return s;
}

/* As `--show` prints it; NUL-terminated, freed by the caller. */
static inline char *config_shown(const struct settings *s)
{
    struct buf b;
    buf_init(&b, 64 << 20);
    config_show(s, &b);
    buf_add_char(&b, '\0');
    assert_false(b.full);
    return b.p;
}

#endif
