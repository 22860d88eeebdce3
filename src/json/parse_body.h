/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan of a JSON text, included once by each of the files that compile it. The including file defines
 * before:
 *
 *   SCAN                name of the function
 *   SCAN_TARGET         attribute of every function here (which instructions the compiler may use), or
 * nothing struct block_seen, block_seen_wide(seen) gathers the bytes, so that one look at the end tells
 * whether any was above 0x7f FIRST, first_special(p, seen) how many bytes, at most 32, of a string are looked
 * at first; bit i is set when p[i] is a quote, a backslash or below 0x20. Most strings end within these.
 *   block_look(p, seen) of BLOCK bytes, which quotes and bytes below 0x20 there are, and which backslashes
 *   block_skip(p, end, seen)
 *                       moves on by whole blocks while they have nothing special
 *   block_simple(p)     the characters that end an escape of two bytes
 *
 * Longer strings are looked at by blocks of 64 bytes as masks of 64 bits, and what is escaped comes from an
 * addition (as in Langdale and Lemire, "Parsing gigabytes of JSON per second"), so that a block costs the
 * same however many escapes it has. `seen` may take in bytes behind a string: it only decides whether the
 * check of UTF-8, which goes over the whole text, is needed.
 */
#include "base/check.h"
#include "json/parser.h"

