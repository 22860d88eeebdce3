/* SPDX-License-Identifier: Apache-2.0
 *
 * Intrusive doubly linked ring. A head is an empty node that points to itself; a node that is in no list
 * points to itself as well, so list_remove may be called twice. O(1). Not safe for two threads.
 */
#ifndef ROLTER_BASE_LIST_H
#define ROLTER_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/* Behind the last one. */
static inline void list_push(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* Before the first one. */
static inline void list_push_front(struct list *head, struct list *node)
{
    list_push(head->next, node);
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

static inline struct list *list_pop(struct list *head)
{
    if (list_empty(head))
        return NULL;
    struct list *first = head->next;
    list_remove(first);
    return first;
}

#define LIST_ITEM(node, type, member) CONTAINER_OF(node, type, member)
/* The loop body may remove <node>. */
#define LIST_EACH(node, head)                                                                                \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);                        \
         node = node##_next, node##_next = node->next)

#endif
