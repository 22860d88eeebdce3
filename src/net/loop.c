/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* One MiB of request memory stays warm per loop, and two of read buffers. */
enum { KEEP_CHUNKS = 128, KEEP_BUFFERS = 32 };

/* Moves all nodes of <from> to <to>, which is not initialised before. */
static void list_take(struct list *from, struct list *to)
{
    list_init(to);
    if (list_empty(from))
        return;
    to->next = from->next;
    to->prev = from->prev;
    to->next->prev = to;
    to->prev->next = to;
    list_init(from);
}

static void run_all(struct net_loop *l, struct list *calls)
{
    for (struct list *node; (node = list_pop(calls));) {
        struct net_post *p = LIST_ITEM(node, struct net_post, node);
        p->fn(p, l);
    }
}

static void on_wake(uv_async_t *wake)
{
    struct net_loop *l = wake->data;
    struct list calls;

    /* Deferred calls keep the loop alive; see net_loop_defer. */
    uv_unref((uv_handle_t *)&l->wake);
    list_take(&l->deferred, &calls);
    run_all(l, &calls);

    uv_mutex_lock(&l->post_lock);
    list_take(&l->posted, &calls);
    uv_mutex_unlock(&l->post_lock);
    run_all(l, &calls);
}

int net_loop_init(struct net_loop *l, unsigned index)
{
    *l = (struct net_loop){.index = index};
    int err = uv_loop_init(&l->uv);
    if (err)
        return err;
    err = uv_async_init(&l->uv, &l->wake, on_wake);
    if (err) {
        uv_loop_close(&l->uv);
        return err;
    }
    err = uv_mutex_init(&l->post_lock);
    if (err) {
        uv_close((uv_handle_t *)&l->wake, NULL);
        uv_run(&l->uv, UV_RUN_DEFAULT);
        uv_loop_close(&l->uv);
        return err;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is a full disk */
    uv_unref((uv_handle_t *)&l->wake);
    l->wake.data = l;
    l->uv.data = l;
    list_init(&l->posted);
    list_init(&l->deferred);
    arena_pool_init(&l->chunks, KEEP_CHUNKS);
    uint64_t seed;
    rng_secure_bytes(&seed, sizeof seed);
    rng_seed(&l->rng, seed);
    buf_init(&l->cipher_out, SIZE_MAX / 2);
    l->read_buf = mem_alloc(NET_READ_BYTES);
    l->plain_buf = mem_alloc(NET_READ_BYTES);
    l->gather = mem_alloc(NET_GATHER_BYTES);
    return 0;
}

void net_loop_run(struct net_loop *l)
{
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void net_loop_stop(struct net_loop *l)
{
    uv_stop(&l->uv);
}

void net_loop_fini(struct net_loop *l)
{
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    CHECK_MSG(uv_loop_close(&l->uv) == 0, "handles left open on a loop");
    CHECK(list_empty(&l->deferred));
    uv_mutex_destroy(&l->post_lock);
    arena_pool_fini(&l->chunks);
    buf_fini(&l->cipher_out);
    MEM_FREE(l->read_buf);
    for (char *next; l->spare; l->spare = next) {
        memcpy(&next, l->spare, sizeof next);
        free(l->spare);
    }
    MEM_FREE(l->plain_buf);
    MEM_FREE(l->gather);
}

uint64_t net_now_ms(const struct net_loop *l)
{
    return uv_now(&l->uv);
}

uint64_t net_now_us(const struct net_loop *l)
{
    (void)l;
    return clock_mono_us();
}

char *net_loop_keep_read(struct net_loop *l, const char *p)
{
    if ((uintptr_t)p - (uintptr_t)l->read_buf >= NET_READ_BYTES)
        return NULL;
    char *kept = l->read_buf, *next = l->spare;
    if (next) {
        memcpy(&l->spare, next, sizeof l->spare);
        l->n_spare--;
    } else {
        next = mem_alloc(NET_READ_BYTES);
    }
    l->read_buf = next;
    return kept;
}

void net_loop_give_back(struct net_loop *l, char *buf)
{
    if (l->n_spare == KEEP_BUFFERS) {
        free(buf);
        return;
    }
    memcpy(buf, &l->spare, sizeof l->spare);
    l->spare = buf;
    l->n_spare++;
}

void net_loop_post(struct net_loop *l, struct net_post *p)
{
    uv_mutex_lock(&l->post_lock);
    list_push(&l->posted, &p->node);
    uv_mutex_unlock(&l->post_lock);
    uv_async_send(&l->wake);
}

void net_loop_defer(struct net_loop *l, struct net_post *p)
{
    if (!list_empty(&p->node))
        return;
    list_push(&l->deferred, &p->node);
    uv_ref((uv_handle_t *)&l->wake);
    uv_async_send(&l->wake);
}

void net_loop_undefer(struct net_post *p)
{
    list_remove(&p->node);
}
