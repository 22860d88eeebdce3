/* SPDX-License-Identifier: Apache-2.0
 *
 * A real redis-server for tests: on a free port of loopback and on a Unix socket in a folder of its own. It
 * dies with the test.
 */
#ifndef ROLTER_TESTS_REDIS_RIG_H
#define ROLTER_TESTS_REDIS_RIG_H

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "net/net_unit.h"
#include "redis/redis.h"

enum { RIG_ARGS_MAX = 48 };

struct rig {
    pid_t pid; /* 0: not running */
    uint16_t port;
    char folder[64], socket[96], url[96], unix_url[112];
};

static inline bool rig_answers(const struct rig *r)
{
    struct sockaddr_in a = loopback(r->port);
    const struct timeval limit = {.tv_sec = 1};
    char pong[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && write(fd, "PING\r\n", 6) == 6 &&
              read(fd, pong, sizeof pong) > 0 && (pong[0] == '+' || strncmp(pong, "-NOAUTH", 7) == 0);
    close(fd);
    return ok;
}

static inline pid_t rig_spawn(const char *const *argv)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

/* Starts the server on its port; false when it ended, for somebody else may have the port. <more>: further
 * arguments, up to NULL; may be NULL. */
static inline bool rig_try(struct rig *r, const char *const *more)
{
    char port[8];
    snprintf(port, sizeof port, "%u", r->port);
    const char *argv[RIG_ARGS_MAX] = {
        "redis-server", "--port", port,      "--bind",       "127.0.0.1", "--save",       "", "--appendonly",
        "no",           "--dir",  r->folder, "--unixsocket", r->socket,   "--io-threads", "1"};
    unsigned n = 0;
    while (argv[n])
        n++;
    for (; more && *more; more++)
        argv[n++] = *more;
    assert_true(n < RIG_ARGS_MAX);
    r->pid = rig_spawn(argv);
    const uint64_t give_up = clock_mono_ms() + 20000;
    while (!rig_answers(r)) {
        assert_true(clock_mono_ms() < give_up);
        if (waitpid(r->pid, NULL, WNOHANG) == r->pid) {
            r->pid = 0;
            return false;
        }
        usleep(2000);
    }
    return true;
}

/* Starts it again where it was. */
static inline void rig_start(struct rig *r, const char *const *more)
{
    assert_true(rig_try(r, more));
}

static inline void rig_open(struct rig *r, const char *const *more)
{
    memset(r, 0, sizeof *r);
    snprintf(r->folder, sizeof r->folder, "/tmp/rolter-redis-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->socket, sizeof r->socket, "%s/redis.sock", r->folder);
    for (int i = 0; i < 5 && !r->pid; i++) {
        close(listen_any(&r->port)); /* free a moment ago */
        rig_try(r, more);
    }
    assert_true(r->pid > 0);
    snprintf(r->url, sizeof r->url, "redis://127.0.0.1:%u", r->port);
    snprintf(r->unix_url, sizeof r->unix_url, "unix://%s", r->socket);
}

static inline void rig_kill(struct rig *r)
{
    if (!r->pid)
        return;
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
    r->pid = 0;
}

static inline void rig_close(struct rig *r)
{
    static const char *const FILES[] = {"redis.sock", "nodes.conf", "cert.pem", "key.pem"};
    char name[160];
    rig_kill(r);
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        snprintf(name, sizeof name, "%s/%s", r->folder, FILES[i]);
        unlink(name);
    }
    rmdir(r->folder);
}

/* ---- servers that are not as they should be ---- */

/* A process that accepts on a port of its own and runs <serve> in another one for each connection. */
struct stub {
    pid_t pid;
    uint16_t port;
    char url[64];
};

static inline void stub_open(struct stub *s, void (*serve)(int fd, const void *arg), const void *arg)
{
    const int listener = listen_any(&s->port);
    snprintf(s->url, sizeof s->url, "redis://127.0.0.1:%u", s->port);
    s->pid = fork();
    if (s->pid) {
        close(listener);
        return;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            serve(fd, arg);
            _exit(0);
        }
        close(fd);
    }
}

