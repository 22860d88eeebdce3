/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard against requests to places inside (SSRF). It looks at addresses after resolution, so a name that
 * points to a forbidden address is caught, and looks through the ways to write an IPv4 address as an IPv6
 * one.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "net/origin.h"

union address {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum place { PLACE_OUTSIDE, PLACE_LINK_LOCAL, PLACE_LOOPBACK, PLACE_PRIVATE };

struct v4_range {
    uint32_t net;
    unsigned bits;
};

static bool in_range(uint32_t ip, struct v4_range r)
{
    return ((ip ^ r.net) >> (32 - r.bits)) == 0;
}

static enum place classify_v4(uint32_t ip)
{
    static const struct v4_range LOOPBACK[] = {{0x7f000000, 8}, {0x00000000, 8}};
    static const struct v4_range PRIVATE[] = {
        {0x0a000000, 8}, {0xac100000, 12}, {0xc0a80000, 16}, {0x64400000, 10}};
    if (in_range(ip, (struct v4_range){0xa9fe0000, 16}))
        return PLACE_LINK_LOCAL;
    for (size_t i = 0; i < sizeof LOOPBACK / sizeof *LOOPBACK; i++)
        if (in_range(ip, LOOPBACK[i]))
            return PLACE_LOOPBACK;
    for (size_t i = 0; i < sizeof PRIVATE / sizeof *PRIVATE; i++)
        if (in_range(ip, PRIVATE[i]))
            return PLACE_PRIVATE;
    return PLACE_OUTSIDE;
}

static uint32_t read_v4(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The IPv4 address inside a mapped (::ffff:0:0/96), compatible (::/96), NAT64 (64:ff9b::/96) or 6to4
 * (2002::/16) one. */
static bool embedded_v4(const uint8_t *b, uint32_t *ret)
{
    static const uint8_t MAPPED[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t COMPATIBLE[12] = {0};
    static const uint8_t NAT64[12] = {0, 0x64, 0xff, 0x9b};
    if (!memcmp(b, MAPPED, 12) || !memcmp(b, COMPATIBLE, 12) || !memcmp(b, NAT64, 12))
        *ret = read_v4(b + 12);
    else if (b[0] == 0x20 && b[1] == 0x02)
        *ret = read_v4(b + 2);
    else
        return false;
    return true;
}

static enum place classify(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return classify_v4(ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr));
    if (addr->sa_family != AF_INET6)
        return PLACE_OUTSIDE;
    const uint8_t *b = ((const struct sockaddr_in6 *)addr)->sin6_addr.s6_addr;
    uint32_t v4;
    if (IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)b) ||
        IN6_IS_ADDR_UNSPECIFIED((const struct in6_addr *)b))
        return PLACE_LOOPBACK;
    if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80)
        return PLACE_LINK_LOCAL;
    if ((b[0] & 0xfe) == 0xfc || (b[0] == 0xfe && (b[1] & 0xc0) == 0xc0))
        return PLACE_PRIVATE;
    return embedded_v4(b, &v4) ? classify_v4(v4) : PLACE_OUTSIDE;
}

static bool parse_literal(const char *host, union address *ret)
{
    union address a;
    memset(&a, 0, sizeof a);
    if (inet_pton(AF_INET, host, &a.v4.sin_addr) == 1)
        a.v4.sin_family = AF_INET;
    else if (inet_pton(AF_INET6, host, &a.v6.sin6_addr) == 1)
        a.v6.sin6_family = AF_INET6;
    else
        return false;
    *ret = a;
    return true;
}

static bool same_address(const union address *a, const struct sockaddr *b)
{
    if (a->sa.sa_family != b->sa_family)
        return false;
    if (b->sa_family == AF_INET)
        return a->v4.sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return !memcmp(&a->v6.sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof a->v6.sin6_addr);
}

static bool is_allowed(const struct net_egress *e, const char *host, const struct sockaddr *addr)
{
    for (size_t i = 0; i < e->n_allow_hosts; i++) {
        union address literal;
        if (span_eq_nocase(span_str(e->allow_hosts[i]), span_str(host)))
            return true;
        if (parse_literal(e->allow_hosts[i], &literal) && same_address(&literal, addr))
            return true;
    }
    return false;
}

const char *egress_refuses(const struct net_egress *e, const char *host, const struct sockaddr *addr)
{
    if (!e)
        return NULL;
    static const char *const NAMES[] = {NULL, "link-local", "loopback", "private"};
    const bool blocked[] = {false, e->block_link_local, e->block_loopback, e->block_private};
    enum place place = classify(addr);
    return blocked[place] && !is_allowed(e, host, addr) ? NAMES[place] : NULL;
}

const char *egress_refuses_literal(const struct net_egress *e, const char *host)
{
    union address a;
    return parse_literal(host, &a) ? egress_refuses(e, host, &a.sa) : NULL;
}
