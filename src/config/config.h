/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a configuration: TOML file, environment, command line, through one table of keys (schema.h). Every
 * fault of a file is reported in one go, with file:line:column; an unknown key names the nearest known one; a
 * key that only the gateway of the same configuration format has, or that this version does not act on, is a
 * warning. Thread: any; no global state.
 */
#ifndef ROLTER_CONFIG_CONFIG_H
#define ROLTER_CONFIG_CONFIG_H

#include "base/buf.h"
#include "gateway/settings.h"

/* What the command line and the environment say; they win over the file (--host, --port, ROLTER_HOST,
 * ROLTER_PORT, ROLTER_KEY_PEPPER, CLICKHOUSE_URL as a fallback). NULL / 0 = not given. */
struct config_overrides {
    const char *host;
    unsigned port; /* 0 = not given */
    bool port_given;
};

struct config_report {
    struct buf text; /* one line a finding: "rolter.toml:12:3: error: ..." or "...: warning: ..." */
    unsigned errors, warnings;
};

void config_report_init(struct config_report *r);
void config_report_fini(struct config_report *r);

/* NULL when there is at least one error; warnings alone give settings. A file that does not exist is an
 * error, unless <may_be_absent> (then: defaults and a warning). Does not connect to anything; reads the
 * certificate and key files that it names in order to check them. */
struct settings *config_load(const char *path, bool may_be_absent, const struct config_overrides *o,
                             struct config_report *r);
/* The same from text, for tests and the fuzzer; <name> stands in the messages. */
struct settings *config_parse(struct span text, const char *name, const struct config_overrides *o,
                              struct config_report *r);

/* The effective configuration as TOML: every key with its value, secrets masked. Reading it back (masked
 * secrets replaced) gives the same settings. */
void config_show(const struct settings *s, struct buf *out);
/* docs/configuration.md from the table. */
void config_document(struct buf *out);

/* Keys whose change a running process cannot take over, for the warning of a reload (R37): writes
 * "server.port" and the like, one a line; returns how many. */
unsigned config_needs_restart(const struct settings *before, const struct settings *after, struct buf *out);

#endif
