/* SPDX-License-Identifier: Apache-2.0
 *
 * Where entries live: apart from the rest of the heap, so that memory_bytes says what they occupy. With
 * jemalloc they have an arena of their own whose free pages go back to the system at once; an allocator keeps
 * them for ten seconds otherwise, which under a stream of large entries makes a sixth of the store. That
 * costs page faults, which are dearer than all else of a large entry; so a handful of blocks (at most a
 * megabyte) waits for the next entries, and of a block that is longer than its new entry the pages behind it
 * go back. With another allocator it is plain malloc. Threads: any; one lock, a leaf.
 */
#ifndef ROLTER_CACHE_ENTRY_HEAP_H
#define ROLTER_CACHE_ENTRY_HEAP_H

#include <stddef.h>

/* Ends the process when memory is gone; an outsider's <n> was checked against a limit. */
void *entry_heap_alloc(size_t n);
/* <touched>: its entry_heap_bytes. */
void entry_heap_free(void *p, size_t touched);
/* What an allocation of <n> bytes at <p> really occupies: pages that it touches, or its size class. */
size_t entry_heap_bytes(const void *p, size_t n);

#endif
