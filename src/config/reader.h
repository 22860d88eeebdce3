/* SPDX-License-Identifier: Apache-2.0
 *
 * One reading of a configuration: the settings as they come about, the findings, and where each field stood.
 * Inside of config only.
 */
#ifndef ROLTER_CONFIG_READER_H
#define ROLTER_CONFIG_READER_H

#include "base/map.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/toml_tree.h"
#include "net/origin.h"

struct finding {
    struct toml_place at; /* line 0 = about the file, or about no file at all */
    bool is_error;
    unsigned order;
    const char *text;
};

struct reader {
    struct settings *s;
    const char *name;     /* of the file, for messages */
    struct arena scratch; /* tree, findings, places */
    struct finding *findings;
    unsigned n_findings, cap_findings, errors, warnings;
    struct map places;              /* field -> where its value stood */
    const struct key_spec **warned; /* keys without effect that have had their warning */
    unsigned n_warned;
};

void reader_init(struct reader *r, struct settings *s, const char *name);
void reader_fini(struct reader *r);

/* At most MAX_FINDINGS are kept, all are counted. */
void reader_fault(struct reader *r, struct toml_place at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void reader_warn(struct reader *r, struct toml_place at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* No more findings are kept: messages that cost something to find are not worth it any more. */
bool reader_is_full(const struct reader *r);
/* Appends the findings, in the order of the file, and adds the counts. */
void reader_report(struct reader *r, struct config_report *out);

/* Presets into a section's struct. */
void section_set_presets(struct arena *a, const struct section *s, void *base);
/* Reads the whole tree into r->s. */
void reader_read(struct reader *r, const struct toml_node *root);

void reader_note_field(struct reader *r, const void *field, struct toml_place at);
void reader_note_table(struct reader *r, const void *table, struct toml_place at);
/* Items of a strings field are fields as well. Where the value of a field, or the table of a struct, stood;
 * line 0 when it did not. */
struct toml_place reader_field(const struct reader *r, const void *field);
struct toml_place reader_table(const struct reader *r, const void *table);
/* The field's place, or its table's when the field is a preset. */
struct toml_place reader_field_or_table(const struct reader *r, const void *field, const void *table);

/* What the table of keys cannot say: references, duplicates, addresses, files. Also fills the fields that
 * follow from others (kind, strategy, slug, expires_at_ms). */
void check_settings(struct reader *r);
void check_providers(struct reader *r, struct map *ret_names);
void check_routes(struct reader *r, const struct map *providers);
void check_virtual_keys(struct reader *r, const struct map *providers);
/* Needs routes and keys; settles who shares entries. */
void check_cache(struct reader *r);
void check_semantic(struct reader *r, const struct map *providers);
void check_redis(struct reader *r);
void check_policy(struct reader *r);
/* An http or https URL of something that the gateway calls, and [egress] allows it. False when it is no such
 * URL; else *ret is the caller's to free. */
bool check_url(struct reader *r, const char *const *field, const char *path, struct net_origin *ret);
void check_limits(struct reader *r);
void check_bundles(struct reader *r, const struct strings *files, const char *path);
/* A warning when the environment variable that a field names is not set; a fault when it can be no such name.
 */
void check_env(struct reader *r, const char *const *field, const char *path);
/* "is already used in line 5" for the second of two equal names; false for the first one. */
bool check_unique(struct reader *r, struct map *seen, const char *const *field, const void *table,
                  const char *path, bool secret);
/* Words for docs and messages: one kind after the other. */
void kinds_list(struct buf *out, const char *between);

#endif
