/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the gateway. The main thread is the signals thread: reloads, health probes, engine metrics, the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "admin/admin.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/commands.h"
#include "gateway/gateway.h"
#include "gateway/plan_signals.h"

enum { WATCH_SETTLE_MS = 200, TEND_MS = 1000 };

struct serve {
    const struct cli_options *options;
    struct net_loop loop;
    struct gateway *gateway;
    struct signals *signals;
    struct admin *admin; /* NULL: no [admin] table */
    uv_signal_t on_hup, on_term, on_int;
    uv_fs_event_t watch;
    uv_timer_t settle; /* editors write a file in several steps */
    uv_timer_t tend;
    bool ending;
    bool signalled; /* by TERM or INT; a drain that the admin listener began is not hurried by the first */
    uint64_t seen;  /* hash of the file as last read */
};

static void print_report(const struct config_report *r)
{
    if (r->text.n)
        fwrite(r->text.p, 1, r->text.n, stderr);
}

/* Hash of the file's bytes, 0 when it cannot be read. */
static uint64_t file_hash(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    struct hash_stream h;
    hash_begin(&h);
    char piece[16384];
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        hash_update(&h, piece, n);
    fclose(f);
    return hash_end(&h);
}

static void reload(struct serve *s, const char *why)
{
    if (s->ending)
        return;
    s->seen = file_hash(s->options->config);
    struct config_report r;
    config_report_init(&r);
    struct settings *next = config_load(s->options->config, false, &s->options->overrides, &r);
    print_report(&r);
    if (!next) {
        metric_add(metric_plain(M_CONFIG_RELOAD_FAILURES), 1);
        log_error("reload (%s): %u fault%s, the running configuration stays", why, r.errors,
                  r.errors == 1 ? "" : "s");
        config_report_fini(&r);
        return;
    }
    struct buf restart;
    buf_init(&restart, 65536);
    if (config_needs_restart(gateway_plan(s->gateway)->settings, next, &restart) > 0) {
        struct span keys = buf_view(&restart);
        keys.n--; /* the last line's end; the log shows the others as spaces */
        log_warn("reload (%s): takes effect at the next start only: %.*s", why, SPAN_FMT(keys));
    }
    buf_fini(&restart);
    gateway_reload(s->gateway, next);
    struct signals_settings watch;
    plan_signals(gateway_plan(s->gateway), &watch);
    signals_update(s->signals, &watch);
    metric_add(metric_plain(M_CONFIG_RELOADS), 1);
    log_info("reload (%s): configuration %llu is running", why,
             (unsigned long long)gateway_plan(s->gateway)->version);
    config_report_fini(&r);
}

static void on_hup(uv_signal_t *h, int signum)
{
    reload(h->data, "signal");
}

