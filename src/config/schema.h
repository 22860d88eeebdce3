/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all keys: what may stand in a configuration, of which type, in which range, with which
 * default, where it goes in struct settings, and one sentence about it. The reader, `--show`,
 * docs/configuration.md and the list of keys that need a restart all come from this table; a new key is one
 * new row in schema_*.c.
 *
 * A section is a TOML table with a fixed set of keys; the root of the file is a section as well.
 */
#ifndef ROLTER_CONFIG_SCHEMA_H
#define ROLTER_CONFIG_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

enum key_type {
    KEY_BOOL,
    KEY_TRISTATE, /* a boolean that may be absent: enum tristate */
    KEY_UINT,     /* unsigned or uint64_t */
    KEY_INT,      /* int */
    KEY_FLOAT,    /* an integer is taken as well */
    KEY_STRING,
    KEY_TIME, /* a date-time with an offset, or a string */
    KEY_ENUM, /* a string out of `words`; stored as its index in an enum or (two words) a bool */
    KEY_STRINGS,
    KEY_FREE,   /* a table with free names: struct json_members; `items` says what the values may be */
    KEY_TABLE,  /* a section inside this one, in the same struct or in one that is a member */
    KEY_TABLES, /* an array of sections: pointer and count */
    KEY_ANY,    /* not looked into */
};

/* What a key does here. */
enum key_standing {
    KEY_ACTIVE,
    KEY_LATER,    /* accepted and checked, without effect in this version: warning */
    KEY_ORIGINAL, /* a key of the gateway with the same configuration format, without effect here: warning */
};

enum key_flag {
    KEYF_REQUIRED = 1,
    KEYF_SECRET = 2,  /* masked in `--show` */
    KEYF_RESTART = 4, /* a running process cannot take a change over */
    KEYF_TIERS = 8,   /* KEY_TABLES that may also be a table with the arrays `readonly` and `default` */
    KEYF_NO_ZERO_WORDS = 16,      /* KEY_STRINGS without empty strings */
    KEYF_NEGATIVE_IS_ABSENT = 32, /* KEY_FLOAT whose field is negative when the key is absent */
    KEYF_MAY_BE_EMPTY = 64,       /* KEY_STRING */
};

enum free_items { FREE_ANY, FREE_STRINGS, FREE_POSITIVE };

enum { NO_FIELD = UINT16_MAX };

struct section;

struct key_spec {
    const char *name;
    uint8_t type;       /* enum key_type */
    uint8_t standing;   /* enum key_standing */
    uint8_t flags;      /* enum key_flag */
    uint8_t items;      /* enum free_items */
    uint16_t offset;    /* of the field in the section's struct, or NO_FIELD */
    uint16_t count;     /* KEY_TABLES: of the number of items */
    uint16_t bytes;     /* size of the field */
    double min, max;    /* KEY_UINT, KEY_FLOAT: closed range; max 0 = what the field holds */
    const char *preset; /* default as TOML; NULL = absent */
    const char *unit;
    const char *const *words; /* KEY_ENUM: up to NULL */
    const struct section *section;
    const char *doc;
};

struct section {
    const char *path; /* "providers.kv_events"; "" for the root */
    const char *doc;
    const struct key_spec *keys;
    unsigned n;
    uint16_t bytes;   /* of the struct, for the items of KEY_TABLES */
    uint16_t present; /* offset of a bool that says whether the table was there, or NO_FIELD */
    uint16_t line;    /* offset of an unsigned for the line of the table, or NO_FIELD */
};

extern const struct section schema_root;

/* Sections that several files of the table share. */
extern const struct section schema_server, schema_tls, schema_admin, schema_logging, schema_client,
    schema_compatibility;
extern const struct section schema_timeouts, schema_retry, schema_cooldown, schema_breaker, schema_queue,
    schema_health, schema_metrics_scrape, schema_egress;
extern const struct section schema_providers, schema_kv_events, schema_lmcache;
extern const struct section schema_routes, schema_virtual_keys, schema_model_prices, schema_currency;
extern const struct section schema_redis, schema_affinity_sync, schema_cache, schema_route_cache,
    schema_semantic, schema_budgets, schema_rate_limits;
extern const struct section schema_guardrails, schema_webhook, schema_plugins, schema_pii,
    schema_route_advanced;

const struct key_spec *section_find(const struct section *s, struct span name);

/* The known key nearest to <name>, or NULL when nothing is near; keys of <s> itself are preferred.
 * *ret_elsewhere is the other section that has it, or NULL. O(all keys). */
const struct key_spec *schema_nearest(const struct section *s, struct span name,
                                      const struct section **ret_elsewhere);
/* Changes (insert, delete, replace, swap neighbours) between two words; more than <limit> gives limit + 1. */
unsigned schema_distance(struct span a, struct span b, unsigned limit);

/* Rows of the table. */
#define KEY(key_name, key_type_, strct, member, ...)                                                         \
    {                                                                                                        \
        .name = key_name, .type = key_type_, .offset = offsetof(strct, member),                              \
        .bytes = sizeof(((strct *)0)->member), __VA_ARGS__                                                   \
    }
#define KEY_ITEMS(key_name, strct, member, n_member, section_, ...)                                          \
    {                                                                                                        \
        .name = key_name, .type = KEY_TABLES, .offset = offsetof(strct, member),                             \
        .count = offsetof(strct, n_member), .section = section_, __VA_ARGS__                                 \
    }
#define KEY_SUB(key_name, strct, member, section_, ...)                                                      \
    {                                                                                                        \
        .name = key_name, .type = KEY_TABLE, .offset = offsetof(strct, member), .section = section_,         \
        __VA_ARGS__                                                                                          \
    }
#define LATER(key_name, key_type_, ...)                                                                      \
    {                                                                                                        \
        .name = key_name, .type = key_type_, .standing = KEY_LATER, .offset = NO_FIELD, __VA_ARGS__          \
    }
#define ORIGINAL(key_name, doc_)                                                                             \
    {                                                                                                        \
        .name = key_name, .type = KEY_ANY, .standing = KEY_ORIGINAL, .offset = NO_FIELD, .doc = doc_         \
    }
#define SECTION_AS(path_, keys_, doc_, bytes_, present_, line_)                                              \
    {                                                                                                        \
        .path = path_, .keys = keys_, .n = sizeof(keys_) / sizeof((keys_)[0]), .doc = doc_, .bytes = bytes_, \
        .present = present_, .line = line_                                                                   \
    }
#define SECTION(path_, keys_, doc_) SECTION_AS(path_, keys_, doc_, 0, NO_FIELD, NO_FIELD)
/* Items of an array; with the line where each stood. */
#define SECTION_ITEMS(path_, keys_, doc_, strct)                                                             \
    SECTION_AS(path_, keys_, doc_, sizeof(strct), NO_FIELD, NO_FIELD)
#define SECTION_LINES(path_, keys_, doc_, strct)                                                             \
    SECTION_AS(path_, keys_, doc_, sizeof(strct), NO_FIELD, offsetof(strct, line))

#endif