static inline SCAN_TARGET const char *skip_space(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* A whole block that ends with the <n> bytes, fewer than BLOCK, which are left of the text. */
static inline SCAN_TARGET const char *tail_block(const struct json_parser *ps, size_t n, char pad[BLOCK])
{
    if (LIKELY(ps->end - ps->text >= BLOCK))
        return ps->end - BLOCK;
    memset(pad, ' ', BLOCK);
    memcpy(pad + BLOCK - n, ps->end - n, n);
    return pad;
}

/* The characters that an escape ends with: those behind a run of backslashes of odd length. *carry is 1 when
 * the first one of the block is such a character, and is set for the block behind it. */
static inline SCAN_TARGET uint64_t escaped_bits(uint64_t backslash, uint64_t *carry)
{
    const uint64_t odd = 0xaaaaaaaaaaaaaaaa;
    backslash &= ~*carry;
    uint64_t behind = backslash << 1 | *carry, sum;
    /* Adding the starts of runs that begin at odd places moves these runs' bits one behind their ends. */
    *carry = __builtin_add_overflow(backslash & odd & ~behind, backslash, &sum);
    return (~odd ^ sum << 1) & behind;
}

/* From <p>, a backslash that no simple escape begins with; returns the place behind this escape and those of
 * the same kind that follow at once: texts in other scripts are often all \uXXXX. NULL with the fault set. */
static SCAN_TARGET const char *scan_unicode_run(struct json_parser *ps, const char *p)
{
    do {
        unsigned len = json_scan_unicode(ps, p);
        if (len == 0)
            return NULL;
        p += len;
    } while (ps->end - p >= 2 && p[0] == '\\' && p[1] == 'u');
    return p;
}

/* The rest of a string of which something other than its closing quote comes next; see scan_string. */
static SCAN_TARGET const char *scan_string_on(struct json_parser *ps, struct block_seen *seen, const char *p,
                                              uint8_t *flags)
{
    uint64_t carry = 0;
    bool any = false; /* backslashes in the blocks before */
    const char *const end = ps->end;
    for (size_t n; (n = (size_t)(end - p)) > 0; p += n) {
        char pad[BLOCK];
        const char *block = p;
        if (LIKELY(n >= BLOCK))
            n = BLOCK;
        else
            block = tail_block(ps, n, pad);
        struct block_masks m = block_look(block, seen);
        unsigned shift = (unsigned)(BLOCK - n);
        uint64_t stop = m.stop >> shift, backslash = m.backslash >> shift, bad = 0;
        if (backslash | carry) {
            uint64_t escaped = escaped_bits(backslash, &carry);
            bad = escaped & ~(block_simple(block) >> shift) & (UINT64_MAX >> shift);
            stop = (stop & ~escaped) | bad;
        } else if (stop == 0 && n == BLOCK) {
            p = block_skip(p + BLOCK, end, seen) - BLOCK;
            continue;
        }
        if (stop == 0) {
            any |= backslash != 0;
            continue;
        }
        unsigned i = (unsigned)__builtin_ctzll(stop);
        if (bad >> i & 1) {
            p = scan_unicode_run(ps, p + i - 1);
            if (!p)
                return NULL;
            carry = n = 0;
            any = true;
            continue;
        }
        if (any || (backslash & (((uint64_t)1 << i) - 1)))
            *flags |= JSON_ESCAPED;
        if (p[i] == '"')
            return p + i + 1;
        json_scan_fault(ps, p + i, "control character in a string");
        return NULL;
    }
    json_scan_fault(ps, end, "string without end");
    return NULL;
}

/* <p> is behind the opening quote; returns the place behind the closing one, or NULL with the fault set. */
static inline SCAN_TARGET const char *scan_string(struct json_parser *ps, struct block_seen *seen,
                                                  const char *p, uint8_t *flags)
{
    if (LIKELY(ps->end - p >= FIRST)) {
        uint32_t special = first_special(p, seen);
        if (special) {
            p += __builtin_ctz(special);
            if (LIKELY(*p == '"'))
                return p + 1;
            return scan_string_on(ps, seen, p, flags);
        }
        p += FIRST;
    }
    return scan_string_on(ps, seen, p, flags);
}

static inline SCAN_TARGET bool is_digit(const char *p, const char *end)
{
    return p < end && (unsigned char)(*p - '0') < 10;
}

/* Eight at a time, so that the length of a number costs no guess of the processor. */
static inline SCAN_TARGET const char *skip_digits(const char *p, const char *end)
{
    while (end - p >= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        /* A digit has 3 in its upper half, and still has with 6 added. */
        uint64_t other = ((x & (x + 0x0606060606060606)) & 0xf0f0f0f0f0f0f0f0) ^ 0x3030303030303030;
        other |= (x ^ 0x3030303030303030) & 0xf0f0f0f0f0f0f0f0;
        if (other) {
            /* The lowest byte stands first; a carry out of a byte only reaches those behind it. */
            return p + (__builtin_ctzll(other) >> 3);
        }
        p += 8;
    }
    while (is_digit(p, end))
        p++;
    return p;
}

static inline SCAN_TARGET const char *scan_number(struct json_parser *ps, const char *p)
{
    const char *end = ps->end;
    p += *p == '-';
    if (!is_digit(p, end))
        goto bad;
    if (*p++ != '0')
        p = skip_digits(p, end);
    if (p < end && *p == '.') {
        if (!is_digit(++p, end))
            goto bad;
        p = skip_digits(p, end);
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        if (!is_digit(p, end))
            goto bad;
        p = skip_digits(p, end);
    }
    return p;
bad:
    json_scan_fault(ps, p, "expected a digit");
    return NULL;
}

static inline SCAN_TARGET const char *scan_literal(struct json_parser *ps, const char *p, const char *word,
                                                   size_t n)
{
    if ((size_t)(ps->end - p) >= n && memcmp(p, word, n) == 0)
        return p + n;
    json_scan_fault(ps, p, "expected a value");
    return NULL;
}

/* A value that is no container; sets its type and flags, returns the place behind it. */
static inline SCAN_TARGET const char *scan_scalar(struct json_parser *ps, struct block_seen *seen,
                                                  const char *p, struct json_node *n)
{
    n->flags = 0;
    switch (*p) {
    case '"':
        n->type = JSON_STRING;
        return scan_string(ps, seen, p + 1, &n->flags);
    case 't':
        n->type = JSON_TRUE;
        return scan_literal(ps, p, "true", 4);
    case 'f':
        n->type = JSON_FALSE;
        return scan_literal(ps, p, "false", 5);
    case 'n':
        n->type = JSON_NULL;
        return scan_literal(ps, p, "null", 4);
    case '-':
    case '0' ... '9':
        n->type = JSON_NUMBER;
        return scan_number(ps, p);
    default:
        json_scan_fault(ps, p, "expected a value");
        return NULL;
    }
}

/* Makes sure of room for two nodes (a name and its value). */
#define ROOM()                                                                                               \
    do {                                                                                                     \
        if (UNLIKELY(n == ps->cap)) {                                                                        \
            ps->n = n;                                                                                       \
            if (!json_scan_grow(ps, p))                                                                      \
                return false;                                                                                \
            node = ps->node;                                                                                 \
        }                                                                                                    \
    } while (0)

#define AT(c) (p < end && *p == (c))

/* One value and the white space around it; ps->node, n, odd and wide are set when it is one. */
SCAN_TARGET bool SCAN(struct json_parser *ps)
{
    const char *const text = ps->text, *const end = ps->end;
    const char *p = skip_space(text, end), *q;
    struct json_node *node = ps->node;
    struct block_seen seen = {0};
    uint32_t n = 0, open = JSON_NODE_NONE, depth = 0;

value:
    ROOM();
    if (UNLIKELY(p == end))
        return json_scan_fault(ps, p, "expected a value");
    if (*p == '{' || *p == '[') {
        if (depth == ps->max_depth)
            return json_scan_fault(ps, p, "nested too deep");
        depth++;
        node[n] = (struct json_node){
            .at = (uint32_t)(p - text), .end = open, .type = *p == '{' ? JSON_OBJECT : JSON_ARRAY};
        open = n++;
        p = skip_space(p + 1, end);
        if (node[open].type == JSON_OBJECT) {
            if (AT('}'))
                goto close;
            goto name;
        }
        if (AT(']'))
            goto close;
        node[open].count = 1;
        goto value;
    }
    q = scan_scalar(ps, &seen, p, &node[n]);
    if (UNLIKELY(!q))
        return false;
    node[n].at = (uint32_t)(p - text);
    node[n].len = (uint32_t)(q - p);
    node[n].end = n + 1;
    node[n].count = 0;
    n++;
    p = q;

behind:
    p = skip_space(p, end);
    if (open == JSON_NODE_NONE) {
        if (p != end)
            return json_scan_fault(ps, p, "expected the end of the text");
        ps->n = n;
        ps->wide |= block_seen_wide(&seen);
        return true;
    }
    if (AT(',')) {
        p = skip_space(p + 1, end);
        if (node[open].type == JSON_OBJECT)
            goto name;
        node[open].count++;
        goto value;
    }
    if (node[open].type == JSON_OBJECT ? !AT('}') : !AT(']'))
        return json_scan_fault(
            ps, p, node[open].type == JSON_OBJECT ? "expected ',' or '}'" : "expected ',' or ']'");

close:
    p++;
    q = text + node[open].at;
    {
        uint32_t up = node[open].end;
        node[open].len = (uint32_t)(p - q);
        node[open].end = n;
        if (node[open].count > 1 && node[open].type == JSON_OBJECT && json_names_repeat(ps, open))
            ps->odd |= JSON_ODD_DUPLICATE;
        open = up;
    }
    depth--;
    goto behind;

name:
    if (UNLIKELY(!AT('"')))
        return json_scan_fault(ps, p, "expected a member's name");
    ROOM();
    node[n].flags = JSON_IS_NAME;
    q = scan_string(ps, &seen, p + 1, &node[n].flags);
    if (UNLIKELY(!q))
        return false;
    node[n].at = (uint32_t)(p - text);
    node[n].len = (uint32_t)(q - p);
    node[n].end = n + 1;
    node[n].count = 0;
    node[n].type = JSON_STRING;
    n++;
    node[open].count++;
    p = skip_space(q, end);
    if (UNLIKELY(!AT(':')))
        return json_scan_fault(ps, p, "expected ':'");
    p = skip_space(p + 1, end);
    goto value;
}
