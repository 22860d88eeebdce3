/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "observe/metrics.h"

static void print(FILE *to, const struct buf *b)
{
    if (b->n)
        fwrite(b->p, 1, b->n, to);
}

int cli_check(const struct cli_options *o)
{
    struct config_report r;
    config_report_init(&r);
    struct settings *s = config_load(o->config, !o->config_given, &o->overrides, &r);
    print(stderr, &r.text);
    bool bad = r.errors > 0 || (o->strict && r.warnings > 0);
    if (s && o->show) {
        struct buf out;
        buf_init(&out, 64 << 20);
        config_show(s, &out);
        print(stdout, &out);
        buf_fini(&out);
    }
    if (!bad && !o->show)
        printf("%s: no faults, %u warning%s\n", o->config, r.warnings, r.warnings == 1 ? "" : "s");
    else if (bad)
        fprintf(stderr, "%s: %u error%s, %u warning%s\n", o->config, r.errors, r.errors == 1 ? "" : "s",
                r.warnings, r.warnings == 1 ? "" : "s");
    settings_free(s);
    config_report_fini(&r);
    return bad ? 1 : 0;
}

int cli_docs(const char *what)
{
    struct buf out;
    buf_init(&out, 16 << 20);
    int status = 0;
    if (strcmp(what, "configuration") == 0) {
        config_document(&out);
    } else if (strcmp(what, "metrics") == 0) {
        buf_add_str(
            &out,
            "# Metrics\n\n<!-- Made from src/observe/metrics.def by scripts/gen-docs; do not edit. -->\n\n"
            "`GET /metrics` (`server.metrics_path`) answers in Prometheus' text format. Counters exist "
            "from the start at 0; label values are names from the configuration.\n\n");
        metrics_document(&out);
    } else {
        fprintf(stderr, "rolter: docs knows \"configuration\" and \"metrics\"\n");
        status = 2;
    }
    print(stdout, &out);
    buf_fini(&out);
    return status;
}