static void on_settled(uv_timer_t *t)
{
    struct serve *s = t->data;
    /* Other files of the directory change too, and editors touch without changing. */
    uint64_t now = file_hash(s->options->config);
    if (now == 0 || now == s->seen)
        return;
    s->seen = now;
    reload(s, "file changed");
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Our own rows change their file all the time, and it often stands beside the configuration. */
static bool is_rows_file(const struct serve *s, const char *name)
{
    const char *rows = gateway_plan(s->gateway)->settings->logging.file;
    return rows && name && strcmp(name, file_name(rows)) == 0 &&
           strcmp(name, file_name(s->options->config)) != 0;
}

static void on_file_event(uv_fs_event_t *h, const char *name, int events, int status)
{
    struct serve *s = h->data;
    if (is_rows_file(s, name))
        return;
    if (!s->ending && !uv_is_active((uv_handle_t *)&s->settle))
        uv_timer_start(&s->settle, on_settled, WATCH_SETTLE_MS, 0);
}

/* Watches the directory, not the file: editors and mounted config maps replace files. */
static void watch_start(struct serve *s)
{
    const char *slash = strrchr(s->options->config, '/');
    char dir[4096] = ".";
    if (slash)
        snprintf(dir, sizeof dir, "%.*s", slash == s->options->config ? 1 : (int)(slash - s->options->config),
                 s->options->config);
    int err = uv_fs_event_start(&s->watch, on_file_event, dir, 0);
    if (err)
        log_warn("cannot watch %s for changes: %s", dir, uv_strerror(err));
}

static void close_all(struct serve *s)
{
    uv_close((uv_handle_t *)&s->on_hup, NULL);
    uv_close((uv_handle_t *)&s->on_term, NULL);
    uv_close((uv_handle_t *)&s->on_int, NULL);
    uv_close((uv_handle_t *)&s->watch, NULL);
    uv_close((uv_handle_t *)&s->settle, NULL);
    uv_close((uv_handle_t *)&s->tend, NULL);
}

static void drained(void *arg)
{
    struct serve *s = arg;
    net_loop_stop(&s->loop);
}

static void begin_end(struct serve *s)
{
    s->ending = true;
    unsigned secs = gateway_plan(s->gateway)->settings->server.drain_secs;
    log_info("draining for at most %u s", secs);
    gateway_drain(s->gateway, (uint64_t)secs * 1000, drained, s);
}

static void on_drain_asked(void *arg)
{
    struct serve *s = arg;
    if (!s->ending)
        begin_end(s);
}

static void on_end(uv_signal_t *h, int signum)
{
    struct serve *s = h->data;
    bool again = s->signalled;
    s->signalled = true;
    if (!s->ending) {
        begin_end(s);
    } else if (again) {
        log_warn("second signal: not waiting for what is in flight");
        net_loop_stop(&s->loop);
    }
}

static void on_tend(uv_timer_t *t)
{
    const struct serve *s = t->data;
    plan_tend(gateway_plan(s->gateway));
}

static void handles_init(struct serve *s)
{
    CHECK(uv_signal_init(&s->loop.uv, &s->on_hup) == 0);
    CHECK(uv_signal_init(&s->loop.uv, &s->on_term) == 0);
    CHECK(uv_signal_init(&s->loop.uv, &s->on_int) == 0);
    CHECK(uv_fs_event_init(&s->loop.uv, &s->watch) == 0);
    CHECK(uv_timer_init(&s->loop.uv, &s->settle) == 0);
    CHECK(uv_timer_init(&s->loop.uv, &s->tend) == 0);
    s->on_hup.data = s->on_term.data = s->on_int.data = s->watch.data = s->settle.data = s->tend.data = s;
    uv_signal_start(&s->on_hup, on_hup, SIGHUP);
    uv_signal_start(&s->on_term, on_end, SIGTERM);
    uv_signal_start(&s->on_int, on_end, SIGINT);
    uv_timer_start(&s->tend, on_tend, TEND_MS, TEND_MS);
}

enum { DESCRIPTORS_WANTED = 1 << 20 };

/* As many descriptors as we can get: a relayed request takes two. A privileged process may raise its hard
 * limit. */
static void raise_limits(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return;
    if (l.rlim_max < DESCRIPTORS_WANTED) {
        struct rlimit more = {.rlim_cur = DESCRIPTORS_WANTED, .rlim_max = DESCRIPTORS_WANTED};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            return;
    }
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
}

static void warn_if_open(const struct plan *p)
{
    const char *host = p->settings->server.host;
    bool loopback =
        strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
    if (p->open && !loopback)
        log_warn("NO KEYS ARE CONFIGURED: everybody who reaches this machine (server.host is %s) can use the "
                 "upstreams "
                 "at your cost; add [[virtual_keys]], or bind to 127.0.0.1",
                 host);
}

static bool start_admin(struct serve *s)
{
    char error[256] = "";
    const struct admin_settings *a = &gateway_plan(s->gateway)->settings->admin;
    if (!a->present)
        return true;
    s->admin = admin_start(&s->loop, s->gateway, a, on_drain_asked, s, error);
    if (!s->admin) {
        log_error("cannot start: the admin listener: %s", error);
        return false;
    }
    log_info("admin listener on %s", admin_url(s->admin));
    return true;
}

static int run(struct serve *s, struct settings *settings)
{
    char error[256] = "";
    CHECK_MSG(net_loop_init(&s->loop, 1000) == 0, "cannot make an event loop");
    s->gateway = gateway_start(settings, &s->loop, error);
    if (!s->gateway) {
        log_error("cannot start: %s", error);
        net_loop_fini(&s->loop);
        return 1;
    }
    handles_init(s);
    s->seen = file_hash(s->options->config);
    struct signals_settings watch;
    plan_signals(gateway_plan(s->gateway), &watch);
    s->signals = signals_start(&s->loop, &watch);
    bool started = start_admin(s);
    if (started) {
        watch_start(s);
        warn_if_open(gateway_plan(s->gateway));
        printf("listening on %s\n", gateway_url(s->gateway));
        fflush(stdout);
        net_loop_run(&s->loop);
    }
    admin_stop(s->admin);
    signals_stop(s->signals);
    close_all(s);
    gateway_stop(s->gateway);
    net_loop_fini(&s->loop);
    return started ? 0 : 1;
}

int cli_serve(const struct cli_options *o)
{
    if (o->debug)
        log_set_level(LOG_DEBUG);
    raise_limits();
    struct config_report r;
    config_report_init(&r);
    struct settings *settings = config_load(o->config, !o->config_given, &o->overrides, &r);
    print_report(&r);
    config_report_fini(&r);
    if (!settings) {
        log_error("not started: the configuration has faults");
        return 1;
    }
    struct serve s = {.options = o};
    return run(&s, settings);
}
