/* SPDX-License-Identifier: Apache-2.0 */
#include "net/origin.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"

enum { HOST_MAX = 253, PORT_MAX = 65535, HTTP_PORT = 80, HTTPS_PORT = 443, LABEL_MAX = 63 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool is_name_char(char c)
{
    char l = to_lower(c);
    return (l >= 'a' && l <= 'z') || is_digit(c) || c == '-' || c == '_';
}

/* A last label of digits or 0x... makes resolvers read the name as a number (inet_aton), which would hide an
 * address from the checks of literals. */
static bool looks_like_number(const char *host)
{
    size_t n = strlen(host);
    if (n && host[n - 1] == '.')
        n--;
    size_t start = n;
    while (start && host[start - 1] != '.')
        start--;
    if (n - start >= 2 && host[start] == '0' && host[start + 1] == 'x')
        return true;
    for (size_t i = start; i < n; i++)
        if (!is_digit(host[i]))
            return false;
    return n > start;
}

static const char *check_name(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return NULL;
    if (strlen(host) > HOST_MAX)
        return "the host is too long";
    if (looks_like_number(host))
        return "the host is not a valid IPv4 address";
    struct span rest = span_str(host), label;
    if (rest.n && rest.p[rest.n - 1] == '.')
        rest.n--;
    if (rest.n == 0)
        return "the host is missing";
    if (rest.p[rest.n - 1] == '.')
        return "the host has an empty label";
    while (span_split(&rest, '.', &label)) {
        if (label.n == 0)
            return "the host has an empty label";
        if (label.n > LABEL_MAX)
            return "the host has a label of more than 63 characters";
        for (size_t i = 0; i < label.n; i++)
            if (!is_name_char(label.p[i]))
                return "the host has a character that names do not have";
    }
    return NULL;
}

static const char *parse_port(struct span s, uint16_t *ret)
{
    uint64_t port;
    if (s.n == 0)
        return "the port is empty";
    if (!span_to_u64(s, &port) || port == 0 || port > PORT_MAX)
        return "the port is not a number from 1 to 65535";
    *ret = (uint16_t)port;
    return NULL;
}

static char *dup_lower(struct span s)
{
    char *out = mem_spandup(s);
    for (char *p = out; *p; p++)
        *p = to_lower(*p);
    return out;
}

/* host[:port] or [v6][:port]; fills host and port, host_header is made by the caller. */
static const char *parse_authority(struct span a, struct net_origin *o)
{
    struct span host = a, port = SPAN_NONE;
    if (memchr(a.p, '@', a.n))
        return "user information is not allowed in the URL";
    if (a.n && a.p[0] == '[') {
        const char *end = memchr(a.p, ']', a.n);
        if (!end)
            return "the bracket of the IPv6 address is not closed";
        host = span_of(a.p + 1, (size_t)(end - a.p) - 1);
        size_t behind = a.n - host.n - 2;
        if (behind && end[1] != ':')
            return "characters stand behind the IPv6 address";
        if (behind)
            port = span_of(end + 2, behind - 1);
    } else {
        const char *colon = memchr(a.p, ':', a.n);
        if (colon) {
            host.n = (size_t)(colon - a.p);
            port = span_of(colon + 1, a.n - host.n - 1);
        }
    }
    if (host.n == 0)
        return "the host is missing";
    if (port.p) {
        const char *why = parse_port(port, &o->port);
        if (why)
            return why;
    }
    if (host.n > HOST_MAX + 1 || memchr(host.p, 0, host.n))
        return "the host is not valid";
    o->host = dup_lower(host);
    if (a.p[0] != '[')
        return check_name(o->host);
    struct in6_addr v6;
    return inet_pton(AF_INET6, o->host, &v6) == 1 ? NULL : "the IPv6 address is not valid";
}

static const char *check_path(struct span path)
{
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c == '?')
            return "a query is not allowed in the URL";
        if (c == '#')
            return "a fragment is not allowed in the URL";
        if (c <= ' ' || c >= 0x7f)
            return "the path has a character that must be percent-encoded";
    }
    return NULL;
}

static const char *parse(struct span url, struct net_origin *o)
{
    if (url.n >= 8 && span_eq_nocase(span_of(url.p, 8), SPAN("https://"))) {
        o->tls = true;
        url = span_of(url.p + 8, url.n - 8);
    } else if (url.n >= 7 && span_eq_nocase(span_of(url.p, 7), SPAN("http://"))) {
        url = span_of(url.p + 7, url.n - 7);
    } else {
        return "the URL does not start with http:// or https://";
    }
    o->port = o->tls ? HTTPS_PORT : HTTP_PORT;
    struct span authority = url;
    for (authority.n = 0; authority.n < url.n; authority.n++)
        if (strchr("/?#", url.p[authority.n]) && url.p[authority.n])
            break;
    struct span path = span_of(url.p + authority.n, url.n - authority.n);
    if (authority.n == 0)
        return "the host is missing";
    const char *why = parse_authority(authority, o);
    if (!why)
        why = check_path(path);
    if (why)
        return why;
    while (path.n && path.p[path.n - 1] == '/')
        path.n--;
    o->base_path = mem_spandup(path);
    return NULL;
}

bool origin_parse(struct span url, struct net_origin *ret, const char **ret_why)
{
    struct net_origin o = {.verify = true};
    const char *why = parse(url, &o);
    if (why) {
        origin_fini(&o);
        *ret_why = why;
        return false;
    }
    bool v6 = strchr(o.host, ':') != NULL;
    bool usual = o.port == (o.tls ? HTTPS_PORT : HTTP_PORT);
    o.host_header = usual ? mem_printf(v6 ? "[%s]" : "%s", o.host)
                          : mem_printf(v6 ? "[%s]:%u" : "%s:%u", o.host, (unsigned)o.port);
    origin_seal(&o);
    *ret = o;
    return true;
}

/* A bundle that was renewed is another one: connections and contexts made with the old roots end. */
static void add_bundle(struct buf *b, const char *path)
{
    struct stat st = {0};
    if (stat(path, &st) < 0)
        st = (struct stat){0};
    buf_printf(b, "|ca=%s@%lld.%09ld,%llu,%lld", path, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (unsigned long long)st.st_ino, (long long)st.st_size);
}

static char *roots_of(const struct net_origin *o)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_printf(&b, "%d", o->tls && !o->verify);
    for (size_t i = 0; o->tls && i < o->n_ca_bundles; i++)
        add_bundle(&b, o->ca_bundles[i]);
    char *roots = mem_spandup(buf_view(&b));
    buf_fini(&b);
    return roots;
}

void origin_seal(struct net_origin *o)
{
    struct buf b;
    free(o->roots);
    o->roots = roots_of(o);
    buf_init(&b, SIZE_MAX / 2);
    buf_printf(&b, "%s|%s|%u|%s", o->tls ? "https" : "http", o->host, (unsigned)o->port, o->roots);
    /* A kept connection must not carry requests of an origin whose rules would have refused its address. */
    const struct net_egress *e = o->egress;
    if (e) {
        buf_printf(&b, "|egress=%d%d%d", e->block_link_local, e->block_loopback, e->block_private);
        for (size_t i = 0; i < e->n_allow_hosts; i++)
            buf_printf(&b, ",%s", e->allow_hosts[i]);
    }
    free(o->key);
    o->key = mem_spandup(buf_view(&b));
    buf_fini(&b);
}

void origin_fini(struct net_origin *o)
{
    MEM_FREE(o->host);
    MEM_FREE(o->base_path);
    MEM_FREE(o->host_header);
    MEM_FREE(o->key);
    MEM_FREE(o->roots);
}
