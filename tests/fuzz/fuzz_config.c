/* SPDX-License-Identifier: Apache-2.0
 * Any text as a configuration: settings exactly when there is no error, and what `--show` prints of them
 * reads back to the same.
 */
#include <stdlib.h>

#include "base/check.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct config_report r;
    config_report_init(&r);
    struct settings *s = config_parse(span_of((const char *)data, n), "fuzz", NULL, &r);
    CHECK((s == NULL) == (r.errors > 0));
    if (s) {
        struct buf shown, again;
        buf_init(&shown, 64 << 20);
        buf_init(&again, 64 << 20);
        config_show(s, &shown);
        struct settings *back = config_parse(buf_view(&shown), "shown", NULL, &r);
        CHECK_MSG(back != NULL, "what --show prints does not read back");
        config_show(back, &again);
        CHECK_MSG(span_eq(buf_view(&shown), buf_view(&again)),
                  "what --show prints reads back to something else");
        CHECK(config_needs_restart(back, back, &again) == 0);
        settings_free(back);
        buf_fini(&again);
        buf_fini(&shown);
    }
    settings_free(s);
    config_report_fini(&r);
    return 0;
}
