/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane's prompts: entries from chunks, by number, in a list from the newest to the oldest.
 */
#include <stdlib.h>

#include "balance/prefix_tree.h"
#include "base/mem.h"

struct lane *lane_new(uint32_t id)
{
    struct lane *l = aligned_alloc(64, (sizeof *l + 63) / 64 * 64);
    CHECK_MSG(l != NULL, "out of memory");
    memset(l, 0, sizeof *l);
    l->id = id;
    l->first_free = l->newest = l->oldest = ENTRY_NONE;
    return l;
}

void lane_free(struct lane *l)
{
    if (!l)
        return;
    lane_empty_pool(l);
    free(l);
}

struct entry *lane_entry(const struct lane *l, uint32_t i)
{
    return &l->chunks[i / CHUNK_ENTRIES][i % CHUNK_ENTRIES];
}

static void add_chunk(struct lane *l)
{
    if (l->n_chunks == l->cap_chunks) {
        uint32_t cap = l->cap_chunks ? l->cap_chunks * 2 : 1;
        l->chunks = mem_realloc(l->chunks, cap * sizeof *l->chunks);
        lane_allocated(l, (int64_t)((cap - l->cap_chunks) * sizeof *l->chunks));
        l->cap_chunks = cap;
    }
    l->chunks[l->n_chunks++] = mem_array(CHUNK_ENTRIES, sizeof(struct entry));
    lane_allocated(l, CHUNK_ENTRIES * sizeof(struct entry));
    lane_count(l, 0, CHUNK_CHARGE);
}

void lane_empty_pool(struct lane *l)
{
    for (uint32_t i = 0; i < l->n_chunks; i++)
        free(l->chunks[i]);
    free(l->chunks);
    lane_allocated(l, -(int64_t)(l->n_chunks * CHUNK_ENTRIES * sizeof(struct entry) +
                                 l->cap_chunks * sizeof *l->chunks));
    lane_count(l, 0, -(int64_t)l->n_chunks * CHUNK_CHARGE);
    l->chunks = NULL;
    l->n_chunks = l->cap_chunks = l->used = 0;
    l->first_free = l->newest = l->oldest = ENTRY_NONE;
}

static void unlink_entry(struct lane *l, struct entry *e)
{
    *(e->newer == ENTRY_NONE ? &l->newest : &lane_entry(l, e->newer)->older) = e->older;
    *(e->older == ENTRY_NONE ? &l->oldest : &lane_entry(l, e->older)->newer) = e->newer;
}

static void link_newest(struct lane *l, struct entry *e, uint32_t i)
{
    e->newer = ENTRY_NONE;
    e->older = l->newest;
    *(l->newest == ENTRY_NONE ? &l->oldest : &lane_entry(l, l->newest)->newer) = i;
    l->newest = i;
}

uint32_t lane_entry_add(struct lane *l, struct prefix_node *node)
{
    uint32_t i = l->first_free;
    if (i != ENTRY_NONE) {
        l->first_free = lane_entry(l, i)->older;
    } else {
        if (l->used == l->n_chunks * CHUNK_ENTRIES)
            add_chunk(l);
        i = l->used++;
    }
    struct entry *e = lane_entry(l, i);
    *e = (struct entry){.serial = ++l->serial, .node = node};
    link_newest(l, e, i);
    lane_count(l, 0, PROMPT_CHARGE);
    atomic_fetch_add_explicit(&l->prompts, 1, memory_order_relaxed);
    return i;
}

void lane_entry_drop(struct lane *l, uint32_t i)
{
    struct entry *e = lane_entry(l, i);
    CHECK(e->serial != 0);
    unlink_entry(l, e);
    *e = (struct entry){.older = l->first_free};
    l->first_free = i;
    lane_count(l, 0, -PROMPT_CHARGE);
    atomic_fetch_sub_explicit(&l->prompts, 1, memory_order_relaxed);
}

void lane_refresh(struct lane *l, uint32_t i)
{
    if (l->newest == i)
        return;
    struct entry *e = lane_entry(l, i);
    unlink_entry(l, e);
    link_newest(l, e, i);
}
