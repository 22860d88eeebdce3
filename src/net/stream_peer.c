/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about the other end of a stream.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>

#include "net/stream_impl.h"

bool stream_peer_is_gone(struct stream *s)
{
    if (s->closed || s->broken)
        return true;
    int fd = stream_fd(s);
    if (s->is_pipe) {
        struct pollfd p = {.fd = fd};
        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
    }
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n))
        return true;
    return info.tcpi_state == TCP_CLOSE;
}

const char *stream_peer_name(struct stream *s, char *out, size_t n)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    char ip[INET6_ADDRSTRLEN] = "?";
    if (s->is_pipe || s->closed || getpeername(stream_fd(s), (struct sockaddr *)&addr, &len)) {
        snprintf(out, n, "%s", s->is_pipe ? "unix" : "?");
    } else if (addr.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&addr;
        if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr)) { /* an IPv4 client of a listener for both */
            inet_ntop(AF_INET, &a->sin6_addr.s6_addr[12], ip, sizeof ip);
            snprintf(out, n, "%s:%u", ip, ntohs(a->sin6_port));
            return out;
        }
        inet_ntop(AF_INET6, &a->sin6_addr, ip, sizeof ip);
        snprintf(out, n, "[%s]:%u", ip, ntohs(a->sin6_port));
    } else {
        const struct sockaddr_in *a = (const struct sockaddr_in *)&addr;
        inet_ntop(AF_INET, &a->sin_addr, ip, sizeof ip);
        snprintf(out, n, "%s:%u", ip, ntohs(a->sin_port));
    }
    return out;
}
