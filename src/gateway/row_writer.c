/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/row_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/call.h"
#include "observe/metrics.h"

enum {
    /* A tick wakes a thread, and each row that comes by itself costs a write and who watches the folder a
       look; so ticks are far apart. A worker says when its ring fills, and when a row comes after a tick that
       found none (row_writer_note). */
    TICK_MS = 50,
    TICK_IDLE_MS = 200,
    TICK_SOON_MS = 25, /* where something waits: for a sink that is slow, for a batch */
    KICK_BYTES = 256 << 10,
    TAKE_BYTES = 1 << 20,
    TEXT_MAX = 64 << 20,
    BATCH_TIMEOUT_MS = 10000,
    STOP_MS = 2000,
    PIPE_BYTES = 4096, /* a pipe with room takes so much without blocking */
    PIPE_PATIENCE_MS = 20,
    POOL_IDLE_MS = 30000
};

/* What the writer works with; replaced as a whole by an update. */
struct sink {
    int fd; /* -1: none */
    bool close_fd;
    bool may_block; /* no plain file: whoever reads may stop reading */
    bool clickhouse;
    struct net_origin origin;
    char *path; /* of the insert statement */
    unsigned batch_max, flush_ms, queue_capacity;
};

struct row_writer {
    struct net_loop loop;
    uv_thread_t thread;
    uv_timer_t tick;
    struct pool *pool;
    struct row_ring *const *rings;
    unsigned n_rings;
    struct sink sink;

    struct buf text;    /* lines just taken */
    struct buf held;    /* lines for a sink that may block, which it has not taken yet */
    struct buf pending; /* lines for ClickHouse that no call carries yet */
    size_t n_pending, n_sent;
    uint64_t pending_since_ms;
    struct call *call;
    bool sink_was_down;

    struct net_post kick;
    _Atomic bool kicked; /* <kick> is posted */
    _Atomic bool idle;   /* the last look found no row; who has one now need not wait for the next */

    struct net_post post;
    struct sink next;
    uv_sem_t taken;
    bool stopping;
    uint64_t stop_deadline_ms;
};

