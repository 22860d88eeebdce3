/* SPDX-License-Identifier: Apache-2.0
 *
 * A counter is a cell of 64 bits in a page of the thread that counts: one writer, so an add is a load, an add
 * and a store without a locked instruction. A scrape reads the cells of all threads (relaxed: a sum may miss
 * an add that happens at the same time, never tear one). Gauges are cells of one shared set of pages.
 *
 * A handle is the type in its two highest bits and the index of the series' first cell below; the type makes
 * a wrong call (metric_add on a gauge) a CHECK instead of a number in somebody else's cell.
 */
#include "observe/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/map.h"
#include "base/mem.h"
#include "observe/metrics_text.h"

enum { PAGE_CELLS = 512, PAGES = 2048, TYPE_SHIFT = 30, CELL_MASK = (1 << TYPE_SHIFT) - 1 };

typedef _Atomic uint64_t cell_t;

/* Cells of one thread, of the threads that ended, or of the gauges. */
struct cells {
    struct cells *next;
    _Atomic(cell_t *) page[PAGES];
};

struct gauge_function {
    struct gauge_function *next;
    metric_series_t series;
    double (*fn)(void *arg);
    void *arg;
};

#define METRIC(id, kind, text_name, label_names, help_text)                                                  \
    {.name = text_name, .help = help_text, .labels = label_names, .type = METRIC_##kind},
static const struct metric_family families[METRIC_COUNT] = {
#include "observe/metrics.def"
};
#undef METRIC

/* <lock> guards the registry: series, their order, the list of threads, the ended threads' cells. It is held
 * for the sums of a scrape, never while a gauge function runs. <fn_lock> guards the functions and is taken
 * first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t fn_lock = PTHREAD_MUTEX_INITIALIZER;
static struct map by_key;
static struct metric_line *first[METRIC_COUNT], *last[METRIC_COUNT];
static uint32_t next_cell = 1; /* 0 is "no series" */
static struct cells *threads;
static struct cells ended, shared;
static struct gauge_function *functions;
static _Atomic metric_series_t plain[METRIC_COUNT];

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static _Thread_local struct cells *self;

const struct metric_family *metric_family_get(enum metric_id id)
{
    CHECK((unsigned)id < METRIC_COUNT);
    return &families[id];
}

static cell_t *page_new(struct cells *c, uint32_t at)
{
    cell_t *page = mem_zalloc(PAGE_CELLS * sizeof(cell_t));
    cell_t *none = NULL;
    /* Only the shared pages can race here; the winner's page stays. */
    if (!atomic_compare_exchange_strong_explicit(&c->page[at], &none, page, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        free(page);
        page = none;
    }
    return page;
}

static inline cell_t *cell_of(struct cells *c, uint32_t i)
{
    cell_t *page = atomic_load_explicit(&c->page[i / PAGE_CELLS], memory_order_acquire);
    if (UNLIKELY(!page))
        page = page_new(c, i / PAGE_CELLS);
    return page + i % PAGE_CELLS;
}

/* Reading does not make pages. */
static uint64_t cell_read(struct cells *c, uint32_t i)
{
    cell_t *page = atomic_load_explicit(&c->page[i / PAGE_CELLS], memory_order_acquire);
    return page ? atomic_load_explicit(page + i % PAGE_CELLS, memory_order_relaxed) : 0;
}

/* The thread owns <c>. */
static inline void cell_bump(struct cells *c, uint32_t i, uint64_t n)
{
    cell_t *p = cell_of(c, i);
    atomic_store_explicit(p, atomic_load_explicit(p, memory_order_relaxed) + n, memory_order_relaxed);
}

/* A thread ends: its counts move to <ended>. */
static void thread_gone(void *arg)
{
    struct cells *c = arg;
    self = NULL;
    pthread_mutex_lock(&lock);
    for (struct cells **at = &threads; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    for (uint32_t p = 0; p < PAGES; p++) {
        cell_t *page = atomic_load_explicit(&c->page[p], memory_order_relaxed);
        for (uint32_t i = 0; page && i < PAGE_CELLS; i++) {
            uint64_t n = atomic_load_explicit(page + i, memory_order_relaxed);
            if (n)
                cell_bump(&ended, p * PAGE_CELLS + i, n);
        }
        free(page);
    }
    pthread_mutex_unlock(&lock);
    free(c);
}

static void make_exit_key(void)
{
    CHECK(pthread_key_create(&exit_key, thread_gone) == 0);
}

static struct cells *thread_new(void)
{
    struct cells *c = MEM_NEW(struct cells);
    pthread_once(&exit_once, make_exit_key);
    CHECK(pthread_setspecific(exit_key, c) == 0);
    pthread_mutex_lock(&lock);
    c->next = threads;
    threads = c;
    pthread_mutex_unlock(&lock);
    self = c;
    return c;
}

static uint32_t cells_of_type(enum metric_type t)
{
    return t == METRIC_COUNTER || t == METRIC_GAUGE ? 1 : METRIC_HISTOGRAM_CELLS;
}

/* Under <lock>. A histogram's cells do not cross a page; 0 when all cells are taken. */
static uint32_t cells_take(uint32_t n)
{
    if (next_cell % PAGE_CELLS + n > PAGE_CELLS)
        next_cell += PAGE_CELLS - next_cell % PAGE_CELLS;
    if (next_cell + n > (uint32_t)PAGE_CELLS * PAGES)
        return 0;
    uint32_t at = next_cell;
    next_cell += n;
    return at;
}

unsigned metric_label_count(const struct metric_family *f)
{
    unsigned n = f->labels[0] != 0;
    for (const char *p = f->labels; *p; p++)
        n += *p == ',';
    return n;
}

metric_series_t metric_series(enum metric_id id, const char *v1, const char *v2, const char *v3)
{
    const struct metric_family *f = metric_family_get(id);
    unsigned given = (v1 != NULL) + (v2 != NULL) + (v3 != NULL);
    CHECK_MSG(given == metric_label_count(f) && (v1 || !v2) && (v2 || !v3), f->name);

    struct metric_line *l = MEM_NEW(struct metric_line);
    const char *values[METRIC_LABELS_MAX] = {v1, v2, v3};
    struct buf key;
    buf_init(&key, SIZE_MAX);
    buf_add(&key, &id, sizeof id);
    for (unsigned i = 0; i < given; i++)
        buf_add(&key, values[i], strlen(values[i]) + 1);

    pthread_mutex_lock(&lock);
    struct metric_line *known = map_get(&by_key, buf_view(&key));
    uint32_t at = known ? 0 : cells_take(cells_of_type(f->type));
    metric_series_t handle = known ? known->series : at ? at | (uint32_t)f->type << TYPE_SHIFT : 0;
    if (at) {
        l->series = handle;
        for (unsigned i = 0; i < given; i++)
            l->value[i] = mem_strdup(values[i]);
        map_put(&by_key, buf_view(&key), l);
        *(last[id] ? &last[id]->next : &first[id]) = l;
        last[id] = l;
    }
    pthread_mutex_unlock(&lock);
    if (!at) {
        free(l);
        buf_fini(&key); /* else the map borrows the key for ever */
    }
    return handle;
}

metric_series_t metric_plain(enum metric_id id)
{
    CHECK((unsigned)id < METRIC_COUNT);
    metric_series_t s = atomic_load_explicit(&plain[id], memory_order_relaxed);
    if (UNLIKELY(!s)) {
        s = metric_series(id, NULL, NULL, NULL);
        atomic_store_explicit(&plain[id], s, memory_order_relaxed);
    }
    return s;
}

static enum metric_type type_of(metric_series_t s)
{
    return s >> TYPE_SHIFT;
}

void metric_add(metric_series_t s, uint64_t n)
{
    if (!s)
        return;
    CHECK(type_of(s) == METRIC_COUNTER);
    struct cells *c = LIKELY(self != NULL) ? self : thread_new();
    cell_bump(c, s & CELL_MASK, n);
}

void metric_observe(metric_series_t s, double v)
{
    if (!s)
        return;
    CHECK(type_of(s) == METRIC_HISTOGRAM || type_of(s) == METRIC_RATIOS);
    const double *bound = metric_bounds(type_of(s));
    if (!(v > 0))
        v = 0; /* and NaN */
    unsigned i = 0;
    while (i < METRIC_BUCKETS && v > bound[i])
        i++;
    struct cells *c = LIKELY(self != NULL) ? self : thread_new();
    uint32_t at = s & CELL_MASK;
    cell_bump(c, at + i, 1);
    double millionths = v * METRIC_SUM_SCALE;
    cell_bump(c, at + METRIC_SUM_CELL, millionths < 1e18 ? (uint64_t)(millionths + 0.5) : (uint64_t)1e18);
}

static double bits_double(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void metric_set(metric_series_t s, double v)
{
    if (!s)
        return;
    CHECK(type_of(s) == METRIC_GAUGE);
    atomic_store_explicit(cell_of(&shared, s & CELL_MASK), double_bits(v), memory_order_relaxed);
}

void metric_gauge_add(metric_series_t s, double v)
{
    if (!s)
        return;
    CHECK(type_of(s) == METRIC_GAUGE);
    cell_t *p = cell_of(&shared, s & CELL_MASK);
    uint64_t old = atomic_load_explicit(p, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(p, &old, double_bits(bits_double(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metric_set_function(metric_series_t s, double (*fn)(void *arg), void *arg)
{
    if (!s)
        return;
    CHECK(type_of(s) == METRIC_GAUGE);
    pthread_mutex_lock(&fn_lock);
    struct gauge_function **at = &functions;
    while (*at && (*at)->series != s)
        at = &(*at)->next;
    if (fn && !*at) {
        *at = MEM_NEW(struct gauge_function);
        (*at)->series = s;
    }
    struct gauge_function *f = *at;
    if (fn) {
        f->fn = fn;
        f->arg = arg;
    } else if (f) {
        *at = f->next;
        free(f);
    }
    pthread_mutex_unlock(&fn_lock);
}

/* Under <lock>. */
static uint64_t sum_cell(uint32_t i)
{
    uint64_t sum = cell_read(&ended, i);
    for (struct cells *c = threads; c; c = c->next)
        sum += cell_read(c, i);
    return sum;
}

uint64_t metric_value(metric_series_t s)
{
    if (!s)
        return 0;
    CHECK(type_of(s) == METRIC_COUNTER);
    pthread_mutex_lock(&lock);
    uint64_t sum = sum_cell(s & CELL_MASK);
    pthread_mutex_unlock(&lock);
    return sum;
}

/* Of a histogram's cells; those of a range count that range only. */
static uint64_t count_of(const uint64_t *cell)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= METRIC_BUCKETS; i++)
        n += cell[i];
    return n;
}

void metric_totals(metric_series_t s, uint64_t *ret_count, double *ret_sum)
{
    uint64_t cell[METRIC_HISTOGRAM_CELLS] = {0};
    CHECK(!s || type_of(s) == METRIC_HISTOGRAM || type_of(s) == METRIC_RATIOS);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; s && i < METRIC_HISTOGRAM_CELLS; i++)
        cell[i] = sum_cell((s & CELL_MASK) + i);
    pthread_mutex_unlock(&lock);
    *ret_count = count_of(cell);
    *ret_sum = (double)cell[METRIC_SUM_CELL] / METRIC_SUM_SCALE;
}

void metric_visit(enum metric_id id,
                  void (*visit)(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n), void *arg)
{
    CHECK(metric_family_get(id)->type == METRIC_COUNTER);
    if (metric_label_count(&families[id]) == 0)
        metric_plain(id);
    pthread_mutex_lock(&lock);
    for (const struct metric_line *l = first[id]; l; l = l->next)
        visit(arg, (const char *const *)l->value, sum_cell(l->series & CELL_MASK));
    pthread_mutex_unlock(&lock);
}

static void ask_functions(void)
{
    pthread_mutex_lock(&fn_lock);
    for (struct gauge_function *f = functions; f; f = f->next)
        metric_set(f->series, f->fn(f->arg));
    pthread_mutex_unlock(&fn_lock);
}

void metrics_render(struct buf *b)
{
    ask_functions();
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        if (metric_label_count(&families[id]) == 0)
            metric_plain(id);
    }
    pthread_mutex_lock(&lock);
    for (enum metric_id id = 0; id < METRIC_COUNT; id++) {
        const struct metric_family *f = &families[id];
        metric_text_head(b, f);
        for (struct metric_line *l = first[id]; l; l = l->next) {
            uint32_t at = l->series & CELL_MASK;
            uint64_t cell[METRIC_HISTOGRAM_CELLS];
            for (uint32_t i = 0; i < cells_of_type(f->type); i++)
                cell[i] = f->type == METRIC_GAUGE ? cell_read(&shared, at) : sum_cell(at + i);
            if (f->type == METRIC_COUNTER)
                metric_text_counter(b, f, l, cell[0]);
            else if (f->type == METRIC_GAUGE)
                metric_text_gauge(b, f, l, bits_double(cell[0]));
            else
                metric_text_histogram(b, f, l, cell);
        }
    }
    pthread_mutex_unlock(&lock);
}
