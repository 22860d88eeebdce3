/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-redis [BODY_BYTES]: what a lookup of the response cache costs when Redis has the entry (memory has
 * none), beside a bare GET of the same value on a blocking socket: one at a time over TCP on loopback, in
 * alternating rounds of one run. Starts a redis-server of its own.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/store.h"

enum { ROUNDS = 61, LOOKUPS = 500 };

static pid_t server;
static uint16_t port;

static struct sockaddr_in address(uint16_t p)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(p), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void start_server(void)
{
    struct sockaddr_in a = address(0);
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    port = ntohs(a.sin_port);
    close(fd);
    server = fork();
    if (server)
        return;
    char text[8];
    snprintf(text, sizeof text, "%u", port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(open("/dev/null", O_RDWR), 1);
    execlp("redis-server", "redis-server", "--port", text, "--bind", "127.0.0.1", "--save", "", (char *)NULL);
    _exit(127);
}

/* ---- a bare client ---- */

static int bare_connect(void)
{
    struct sockaddr_in a = address(port);
    const int on = 1;
    for (int tries = 0; tries < 1000; tries++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            return fd;
        }
        close(fd);
        usleep(5000);
    }
    fprintf(stderr, "bench-redis: redis-server did not start\n");
    exit(1);
}

static double bare_round(int fd, const char *command, size_t reply_bytes)
{
    static char buf[8 << 20];
    const uint64_t start = clock_mono_us();
    for (int i = 0; i < LOOKUPS; i++) {
        CHECK(write(fd, command, strlen(command)) == (ssize_t)strlen(command));
        for (size_t got = 0; got < reply_bytes;) {
            const ssize_t n = read(fd, buf, sizeof buf);
            CHECK(n > 0);
            got += (size_t)n;
        }
    }
    return (double)(clock_mono_us() - start) / LOOKUPS;
}

/* ---- the store ---- */

struct chain {
    struct store_port *port;
    struct cache_digest key;
    struct store_wait wait;
    struct store_budget budget;
    int left, hits;
};

static void next(struct chain *c);

static void on_found(struct store_wait *w, struct cache_entry *e)
{
    struct chain *c = CONTAINER_OF(w, struct chain, wait);
    c->hits += e != NULL;
    entry_unref(e);
    next(c);
}

static void next(struct chain *c)
{
    struct cache_entry *e = NULL;
    if (c->left-- == 0)
        return;
    store_budget_begin(store_of(c->port), &c->budget);
    if (store_get(c->port, &c->key, clock_wall_ms(), &c->budget, &c->wait, on_found, &e) != STORE_WAIT)
        c->left = 0; /* not asked: the caller sees it by the hits */
}

static double store_round(struct chain *c, struct net_loop *l, int lookups)
{
    const uint64_t start = clock_mono_us();
    c->left = lookups;
    c->hits = 0;
    next(c);
    while (c->left >= 0 && c->hits < lookups && c->wait.port)
        uv_run(&l->uv, UV_RUN_ONCE);
    return (double)(clock_mono_us() - start) / lookups;
}

static struct cache_entry *make_entry(struct cache_store *s, size_t bytes)
{
    char *body = mem_alloc(bytes);
    memset(body, 'x', bytes);
    struct entry_facts f = {.created_ms = clock_wall_ms(),
                            .content_type = SPAN("application/json"),
                            .route = SPAN("route"),
                            .provider = SPAN("provider"),
                            .target = SPAN("model"),
                            .model = SPAN("route")};
    f.expires_ms = f.stale_until_ms = f.created_ms + 3600000;
    f.stamp = purge_stamp(store_purges(s), &f.owner);
    memset(&f.key, 7, sizeof f.key);
    usage_init(&f.usage);
    struct cache_entry *e = entry_new(&f, span_of(body, bytes));
    free(body);
    return e;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, by_value);
    return v[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    const size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 2048;
    char url[64], why[256], command[256];
    struct net_loop loop;
    if (bytes == 0 || bytes > 4 << 20) {
        fprintf(stderr, "usage: bench-redis [BODY_BYTES]\n");
        return 2;
    }
    start_server();
    const int fd = bare_connect();
    CHECK(net_loop_init(&loop, 0) == 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", port);
    struct cache_store *s =
        store_new(&(struct store_options){.name_space = "b", .redis_url = url, .budget_ms = 5000}, why);
    struct store_port *p = store_open(s, &loop);
    struct cache_entry *e = make_entry(s, bytes);
    struct chain c = {.port = p, .key = e->facts.key};
    do { /* until Redis is asked and has it */
        uv_run(&loop.uv, UV_RUN_NOWAIT);
        store_put(p, e, clock_wall_ms());
        store_round(&c, &loop, 1);
    } while (c.hits == 0);

    struct buf head;
    buf_init(&head, ENTRY_HEAD_MAX);
    CHECK(entry_write_head(e, &head));
    const size_t value = head.n + e->body.n;
    char length[32], key[80] = "b:";
    for (int i = 0; i < 32; i++)
        memcpy(key + 2 + 2 * i, "07", 3);
    snprintf(command, sizeof command, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
    const size_t reply = (size_t)snprintf(length, sizeof length, "$%zu\r\n", value) + value + 2;

    static double bare[ROUNDS], ours[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = bare_round(fd, command, reply);
        ours[i] = store_round(&c, &loop, LOOKUPS);
        CHECK_MSG(c.hits == LOOKUPS, "a lookup missed");
    }
    const double a = median(bare), b = median(ours);
    printf("body of %zu bytes, median of %d rounds: bare GET %.1f us, lookup %.1f us, ratio %.2f\n", bytes,
           ROUNDS, a, b, b / a);
    buf_fini(&head);
    entry_unref(e);
    store_close(p);
    store_free(s);
    close(fd);
    net_loop_fini(&loop);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
