/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/url.h"

#include <stdlib.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/mem.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decoded, or NULL when it is broken or holds a NUL. */
static char *decode(struct span s)
{
    char *out = mem_alloc(s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        int c = (unsigned char)s.p[i];
        if (c == '%') {
            const int high = i + 2 < s.n ? hex_value(s.p[i + 1]) : -1;
            const int low = i + 2 < s.n ? hex_value(s.p[i + 2]) : -1;
            c = high < 0 || low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (c == 0) {
            free(out);
            return NULL;
        }
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return out;
}

static ptrdiff_t find(struct span s, char c)
{
    const char *at = s.n ? memchr(s.p, c, s.n) : NULL;
    return at ? at - s.p : -1;
}

static struct span behind(struct span s, size_t n)
{
    return span_of(s.p + n, s.n - n);
}

/* Takes "user:password@" off the front of *rest. A password may hold '@' only percent-encoded. */
static const char *take_user(struct span *rest, struct redis_url *u)
{
    const ptrdiff_t slash = find(*rest, '/');
    const ptrdiff_t at = find(span_of(rest->p, slash < 0 ? rest->n : (size_t)slash), '@');
    if (at < 0)
        return NULL;
    const struct span info = span_of(rest->p, (size_t)at);
    const ptrdiff_t colon = find(info, ':');
    *rest = behind(*rest, (size_t)at + 1);
    if (colon < 0)
        return "a user needs a password (USER:PASSWORD@)";
    if (colon && !(u->user = decode(span_of(info.p, (size_t)colon))))
        return "the user is not percent-encoded text";
    if (!(u->password = decode(behind(info, (size_t)colon + 1))))
        return "the password is not percent-encoded text";
    return *u->password ? NULL : "the password is empty";
}

static const char *take_db(struct span s, struct redis_url *u)
{
    uint64_t db;
    if (!span_to_u64(s, &db) || db > REDIS_DB_MAX)
        return "the database is not a number";
    u->db = (unsigned)db;
    return NULL;
}

static const char *parse_socket(struct span rest, struct redis_url *u)
{
    const ptrdiff_t query = find(rest, '?');
    if (query >= 0) {
        const struct span q = behind(rest, (size_t)query + 1);
        if (!span_starts(q, SPAN("db=")))
            return "the query knows \"db\" only";
        const char *why = take_db(behind(q, 3), u);
        if (why)
            return why;
        rest.n = (size_t)query;
    }
    if (rest.n == 0 || rest.p[0] != '/')
        return "the path of the socket is not absolute";
    if (!(u->path = decode(rest)))
        return "the path of the socket is not percent-encoded text";
    if (strlen(u->path) >= sizeof((struct sockaddr_un){0}).sun_path)
        return "the path of the socket is too long";
    u->name = mem_printf("unix://%s", u->path);
    return NULL;
}

static bool has_port(struct span host)
{
    const ptrdiff_t bracket = find(host, ']');
    return find(bracket < 0 ? host : behind(host, (size_t)bracket), ':') >= 0;
}

/* Hosts and ports are checked where those of upstreams are. */
static const char *parse_host(struct span rest, bool tls, struct redis_url *u)
{
    const ptrdiff_t slash = find(rest, '/');
    if (find(rest, '?') >= 0 || find(rest, '#') >= 0)
        return "a query or a fragment has no meaning here";
    if (slash >= 0) {
        const struct span db = behind(rest, (size_t)slash + 1);
        const char *why = db.n ? take_db(db, u) : NULL;
        if (why)
            return why;
        rest.n = (size_t)slash;
    }
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_add_str(&b, "http://");
    buf_add_span(&b, rest);
    if (!has_port(rest))
        buf_printf(&b, ":%u", REDIS_PORT);
    const char *why = NULL;
    if (!origin_parse(buf_view(&b), &u->origin, &why))
        u->origin = (struct net_origin){0};
    else
        u->name = mem_printf("%s://%.*s", tls ? "rediss" : "redis", (int)(b.n - 7), b.p + 7);
    buf_fini(&b);
    if (why)
        return why;
    u->origin.tls = tls;
    u->origin.verify = true;
    origin_seal(&u->origin);
    return NULL;
}

static const char *parse(struct span url, struct redis_url *u)
{
    static const struct {
        const char *prefix;
        bool tls, is_path;
    } SCHEMES[] = {
        {"redis://", false, false},
        {"rediss://", true, false},
        {"unix://", false, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(SCHEMES); i++) {
        if (!span_starts(url, span_str(SCHEMES[i].prefix)))
            continue;
        struct span rest = behind(url, strlen(SCHEMES[i].prefix));
        const char *why = take_user(&rest, u);
        if (why)
            return why;
        return SCHEMES[i].is_path ? parse_socket(rest, u) : parse_host(rest, SCHEMES[i].tls, u);
    }
    return "it begins with none of redis://, rediss://, unix://";
}

bool redis_url_parse(struct span url, struct redis_url *ret, const char **ret_why)
{
    struct redis_url u = {0};
    const char *why = parse(url, &u);
    if (why) {
        redis_url_fini(&u);
        *ret_why = why;
        return false;
    }
    *ret = u;
    return true;
}

const char *redis_url_fault(const char *url, bool cluster)
{
    struct redis_url u;
    const char *why = NULL;
    if (!redis_url_parse(span_str(url), &u, &why))
        return why;
    if (cluster && (u.path || u.db))
        why = "a cluster has neither Unix sockets nor numbered databases";
    redis_url_fini(&u);
    return why;
}

void redis_url_fini(struct redis_url *u)
{
    if (u->origin.host)
        origin_fini(&u->origin);
    MEM_FREE(u->path);
    MEM_FREE(u->user);
    MEM_FREE(u->password);
    MEM_FREE(u->name);
}
