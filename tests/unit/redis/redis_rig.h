/* SPDX-License-Identifier: Apache-2.0
 *
 * A real redis-server for tests: on a free port of loopback and on a Unix socket in a folder of its own. It
 * dies with the test.
 */
#ifndef ROLTER_TESTS_REDIS_RIG_H
#define ROLTER_TESTS_REDIS_RIG_H

#include <fcntl.h>
#include <signal.h>
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
    char pong[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && write(fd, "PING\r\n", 6) == 6 &&
              read(fd, pong, sizeof pong) > 0 && (pong[0] == '+' || strncmp(pong, "-NOAUTH", 7) == 0);
    close(fd);
    return ok;
}

/* Starts the server anew on the same port. <more>: further arguments, up to NULL; may be NULL. */
static inline void rig_start(struct rig *r, const char *const *more)
{
    char port[8];
    snprintf(port, sizeof port, "%u", r->port);
    const char *argv[RIG_ARGS_MAX] = {"redis-server",
                                      "--port",
                                      port,
                                      "--bind",
                                      "127.0.0.1",
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--dir",
                                      r->folder,
                                      "--unixsocket",
                                      r->socket,
                                      "--io-threads",
                                      "1",
                                      "--databases",
                                      "4"};
    unsigned n = 0;
    while (argv[n])
        n++;
    for (; more && *more; more++)
        argv[n++] = *more;
    assert_true(n < RIG_ARGS_MAX);
    r->pid = fork();
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    const uint64_t give_up = clock_mono_ms() + 20000;
    while (!rig_answers(r)) {
        assert_true(clock_mono_ms() < give_up);
        assert_int_equal(waitpid(r->pid, NULL, WNOHANG), 0);
        usleep(2000);
    }
}

static inline void rig_open(struct rig *r, const char *const *more)
{
    memset(r, 0, sizeof *r);
    close(listen_any(&r->port)); /* free a moment ago */
    snprintf(r->folder, sizeof r->folder, "/tmp/rolter-redis-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->socket, sizeof r->socket, "%s/redis.sock", r->folder);
    snprintf(r->url, sizeof r->url, "redis://127.0.0.1:%u", r->port);
    snprintf(r->unix_url, sizeof r->unix_url, "unix://%s", r->socket);
    rig_start(r, more);
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
    char name[160];
    rig_kill(r);
    unlink(r->socket);
    snprintf(name, sizeof name, "%s/nodes.conf", r->folder);
    unlink(name);
    rmdir(r->folder);
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