static bool sink_open(struct sink *s, const struct logging_settings *l, char *ret_error)
{
    *s = (struct sink){
        .fd = -1, .batch_max = l->batch_max, .flush_ms = l->flush_ms, .queue_capacity = l->queue_capacity};
    if (l->file && strcmp(l->file, "-") == 0) {
        s->fd = STDOUT_FILENO;
    } else if (l->file) {
        /* A named pipe without a reader is refused, not waited for. */
        s->fd = open(l->file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
        if (s->fd < 0) {
            snprintf(ret_error, 256, "cannot open %s: %s", l->file,
                     errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
            return false;
        }
        s->close_fd = true;
    }
    struct stat st;
    s->may_block = s->fd >= 0 && (fstat(s->fd, &st) < 0 || !S_ISREG(st.st_mode));
    if (l->clickhouse_url) {
        const char *why;
        if (!origin_parse(span_str(l->clickhouse_url), &s->origin, &why)) {
            snprintf(ret_error, 256, "clickhouse_url: %s", why);
            if (s->close_fd)
                close(s->fd);
            return false;
        }
        origin_seal(&s->origin);
        s->path = mem_printf("%s/?query=INSERT%%20INTO%%20request_logs%%20FORMAT%%20JSONEachRow",
                             s->origin.base_path);
        s->clickhouse = true;
    }
    return true;
}

static void sink_close(struct sink *s)
{
    if (s->close_fd)
        close(s->fd);
    if (s->clickhouse) {
        origin_fini(&s->origin);
        free(s->path);
    }
    *s = (struct sink){.fd = -1};
}

static size_t count_lines(struct span s)
{
    size_t n = 0;
    for (const char *at = s.p, *end = s.p + s.n; at < end && (at = memchr(at, '\n', (size_t)(end - at)));
         at++)
        n++;
    return n;
}

/* Until all is written or, as 0, the sink can take no more now; negative when it never will. */
static int write_all(struct row_writer *w, struct span *s)
{
    while (s->n > 0) {
        size_t n = s->n;
        if (w->sink.may_block) {
            struct pollfd p = {.fd = w->sink.fd, .events = POLLOUT};
            if (poll(&p, 1, PIPE_PATIENCE_MS) == 0)
                return 0;
            n = n < PIPE_BYTES ? n : PIPE_BYTES;
        }
        ssize_t done = write(w->sink.fd, s->p, n);
        if (done < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (done <= 0)
            return -1;
        *s = span_of(s->p + done, s->n - (size_t)done);
    }
    return 1;
}

/* A pipe whose reader has stopped must not stop this thread, on which reloads and the end of the process
 * wait: what it does not take is held, and behind it the rings fill up, drop and count. */
static void write_held(struct row_writer *w)
{
    struct span rest = buf_view(&w->held);
    size_t lines = count_lines(rest);
    int how = write_all(w, &rest);
    size_t left = count_lines(rest);
    metric_add(metric_plain(M_LOGS_WRITTEN), lines - left);
    if (how < 0) {
        metric_add(metric_plain(M_LOGS_DROPPED), left);
        buf_clear(&w->held);
        return;
    }
    buf_consume(&w->held, w->held.n - rest.n);
}

static void drop_held(struct row_writer *w)
{
    metric_add(metric_plain(M_LOGS_DROPPED), count_lines(buf_view(&w->held)));
    buf_clear(&w->held);
}

/* The disk took only a part: what it has of the last line goes, so that the next row does not go on behind
 * it. <begin>: size of the file before the text. */
static void cut_torn_line(struct row_writer *w, off_t begin)
{
    struct stat now;
    size_t taken = fstat(w->sink.fd, &now) == 0 && now.st_size > begin ? (size_t)(now.st_size - begin) : 0;
    if (taken > w->text.n) /* somebody else writes to it, too */
        return;
    while (taken > 0 && w->text.p[taken - 1] != '\n')
        taken--;
    if (ftruncate(w->sink.fd, begin + (off_t)taken) < 0)
        log_warn("logging: cannot cut a torn line: %s", strerror(errno));
}

static void write_file(struct row_writer *w, size_t lines)
{
    struct span text = buf_view(&w->text);
    if (w->sink.may_block) {
        if (buf_add_span(&w->held, text))
            write_held(w);
        else
            metric_add(metric_plain(M_LOGS_DROPPED), lines);
        return;
    }
    struct stat before;
    bool known = fstat(w->sink.fd, &before) == 0;
    bool whole = write_all(w, &text) > 0;
    size_t left = whole ? 0 : count_lines(text);
    if (!whole && known)
        cut_torn_line(w, before.st_size);
    metric_add(metric_plain(M_LOGS_WRITTEN), lines - left);
    metric_add(metric_plain(M_LOGS_DROPPED), left);
}

static void state_changed(struct row_writer *w, bool down, const char *detail)
{
    if (down == w->sink_was_down)
        return;
    w->sink_was_down = down;
    if (down)
        log_warn("logging: ClickHouse does not take rows: %s; dropping and counting", detail);
    else
        log_info("logging: ClickHouse takes rows again");
}

static void batch_done(struct call *c, void *arg, const struct call_reply *r)
{
    struct row_writer *w = arg;
    w->call = NULL;
    bool ok = !r->failed && r->status >= 200 && r->status < 300;
    metric_add(metric_plain(ok ? M_LOGS_WRITTEN : M_LOGS_DROPPED), w->n_sent);
    char status[32];
    snprintf(status, sizeof status, "status %d", r->status);
    state_changed(w, !ok, r->failed ? (r->detail ? r->detail : exchange_fail_name(r->why)) : status);
}

static void send_batch(struct row_writer *w)
{
    struct call_request q = {
        .origin = &w->sink.origin,
        .method = "POST",
        .path = span_str(w->sink.path),
        .headers = SPAN("content-type: application/x-ndjson\r\n"),
        .body = buf_view(&w->pending),
        .timeout_ms = w->stopping ? STOP_MS : BATCH_TIMEOUT_MS,
        .max_reply_bytes = 65536,
    };
    w->n_sent = w->n_pending;
    w->call = call_start(w->pool, &q, batch_done, w);
    buf_clear(&w->pending);
    w->n_pending = 0;
}

/* The first <lines> of <s>. */
static struct span first_lines(struct span s, size_t lines)
{
    const char *end = s.p;
    while (lines-- > 0)
        end = (const char *)memchr(end, '\n', s.n - (size_t)(end - s.p)) + 1;
    return span_of(s.p, (size_t)(end - s.p));
}

/* What the queue has no room for is dropped, the latest first. */
static void queue_batch(struct row_writer *w, size_t lines)
{
    size_t room = w->sink.queue_capacity > w->n_pending ? w->sink.queue_capacity - w->n_pending : 0;
    size_t kept = lines < room ? lines : room;
    if (kept && !buf_add_span(&w->pending, first_lines(buf_view(&w->text), kept)))
        kept = 0;
    if (kept < lines)
        metric_add(metric_plain(M_LOGS_DROPPED), lines - kept);
    if (kept == 0)
        return;
    if (w->n_pending == 0)
        w->pending_since_ms = net_now_ms(&w->loop);
    w->n_pending += kept;
}

/* Whether there were any. */
static bool take_rows(struct row_writer *w)
{
    bool any = false;
    if (w->held.n)
        write_held(w);
    for (unsigned i = 0; i < w->n_rings; i++) {
        while (!w->held.n || w->sink.clickhouse) {
            buf_clear(&w->text);
            size_t lines = row_ring_take(w->rings[i], &w->text, TAKE_BYTES);
            if (lines == 0)
                break;
            any = true;
            if (w->sink.fd >= 0)
                write_file(w, lines);
            if (w->sink.clickhouse)
                queue_batch(w, lines);
        }
    }
    bool due = w->n_pending >= w->sink.batch_max ||
               (w->n_pending && net_now_ms(&w->loop) - w->pending_since_ms >= w->sink.flush_ms) ||
               w->stopping;
    if (w->sink.clickhouse && w->n_pending && due && !w->call)
        send_batch(w);
    return any;
}

static void finish(struct row_writer *w)
{
    if (w->call) {
        call_cancel(w->call);
        metric_add(metric_plain(M_LOGS_DROPPED), w->n_sent);
    }
    w->call = NULL;
    drop_held(w);
    uv_close((uv_handle_t *)&w->tick, NULL);
    net_loop_stop(&w->loop);
}

static void on_tick(uv_timer_t *t)
{
    struct row_writer *w = t->data;
    bool any = take_rows(w);
    if (w->stopping &&
        ((!w->call && !w->n_pending && !w->held.n) || net_now_ms(&w->loop) >= w->stop_deadline_ms)) {
        finish(w);
        return;
    }
    bool soon = w->stopping || w->held.n || w->sink.clickhouse;
    atomic_store_explicit(&w->idle, !any && !soon, memory_order_relaxed);
    uv_timer_start(t, on_tick, soon ? TICK_SOON_MS : any ? TICK_MS : TICK_IDLE_MS, 0);
}

static void on_kick(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct row_writer *w = CONTAINER_OF(p, struct row_writer, kick);
    atomic_store_explicit(&w->kicked, false,
                          memory_order_release); /* rows that come from here on kick anew */
    if (!w->stopping)
        on_tick(&w->tick);
}

void row_writer_kick(struct row_writer *w)
{
    if (!atomic_exchange_explicit(&w->kicked, true, memory_order_acq_rel))
        net_loop_post(&w->loop, &w->kick);
}

void row_writer_note(struct row_writer *w, size_t *unsaid, size_t bytes)
{
    *unsaid += bytes;
    if (*unsaid < KICK_BYTES && !atomic_load_explicit(&w->idle, memory_order_relaxed))
        return;
    *unsaid = 0;
    row_writer_kick(w);
}

static void thread_main(void *arg)
{
    struct row_writer *w = arg;
    net_loop_run(&w->loop);
    pool_free(w->pool);
    net_loop_fini(&w->loop);
}

struct row_writer *row_writer_start(const struct logging_settings *s, struct row_ring *const *rings,
                                    unsigned n, char *ret_error)
{
    struct sink sink;
    if (!sink_open(&sink, s, ret_error))
        return NULL;
    struct row_writer *w = MEM_NEW(struct row_writer);
    w->sink = sink;
    w->rings = rings;
    w->n_rings = n;
    buf_init(&w->text, TEXT_MAX);
    buf_init(&w->pending, TEXT_MAX);
    buf_init(&w->held, 2 * TAKE_BYTES);
    CHECK(net_loop_init(&w->loop, n + 1) == 0);
    w->pool = pool_new(&w->loop, 2, POOL_IDLE_MS);
    CHECK(uv_timer_init(&w->loop.uv, &w->tick) == 0);
    w->tick.data = w;
    w->kick.fn = on_kick;
    uv_timer_start(&w->tick, on_tick, TICK_SOON_MS, 0);
    CHECK(uv_sem_init(&w->taken, 0) == 0);
    CHECK(uv_thread_create(&w->thread, thread_main, w) == 0);
    return w;
}

static void take_update(struct net_post *p, struct net_loop *l)
{
    struct row_writer *w = CONTAINER_OF(p, struct row_writer, post);
    if (w->call) { /* it holds the old origin */
        call_cancel(w->call);
        metric_add(metric_plain(M_LOGS_DROPPED), w->n_sent);
        w->call = NULL;
    }
    if (w->sink.fd != STDOUT_FILENO || w->next.fd != STDOUT_FILENO)
        drop_held(w);
    sink_close(&w->sink);
    w->sink = w->next;
    on_tick(&w->tick); /* its pace may be another one */
    uv_sem_post(&w->taken);
}

bool row_writer_update(struct row_writer *w, const struct logging_settings *s, char *ret_error)
{
    if (!sink_open(&w->next, s, ret_error))
        return false;
    w->post.fn = take_update;
    net_loop_post(&w->loop, &w->post);
    uv_sem_wait(&w->taken);
    return true;
}

static void take_stop(struct net_post *p, struct net_loop *l)
{
    struct row_writer *w = CONTAINER_OF(p, struct row_writer, post);
    w->stopping = true;
    w->stop_deadline_ms = net_now_ms(&w->loop) + STOP_MS;
    on_tick(&w->tick);
}

void row_writer_stop(struct row_writer *w)
{
    if (!w)
        return;
    w->post.fn = take_stop;
    net_loop_post(&w->loop, &w->post);
    uv_thread_join(&w->thread);
    sink_close(&w->sink);
    buf_fini(&w->text);
    buf_fini(&w->pending);
    buf_fini(&w->held);
    uv_sem_destroy(&w->taken);
    free(w);
}
