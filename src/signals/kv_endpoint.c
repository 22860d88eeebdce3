/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of publishers: what libzmq takes, as far as this gateway uses it.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/span.h"
#include "signals/kv_link.h"

static const struct span tcp = {"tcp://", 6}, ipc = {"ipc://", 6};

/* tcp://HOST:PORT. */
static bool split(struct span s, struct span *host, unsigned *port)
{
    if (!span_starts(s, tcp))
        return false;
    const char *colon = memrchr(s.p, ':', s.n);
    *host = span_of(s.p + tcp.n, (size_t)(colon - s.p) > tcp.n ? (size_t)(colon - s.p) - tcp.n : 0);
    const char *p = colon + 1, *end = s.p + s.n;
    *port = 0;
    for (; p < end && *p >= '0' && *p <= '9' && *port < 100000; p++)
        *port = *port * 10 + (unsigned)(*p - '0');
    return p == end && colon + 1 < end && host->n > 0;
}

static bool is_any_host(struct span host)
{
    return span_eq(host, SPAN("*")) || span_eq(host, SPAN("0.0.0.0")) || span_eq(host, SPAN("[::]"));
}

const char *kv_endpoint_fault(const char *endpoint, unsigned ranks, bool bind)
{
    struct span s = span_str(endpoint), host;
    unsigned port;
    if (span_starts(s, ipc)) {
        if (s.n == ipc.n || s.n - ipc.n >= 100)
            return "ipc:// needs a path of less than 100 bytes";
        return ranks > 1 ? "ipc:// has no ports, so dp_ranks must be 1" : NULL;
    }
    if (!split(s, &host, &port))
        return "must be tcp://HOST:PORT or ipc://PATH";
    if (port == 0 || port > 65535)
        return "the port must be from 1 to 65535";
    if (port + ranks - 1 > 65535)
        return "the ports of the further dp_ranks are above 65535";
    if (!bind && is_any_host(host))
        return "names no host to connect to (an endpoint to listen on needs bind = true)";
    for (size_t i = 0; i < host.n; i++)
        if ((unsigned char)host.p[i] <= ' ' || host.p[i] == '/' || host.p[i] == ';')
            return "must be tcp://HOST:PORT or ipc://PATH";
    return NULL;
}

bool kv_endpoints_meet(const char *a, unsigned a_ranks, const char *b, unsigned b_ranks)
{
    struct span a_host, b_host;
    unsigned a_port, b_port;
    if (!split(span_str(a), &a_host, &a_port) || !split(span_str(b), &b_host, &b_port))
        return strcmp(a, b) == 0;
    return (span_eq_nocase(a_host, b_host) || is_any_host(a_host) || is_any_host(b_host)) &&
           a_port < b_port + b_ranks && b_port < a_port + a_ranks;
}

void kv_endpoint_host(const char *endpoint, char *ret, size_t size)
{
    struct span host = SPAN_NONE;
    unsigned port;
    if (!split(span_str(endpoint), &host, &port))
        host = SPAN_NONE;
    if (host.n > 2 && host.p[0] == '[')
        host = span_of(host.p + 1, host.n - 2);
    snprintf(ret, size, "%.*s", SPAN_FMT(host));
}

char *kv_endpoint_of_rank(const char *endpoint, unsigned add)
{
    struct span host;
    unsigned port;
    if (add == 0 || !split(span_str(endpoint), &host, &port))
        return mem_strdup(endpoint);
    return mem_printf("tcp://%.*s:%u", SPAN_FMT(host), port + add);
}
