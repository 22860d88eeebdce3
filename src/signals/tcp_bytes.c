/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of its own: the kernel's header, which alone has the count, cannot stand beside libc's.
 */
#include "signals/tcp_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool tcp_bytes_received(int fd, uint64_t *ret)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0 ||
        n < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return false;
    *ret = info.tcpi_bytes_received;
    return true;
}