static inline void stub_close(struct stub *s)
{
    if (!s->pid)
        return;
    kill(s->pid, SIGKILL); /* its children go with it */
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

/* A way to a real server on which every answer comes <delay_ms> later. Shared with the processes of the stub,
 * so the test may change it. */
struct slow_way {
    uint16_t port;
    _Atomic unsigned delay_ms;
};

static inline struct slow_way *slow_way_new(const struct rig *r, unsigned delay_ms)
{
    struct slow_way *way = mmap(NULL, sizeof *way, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(way != MAP_FAILED);
    way->port = r->port;
    way->delay_ms = delay_ms;
    return way;
}

static inline void pass_on(int from, int to, const _Atomic unsigned *delay_ms)
{
    static char buf[65536];
    ssize_t n;
    while ((n = read(from, buf, sizeof buf)) > 0) {
        if (delay_ms)
            usleep(*delay_ms * 1000);
        for (ssize_t done = 0, k; done < n; done += k)
            if ((k = write(to, buf + done, (size_t)(n - done))) <= 0)
                return;
    }
}

static inline void serve_slowly(int fd, const void *arg)
{
    const struct slow_way *way = arg;
    struct sockaddr_in a = loopback(way->port);
    const int up = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(up, (struct sockaddr *)&a, sizeof a))
        return;
    const pid_t there = fork();
    if (there == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pass_on(fd, up, NULL);
        shutdown(up, SHUT_WR);
        _exit(0);
    }
    pass_on(up, fd, &way->delay_ms);
    kill(there, SIGKILL);
}

/* Answers the greeting, then every command with <arg>. */
static inline void serve_garbage(int fd, const void *arg)
{
    char buf[4096];
    const char *text = "+PONG\r\n";
    while (read(fd, buf, sizeof buf) > 0) {
        if (write(fd, text, strlen(text)) < 0)
            return;
        text = arg;
    }
}

/* ---- what a caller sees ---- */

struct answer {
    int n;
    enum redis_outcome outcome;
    enum redis_type type;
    int64_t integer;
    size_t items;
    uint64_t at_us;
    struct buf text;
};

static inline void answer_init(struct answer *a)
{
    buf_fini(&a->text);
    memset(a, 0, sizeof *a);
    buf_init(&a->text, SIZE_MAX / 2);
}

static inline void on_answer(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct answer *a = arg;
    a->n++;
    a->outcome = outcome;
    a->at_us = clock_mono_us();
    assert_true((outcome == REDIS_DONE || outcome == REDIS_REFUSED) == (reply != NULL));
    if (!reply)
        return;
    a->type = reply->type;
    a->integer = reply->integer;
    a->items = reply->n;
    buf_clear(&a->text);
    buf_add_span(&a->text, reply->text);
    for (size_t i = 0; i < reply->n; i++) {
        buf_add_char(&a->text, '|');
        buf_add_span(&a->text, reply->items[i]->text);
    }
}

static inline void assert_text(const struct answer *a, const char *text)
{
    assert_int_equal(a->text.n, strlen(text));
    assert_memory_equal(a->text.p ? a->text.p : "", text, a->text.n);
}

/* Words up to NULL; the second one is the key. */
static inline enum redis_outcome send_words(struct redis_client *c, struct answer *a, unsigned timeout_ms,
                                            const char *const *words)
{
    struct span argv[16];
    unsigned n = 0;
    for (; words[n]; n++)
        argv[n] = span_str(words[n]);
    const struct redis_request q = {argv, n, n > 1};
    return redis_command(c, &q, timeout_ms, a ? on_answer : NULL, a, NULL);
}
#define SEND(c, a, timeout_ms, ...) send_words(c, a, timeout_ms, (const char *const[]){__VA_ARGS__, NULL})
/* Sends and waits. */
#define ASK(loop, c, a, ...)                                                                                 \
    do {                                                                                                     \
        answer_init(a);                                                                                      \
        assert_int_equal(SEND(c, a, 5000, __VA_ARGS__), REDIS_DONE);                                         \
        RUN_UNTIL(loop, (a)->n);                                                                             \
    } while (0)

/* The lines that a server's state was worth. */
struct lines {
    unsigned n;
    bool bad[64];
    char text[64][300];
};

static inline void on_line(void *arg, bool bad, const char *text)
{
    struct lines *l = arg;
    assert_true(l->n < 64);
    l->bad[l->n] = bad;
    snprintf(l->text[l->n++], sizeof l->text[0], "%s", text);
}

#endif
