/* SPDX-License-Identifier: Apache-2.0
 *
 * Where time enters. Everything that can be tested takes the time as an argument; only the edge (loops, main)
 * calls these.
 */
#ifndef ROLTER_BASE_CLOCK_H
#define ROLTER_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic; the origin is arbitrary. */
uint64_t clock_mono_us(void);
uint64_t clock_mono_ms(void);
/* Milliseconds since the epoch. */
uint64_t clock_wall_ms(void);
/* The same for a monotonic time that was just read, mostly without asking the system: a step of the wall
 * clock shows within a second. */
uint64_t clock_wall_ms_at(uint64_t mono_us);

#endif
