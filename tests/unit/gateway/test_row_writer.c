/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/row_writer.h"

enum { RING_BYTES = 1 << 20, PRODUCERS = 2, LINES = 40000, ROW_BYTES = 256, DEADLINE_MS = 20000 };

struct producer {
    pthread_t thread;
    struct row_ring *ring;
    struct row_writer *writer;
    unsigned index;
};

static size_t line_of(unsigned producer, unsigned i, char out[ROW_BYTES])
{
    return (size_t)snprintf(out, ROW_BYTES, "%u %u %0*u\n", producer, i, (int)(i % 200), 7u);
}

/* As a worker does it, but for waiting when the ring is full. */
static void *produce(void *arg)
{
    struct producer *p = arg;
    size_t unsaid = 0;
    uint64_t deadline = clock_mono_us() + DEADLINE_MS * 1000u;
    for (unsigned i = 0; i < LINES; i++) {
        char line[ROW_BYTES];
        size_t n = line_of(p->index, i, line);
        while (!row_ring_put(p->ring, span_of(line, n))) {
            assert_true(clock_mono_us() < deadline);
            sched_yield();
        }
        row_writer_note(p->writer, &unsaid, n);
    }
    return NULL;
}

static void check_file(const char *path)
{
    unsigned next[PRODUCERS] = {0};
    char line[ROW_BYTES], want[ROW_BYTES];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned producer = (unsigned)(line[0] - '0');
        assert_true(producer < PRODUCERS);
        line_of(producer, next[producer]++, want);
        assert_string_equal(line, want);
    }
    fclose(f);
    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(next[i], LINES);
}

/* Rings that fill many times between two ticks: whoever fills them says so, and each row is in the file once
 * and in its place. */
static void kicks_keep_the_rings_from_filling(void **state)
{
    char path[] = "/tmp/rolter-rows-XXXXXX", error[256] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct logging_settings s = {.file = path};
    struct row_ring *rings[PRODUCERS];
    struct producer p[PRODUCERS];
    for (unsigned i = 0; i < PRODUCERS; i++)
        rings[i] = row_ring_new(RING_BYTES);
    struct row_writer *w = row_writer_start(&s, rings, PRODUCERS, error);
    assert_non_null(w);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        p[i] = (struct producer){.ring = rings[i], .writer = w, .index = i};
        assert_int_equal(pthread_create(&p[i].thread, NULL, produce, &p[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(p[i].thread, NULL);
    row_writer_kick(w); /* also right before the end */
    row_writer_stop(w);
    check_file(path);
    unlink(path);
    for (unsigned i = 0; i < PRODUCERS; i++)
        row_ring_free(rings[i]);
}

/* What comes by itself is written by the tick, without a kick and without the end. */
static void a_single_row_comes_soon(void **state)
{
    char path[] = "/tmp/rolter-rows-XXXXXX", error[256] = "", got[16] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct logging_settings s = {.file = path};
    struct row_ring *ring = row_ring_new(RING_BYTES);
    struct row_writer *w = row_writer_start(&s, &ring, 1, error);
    assert_non_null(w);
    assert_true(row_ring_put(ring, SPAN("one\n")));
    uint64_t deadline = clock_mono_us() + DEADLINE_MS * 1000u;
    while (pread(fd, got, sizeof got - 1, 0) == 0) {
        assert_true(clock_mono_us() < deadline);
        usleep(1000);
    }
    assert_string_equal(got, "one\n");
    row_writer_stop(w);
    close(fd);
    unlink(path);
    row_ring_free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kicks_keep_the_rings_from_filling),
        cmocka_unit_test(a_single_row_comes_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
