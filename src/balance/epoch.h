/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading shared memory without locks. A thread that may hold pointers into a lock-free structure stands
 * between epoch_enter and epoch_leave; who unlinks something from it hands the memory to epoch_retire, which
 * frees it once every thread that stood inside at that time has left.
 *
 * Entering and leaving cost a few nanoseconds, nobody ever waits, nothing has to be registered. A section is
 * short (a pick); whoever stays inside keeps all memory retired since then from being freed. Sections nest.
 *
 * What is not yet freed is bounded by about 256 KiB or 64 objects per thread while every section ends; an
 * idle thread keeps what it retired last. Threads: any; a thread that ends leaves its rest to the others.
 */
#ifndef ROLTER_BALANCE_EPOCH_H
#define ROLTER_BALANCE_EPOCH_H

#include <stddef.h>

void epoch_enter(void);
void epoch_leave(void);

/* Frees <p> (from malloc, <size> bytes; NULL is fine) when no reader can hold it any more. Inside a section.
 */
void epoch_retire(void *p, size_t size);

/* Frees what this thread and ended threads have retired, as far as no section that began earlier is open.
 * Outside of sections; for shutdown and measurements. */
void epoch_drain(void);

#endif
