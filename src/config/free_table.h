/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables with free names (routes.params, client.injected_headers, currency.rates): TOML in, JSON text kept,
 * TOML out.
 */
#ifndef ROLTER_CONFIG_FREE_TABLE_H
#define ROLTER_CONFIG_FREE_TABLE_H

#include "config/reader.h"

/* Dates become strings in RFC 3339's form. <field> is a struct json_members or NULL (checks only). */
void free_table_read(struct reader *r, const char *path, enum free_items items, const struct toml_node *table,
                     struct json_members *field);
/* As a TOML inline table; values masked when <mask>. */
void free_table_show(const struct json_members *m, bool mask, struct buf *out);
/* A TOML basic string. */
void toml_write_string(struct buf *out, struct span s);

#endif
