/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "json/parser.h"

enum {
    DEFAULT_DEPTH = 128,
    DEFAULT_NODES = 4000000,
    /* A chat request has 20 to 200 nodes: they are gathered on the stack (5 KiB) and the arena gets exactly
     * what is used. */
    STACK_NODES = 256,
};

bool json_scan_fault(struct json_parser *ps, const char *at, const char *what)
{
    ps->fault_at = at;
    ps->fault_what = what;
    return false;
}

bool json_scan_grow(struct json_parser *ps, const char *p)
{
    if (ps->n == ps->max_nodes)
        return json_scan_fault(ps, p, "too many values");
    /* As many as the whole text has when it goes on as it began, and an eighth more. */
    uint64_t bytes = (uint64_t)(ps->end - ps->text), done = (uint64_t)(p - ps->text);
    uint64_t want = ps->n * bytes / (done ? done : 1);
    want += want / 8;
    if (want < (uint64_t)ps->n * 2)
        want = (uint64_t)ps->n * 2;
    if (want > (uint64_t)ps->n * 8)
        want = (uint64_t)ps->n * 8;
    if (want > ps->max_nodes)
        want = ps->max_nodes;
    struct json_node *node = arena_alloc(ps->arena, want * sizeof(*node));
    memcpy(node, ps->node, ps->n * sizeof(*node));
    ps->node = node;
    ps->cap = (uint32_t)want;
    return true;
}

int json_hex4(const char *p)
{
    /* One more than the digit's value, so that 0 is none. */
    static const uint8_t digit[256] = {
        ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
        ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
        ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
    };
    const unsigned char *u = (const unsigned char *)p;
    int a = digit[u[0]] - 1, b = digit[u[1]] - 1, c = digit[u[2]] - 1, d = digit[u[3]] - 1;
    if (UNLIKELY((a | b | c | d) < 0))
        return -1;
    return a << 12 | b << 8 | c << 4 | d;
}

unsigned json_scan_unicode(struct json_parser *ps, const char *p)
{
    size_t n = (size_t)(ps->end - p);
    if (n < 2) {
        json_scan_fault(ps, ps->end, "string without end");
        return 0;
    }
    if (p[1] != 'u') {
        json_scan_fault(ps, p, "unknown escape");
        return 0;
    }
    int v = n >= 6 ? json_hex4(p + 2) : -1;
    if (v < 0) {
        json_scan_fault(ps, p, "expected four hexadecimal digits behind \\u");
        return 0;
    }
    if (v < 0xd800 || v > 0xdfff)
        return 6;
    if (v < 0xdc00 && n >= 12 && p[6] == '\\' && p[7] == 'u') {
        int low = json_hex4(p + 8);
        if (low >= 0xdc00 && low <= 0xdfff)
            return 12;
    }
    ps->odd |= JSON_ODD_LONE_SURROGATE;
    return 6;
}

static bool check_text(struct json_parser *ps)
{
    bool ok = json_cpu_has_avx512() ? json_scan_avx512(ps)
              : json_cpu_has_avx2() ? json_scan_avx2(ps)
                                    : json_scan_base(ps);
    if (!ok)
        return false;
    if (!ps->wide)
        return true;
    size_t bytes = (size_t)(ps->end - ps->text);
    size_t valid = json_utf8_valid(span_of(ps->text, bytes));
    if (valid == bytes)
        return true;
    if (!ps->any_bytes)
        return json_scan_fault(ps, ps->text + valid, "invalid UTF-8");
    ps->odd |= JSON_ODD_INVALID_UTF8;
    return true;
}

bool json_parse(struct arena *a, struct span text, const struct json_limits *limits, struct json_doc *ret,
                struct json_fault *ret_fault)
{
    if (text.n > UINT32_MAX - 1) {
        *ret_fault = (struct json_fault){0, "text of 4 GiB or more"};
        return false;
    }
    if (!text.p)
        text = SPAN("");
    struct json_node stack[STACK_NODES];
    struct json_parser ps = {
        .text = text.p,
        .end = text.p + text.n,
        .arena = a,
        .node = stack,
        .max_depth = limits && limits->max_depth ? limits->max_depth : DEFAULT_DEPTH,
        .max_nodes = limits && limits->max_nodes ? limits->max_nodes : DEFAULT_NODES,
        .any_bytes = limits && limits->any_bytes,
    };
    ps.cap = ps.max_nodes < STACK_NODES ? ps.max_nodes : STACK_NODES;
    if (!check_text(&ps)) {
        *ret_fault = (struct json_fault){(size_t)(ps.fault_at - ps.text), ps.fault_what};
        return false;
    }
    if (ps.node == stack) {
        ps.node = arena_alloc(a, ps.n * sizeof(*stack));
        memcpy(ps.node, stack, ps.n * sizeof(*stack));
    }
    *ret = (struct json_doc){.text = text, .node = ps.node, .n = ps.n, .odd = ps.odd};
    return true;
}
