/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the JSON reader share; nobody outside src/json includes it.
 *
 * The scan of the text (parse_body.h) is compiled three times: for the baseline of the machine, for AVX2 and
 * for AVX-512, and json_parse picks one at run time. While a container is open, its node's `end` holds the
 * index of the container around it, so the way up needs no stack.
 */
#ifndef ROLTER_JSON_PARSER_H
#define ROLTER_JSON_PARSER_H

#include "json/json.h"

struct json_parser {
    const char *text, *end;
    struct arena *arena;
    struct json_node *node;
    uint32_t n, cap;
    uint32_t max_depth, max_nodes;
    uint8_t odd;
    bool any_bytes;       /* invalid UTF-8 is noted, no fault */
    bool wide;            /* a byte above 0x7f was met somewhere: UTF-8 is checked behind the scan */
    const char *fault_at; /* set with fault_what when a scan returns false */
    const char *fault_what;
};

/* What a block of the text has: bit i stands for byte i. */
enum { BLOCK = 64 };
struct block_masks {
    uint64_t stop; /* quotes and bytes below 0x20 */
    uint64_t backslash;
};

bool json_scan_base(struct json_parser *ps);
bool json_scan_avx2(struct json_parser *ps);
bool json_scan_avx512(struct json_parser *ps);

/* Notes the fault; always false, so that a scanner can return it. */
bool json_scan_fault(struct json_parser *ps, const char *at, const char *what);
/* Makes room for one more node at least; <p> says how far the scan is. False at max_nodes. */
bool json_scan_grow(struct json_parser *ps, const char *p);
/* Length of the escape at <p> (a backslash) when it is not one of the two-byte ones: 6, or 12 for a surrogate
 * pair; 0 with the fault set. */
unsigned json_scan_unicode(struct json_parser *ps, const char *p);

/* Whether the closed object <obj> has a name twice. O(members). */
bool json_names_repeat(const struct json_parser *ps, uint32_t obj);

/* The AVX2 code, the AVX-512 code may run here. */
bool json_cpu_has_avx2(void);
bool json_cpu_has_avx512(void);

/* Number of bytes of <s> in front of the first one that is not valid UTF-8; s.n when all are. */
size_t json_utf8_valid(struct span s);
/* Length of the valid UTF-8 sequence at <p> (1 to 4), or 0. <n> bytes are there, at least one. */
unsigned json_utf8_len(const unsigned char *p, size_t n);

/* Value of four hexadecimal digits, or -1. */
int json_hex4(const char *p);
/* Unescapes from *<at> on until <end> or until less than JSON_UNESCAPE_ROOM of <cap> is left; moves *<at> and
 * returns the bytes written to <dst>. The text was checked by the parser; <end> is its closing quote. */
enum { JSON_UNESCAPE_ROOM = 32 };
size_t json_unescape(const char **at, const char *end, char *dst, size_t cap);

/* Escapes <s> into <dst>, which has room for 6 * s.n + 32 bytes; returns the bytes written. */
size_t json_escape_into(char *dst, struct span s);

#endif
