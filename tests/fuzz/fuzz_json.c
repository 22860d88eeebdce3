/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes are either refused with a fault inside the text or read into a well-formed index; the compact
 * form reads again to the same compact form; a string in pieces is the string in one; what the writer makes
 * of a string reads back as it. Both scanners judge alike.
 */
#include <stdlib.h>

#include "base/check.h"
#include "json/parser.h"
#include "json/write.h"

static void collect(void *arg, const char *p, size_t n)
{
    CHECK(n > 0);
    buf_add(arg, p, n);
}

/* Reads <text> and checks the index; the compact form goes to <out>. False when it is refused. */
static bool read_compact(struct arena *a, struct span text, struct json_doc *d, struct buf *out)
{
    struct json_fault fault = {SIZE_MAX, NULL};
    if (!json_parse(a, text, NULL, d, &fault)) {
        CHECK(fault.what && fault.at <= text.n);
        return false;
    }
    CHECK(d->n > 0 && d->node[0].end == d->n);
    json_compact_each(d, 0, collect, out);
    return true;
}

static void check_string(const struct json_doc *d, uint32_t i, struct arena *a)
{
    struct buf pieces, written;
    struct json_out o;
    struct json_doc again;
    struct json_fault fault;
    struct span s = json_string(d, i, a);
    buf_init(&pieces, 1 << 24);
    buf_init(&written, 1 << 24);
    json_string_each(d, i, collect, &pieces);
    CHECK(span_eq(buf_view(&pieces), s));
    CHECK(json_string_eq(d, i, s));
    json_out_init(&o, &written);
    json_out_string(&o, s);
    CHECK(json_parse(a, buf_view(&written), NULL, &again, &fault));
    CHECK(json_string_eq(&again, 0, s));
    buf_fini(&pieces);
    buf_fini(&written);
}

static void check_node(const struct json_doc *d, uint32_t i, struct arena *a)
{
    const struct json_node *n = &d->node[i];
    CHECK(n->end > i && n->end <= d->n && n->len > 0 && n->at + (size_t)n->len <= d->text.n);
    uint32_t count = 0;
    for (uint32_t k = json_first(d, i); k != JSON_NODE_NONE; k = json_next(d, i, k)) {
        CHECK(k > i && k < n->end);
        count++;
    }
    CHECK(count == n->count);
    uint64_t u;
    double v;
    if (n->type == JSON_STRING) {
        check_string(d, i, a);
        CHECK(!memchr(d->text.p + n->at, '\\', n->len) == !(n->flags & JSON_ESCAPED));
    }
    if (json_u64(d, i, &u))
        CHECK(json_double(d, i, &v));
}

static void check_scanners(struct arena *a, struct span text)
{
    bool (*const scanners[])(struct json_parser *) = {json_scan_base, json_scan_avx2, json_scan_avx512};
    const bool there[] = {true, json_cpu_has_avx2(), json_cpu_has_avx512()};
    struct json_parser ps[3];
    bool ok[3];
    for (int k = 0; k < 3 && there[k]; k++) {
        ps[k] = (struct json_parser){
            .text = text.p, .end = text.p + text.n, .arena = a, .max_depth = 128, .max_nodes = 4000000};
        ps[k].cap = (uint32_t)text.n + 1;
        ps[k].node = ARENA_ARRAY(a, struct json_node, ps[k].cap);
        ok[k] = scanners[k](&ps[k]);
        CHECK(ok[0] == ok[k] && ps[0].odd == ps[k].odd);
        CHECK(ok[0] ? ps[0].n == ps[k].n : ps[0].fault_at == ps[k].fault_at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct json_doc d, e;
    struct buf first, second;
    arena_init(&a, NULL);
    buf_init(&first, 1 << 24);
    buf_init(&second, 1 << 24);
    struct span text = span_of((const char *)data, size);
    check_scanners(&a, text);
    if (read_compact(&a, text, &d, &first)) {
        for (uint32_t i = 0; i < d.n; i++)
            check_node(&d, i, &a);
        CHECK(read_compact(&a, buf_view(&first), &e, &second));
        CHECK(span_eq(buf_view(&first), buf_view(&second)));
        CHECK(d.n == e.n && d.odd == e.odd);
    }
    buf_fini(&first);
    buf_fini(&second);
    arena_reset(&a);
    return 0;
}
