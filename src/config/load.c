/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/reader.h"

enum { MAX_REPORT = 4 << 20 };

void config_report_init(struct config_report *r)
{
    *r = (struct config_report){0};
    buf_init(&r->text, MAX_REPORT);
}

void config_report_fini(struct config_report *r)
{
    buf_fini(&r->text);
}

static struct settings *settings_new(void)
{
    struct settings *s = MEM_NEW(struct settings);
    arena_init(&s->arena, NULL);
    return s;
}

static const char *env_text(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

static void apply_overrides(struct settings *s, const struct config_overrides *o)
{
    const char *pepper = env_text("ROLTER_KEY_PEPPER"), *clickhouse = env_text("CLICKHOUSE_URL"),
               *redis = env_text("ROLTER_REDIS_URL");
    if (o && o->host)
        s->server.host = arena_dup(&s->arena, span_str(o->host)).p;
    if (o && o->port_given)
        s->server.port = o->port;
    if (pepper)
        s->server.key_pepper = arena_dup(&s->arena, span_str(pepper)).p;
    if (clickhouse && !s->logging.clickhouse_url)
        s->logging.clickhouse_url = arena_dup(&s->arena, span_str(clickhouse)).p;
    if (redis) {
        s->redis.url = arena_dup(&s->arena, span_str(redis)).p;
        s->redis.url_is_env = true;
    }
}

/* Takes over <r>'s settings and gives them back, or NULL. */
static struct settings *finish(struct reader *r, struct config_report *report)
{
    struct settings *s = r->s;
    reader_report(r, report);
    const bool good = r->errors == 0;
    reader_fini(r);
    if (good)
        return s;
    settings_free(s);
    return NULL;
}

static void parse_into(struct reader *r, struct span text, const struct config_overrides *o)
{
    struct toml_fault fault;
    const struct toml_node *root = toml_tree_parse(&r->scratch, text, &fault);
    if (!root) {
        reader_fault(r, fault.at, "%s", fault.what);
        return;
    }
    reader_read(r, root);
    apply_overrides(r->s, o);
    check_settings(r);
}

struct settings *config_parse(struct span text, const char *name, const struct config_overrides *o,
                              struct config_report *report)
{
    struct reader r;
    reader_init(&r, settings_new(), name);
    parse_into(&r, text, o);
    return finish(&r, report);
}

/* False with errno set. */
static bool read_whole(const char *path, struct buf *out)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    while (error == 0) {
        if (!buf_reserve(out, 65536)) {
            error = EFBIG;
            break;
        }
        const ssize_t n = read(fd, out->p + out->n, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            error = errno;
        if (n <= 0)
            break;
        out->n += (size_t)n;
    }
    close(fd);
    errno = error;
    return error == 0;
}

struct settings *config_load(const char *path, bool may_be_absent, const struct config_overrides *o,
                             struct config_report *report)
{
    struct reader r;
    struct buf text;
    reader_init(&r, settings_new(), path);
    buf_init(&text, (size_t)TOML_MAX_BYTES + 65536);
    const struct toml_place nowhere = {0, 0};
    if (read_whole(path, &text)) {
        parse_into(&r, buf_view(&text), o);
        if (r.errors == 0 && r.s->n_providers == 0) /* of a file: what is parsed from text may be a part */
            reader_warn(&r, nowhere, "there are no [[providers]]: no model can be reached");
        r.s->path = arena_dup(&r.s->arena, span_str(path)).p;
    } else if (errno == ENOENT && may_be_absent) {
        reader_warn(&r, nowhere, "there is no such file; every key has its default");
        parse_into(&r, SPAN_NONE, o);
    } else {
        reader_fault(&r, nowhere, "cannot read it: %s", strerror(errno));
    }
    buf_fini(&text);
    return finish(&r, report);
}
