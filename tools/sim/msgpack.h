/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes MessagePack: what rolter-sim's events need, each value in its shortest form, as the engines' encoder
 * does. Appends to a buffer; that it is full is the buffer's to say. It reads nothing.
 */
#ifndef ROLTER_SIM_MSGPACK_H
#define ROLTER_SIM_MSGPACK_H

#include "base/buf.h"

void msgpack_nil(struct buf *b);
void msgpack_uint(struct buf *b, uint64_t v);
void msgpack_int(struct buf *b, int64_t v);
void msgpack_double(struct buf *b, double v);
void msgpack_str(struct buf *b, struct span s);
void msgpack_bin(struct buf *b, struct span s);
/* A head; <n> values (map: pairs) follow. */
void msgpack_array(struct buf *b, uint32_t n);
void msgpack_map(struct buf *b, uint32_t n);

#endif
