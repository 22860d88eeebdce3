/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROLTER_SIGNALS_TCP_BYTES_H
#define ROLTER_SIGNALS_TCP_BYTES_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that came over the TCP connection <fd> so far, by the kernel's count. False for what is none. */
bool tcp_bytes_received(int fd, uint64_t *ret);

#endif
