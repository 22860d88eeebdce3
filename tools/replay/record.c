/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/json.h"
#include "json/write.h"

static void write_row(struct json_out *o, const struct run *r, size_t i)
{
    const struct run_row *row = &r->rows[i];
    json_out_object(o);
    json_out_member_u64(o, "request", i);
    json_out_member_str(o, "strategy", r->strategy);
    json_out_member_u64(o, "blocks", r->blocks);
    json_out_member_u64(o, "at_us", row->at_us);
    json_out_member_u64(o, "first_us", row->first_us);
    json_out_member_u64(o, "end_us", row->end_us);
    json_out_member_str(o, "target", row->replica >= 0 ? r->replicas[row->replica].name : NULL);
    json_out_member_str(o, "reason", row->reason);
    json_out_member_u64(o, "input", row->input);
    json_out_member_u64(o, "cached", row->hit);
    json_out_member_u64(o, "output", row->output);
    json_out_name(o, "status");
    json_out_i64(o, row->status);
    json_out_member_str(o, "error", row->error);
    json_out_object_end(o);
}

bool record_write(FILE *f, const struct run *r)
{
    struct buf b;
    bool ok = true;
    buf_init(&b, 1 << 20);
    for (size_t i = 0; i < (r->rows ? r->n : 0) && ok; i++) {
        struct json_out o;
        buf_clear(&b);
        json_out_init(&o, &b);
        write_row(&o, r, i);
        buf_add_char(&b, '\n');
        ok = !b.full && fwrite(b.p, 1, b.n, f) == b.n;
    }
    buf_fini(&b);
    return ok;
}

struct reading {
    size_t n;
    const char *const *names;
    unsigned n_names;
    struct recorded *ret;
    struct arena arena;
};

/* NULL, or what is wrong with the line. */
static const char *read_line(struct reading *r, struct span line)
{
    struct json_doc d;
    struct json_fault fault;
    if (!json_parse(&r->arena, line, NULL, &d, &fault))
        return fault.what;
    uint64_t request;
    struct recorded row = {.target = -1, .is_known = true, .cached = -1};
    if (!json_u64(&d, json_get(&d, 0, "request"), &request) ||
        !json_u64(&d, json_get(&d, 0, "at_us"), &row.at_us) ||
        !json_u64(&d, json_get(&d, 0, "end_us"), &row.end_us))
        return "no recording: request, at_us and end_us are whole numbers";
    if (request >= r->n)
        return "the trace has no such request";
    if (r->ret[request].is_known)
        return "this request is there twice; a recording of several runs?";
    uint64_t cached;
    if (json_u64(&d, json_get(&d, 0, "cached"), &cached) && cached < INT64_MAX)
        row.cached = (int64_t)cached;
    if (!json_u64(&d, json_get(&d, 0, "first_us"), &row.first_us) || row.first_us < row.at_us ||
        row.first_us > row.end_us)
        row.first_us = 0;
    uint32_t target = json_get(&d, 0, "target");
    if (json_is(&d, target, JSON_STRING)) {
        struct span name = json_string(&d, target, &r->arena);
        for (unsigned i = 0; i < r->n_names; i++)
            if (span_eq(name, span_str(r->names[i])))
                row.target = (int)i;
        if (row.target < 0)
            return "the target is none of --target";
    }
    if (row.end_us < row.at_us)
        return "it ends before it begins";
    r->ret[request] = row;
    return NULL;
}

bool record_read(const char *path, size_t n, const char *const *names, unsigned n_names, struct recorded *ret,
                 char *ret_error, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        snprintf(ret_error, size, "%s: %s", path, strerror(errno));
        return false;
    }
    struct reading r = {n, names, n_names, ret, {0}};
    char *line = NULL;
    size_t cap = 0, number = 0;
    ssize_t got;
    const char *wrong = NULL;
    arena_init(&r.arena, NULL);
    while (!wrong && (got = getline(&line, &cap, f)) > 0) {
        number++;
        wrong = read_line(&r, span_of(line, (size_t)got));
        arena_reset(&r.arena);
    }
    if (!wrong && ferror(f))
        wrong = "it could not be read";
    if (wrong)
        snprintf(ret_error, size, "%s:%zu: %s", path, number, wrong);
    free(line);
    fclose(f);
    return !wrong;
}
