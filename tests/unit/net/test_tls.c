/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/stream.h"
#include "net/tls_impl.h"
#include "net/upstream_unit.h"

static struct net_loop loop;
static char dir[] = "/tmp/rolter-tls-XXXXXX";
static char *cert_path, *key_path, *other_cert_path, *other_key_path, *junk_path;
static uint16_t port;
static int listener;

/* ---- certificates ---- */

static void write_pair(const char *cert, const char *key, const char *names)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_non_null(pair);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), (long)(clock_mono_us() & 0xffffff) + 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)cert, -1,
                               -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
    X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, names);
    X509_EXTENSION *ca = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(san && ca && X509_add_ext(x, san, -1) && X509_add_ext(x, ca, -1));
    assert_true(X509_sign(x, pair, EVP_sha256()) > 0);
    FILE *f = fopen(cert, "w");
    assert_true(f && PEM_write_X509(f, x));
    fclose(f);
    f = fopen(key, "w");
    assert_true(f && PEM_write_PrivateKey(f, pair, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    X509_EXTENSION_free(san);
    X509_EXTENSION_free(ca);
    X509_free(x);
    EVP_PKEY_free(pair);
}

static int make_files(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    cert_path = mem_printf("%s/cert.pem", dir);
    key_path = mem_printf("%s/key.pem", dir);
    other_cert_path = mem_printf("%s/o.pem", dir);
    other_key_path = mem_printf("%s/ok.pem", dir);
    junk_path = mem_printf("%s/junk.pem", dir);
    write_pair(cert_path, key_path, "DNS:localhost,DNS:good.example,IP:127.0.0.1");
    write_pair(other_cert_path, other_key_path, "DNS:localhost,IP:127.0.0.1");
    FILE *f = fopen(junk_path, "w");
    assert_true(f && fputs("no certificate\n", f) > 0);
    fclose(f);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    char **const all[] = {&cert_path, &key_path, &other_cert_path, &other_key_path, &junk_path};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        unlink(*all[i]);
        free(*all[i]);
    }
    return rmdir(dir);
}

/* ---- two ends in one loop ---- */

struct end {
    struct stream *s;
    struct buf got;
    unsigned reads, dones, drains, connected;
    int eof, error, connect_error;
    bool echo, stop_after_read, at_eof_close;
    char text[200];
};

static void on_read(struct stream *s, void *arg, const char *p, size_t n)
{
    struct end *e = arg;
    e->reads++;
    assert_int_equal(e->eof, 0);
    buf_add(&e->got, p, n);
    const struct iovec iov[] = {{(void *)p, n / 3}, {(void *)(p + n / 3), n - n / 3}};
    if (e->echo)
        assert_int_equal(stream_writev(s, iov, 2), 0);
    if (e->stop_after_read)
        stream_read_stop(s);
}

static void on_read_done(struct stream *s, void *arg)
{
    (void)s;
    ((struct end *)arg)->dones++;
}

static void on_eof(struct stream *s, void *arg)
{
    (void)s;
    ((struct end *)arg)->eof++;
}

static void on_error(struct stream *s, void *arg, int err)
{
    struct end *e = arg;
    const char *text = stream_tls_error(s);
    assert_int_equal(e->error, 0);
    e->error = err;
    snprintf(e->text, sizeof e->text, "%s", text ? text : "");
    stream_close(s, false);
    e->s = NULL;
}

static void on_drain(struct stream *s, void *arg)
{
    (void)s;
    ((struct end *)arg)->drains++;
}

static const struct stream_events EVENTS = {on_read, on_read_done, on_eof, on_error, on_drain};

static void on_connect(struct stream *s, void *arg, int err)
{
    struct end *e = arg;
    const char *text = stream_tls_error(s);
    e->connected++;
    e->connect_error = err;
    snprintf(e->text, sizeof e->text, "%s", text ? text : "");
    if (err)
        e->s = NULL;
    else
        stream_read_start(s);
}

static void end_init(struct end *e)
{
    *e = (struct end){0};
    buf_init(&e->got, SIZE_MAX / 2);
}

static void end_fini(struct end *e)
{
    if (e->s)
        stream_close(e->s, false);
    buf_fini(&e->got);
}

static int accept_now(void)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Starts both ends; the handshake is not done when this returns. */
static void start_pair(struct end *c, struct end *s, struct tls_context *client, struct tls_context *server,
                       const char *name)
{
    struct sockaddr_in a = loopback(port);
    int fd;
    end_init(c);
    end_init(s);
    c->s = stream_connect(&loop, (struct sockaddr *)&a, client, name, on_connect, &EVENTS, c);
    RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
    s->s = stream_accept(&loop, fd, server, &EVENTS, s);
    assert_non_null(s->s);
    stream_read_start(s->s);
}

static struct tls_context *server_new(void)
{
    char error[256];
    struct tls_context *t = tls_server_new(cert_path, key_path, error);
    assert_non_null(t);
    return t;
}

static struct tls_context *client_new(const char *bundle, bool verify)
{
    char error[256];
    struct tls_context *t = tls_client_new(&bundle, bundle ? 1 : 0, verify, error);
    assert_non_null(t);
    return t;
}

static int setup(void **state)
{
    (void)state;
    listener = listen_any(&port);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    return net_loop_init(&loop, 0);
}

static int teardown(void **state)
{
    (void)state;
    close(listener);
    net_loop_fini(&loop);
    return 0;
}

static void send_all(struct end *e, const char *p, size_t n)
{
    const struct iovec iov[] = {{(void *)p, n / 2}, {(void *)p, 0}, {(void *)(p + n / 2), n - n / 2}};
    assert_int_equal(stream_writev(e->s, iov, 3), 0);
}

static void test_echo(void **state)
{
    (void)state;
    struct tls_context *server = server_new(), *client = client_new(cert_path, true);
    static const char *const NAMES[] = {"localhost", "127.0.0.1", "good.example", "good.example.",
                                        "LocalHost"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        struct end c, s;
        start_pair(&c, &s, client, server, NAMES[i]);
        s.echo = true;
        RUN_UNTIL(&loop, c.connected);
        assert_int_equal(c.connect_error, 0);
        send_all(&c, "hello", 5);
        RUN_UNTIL(&loop, c.got.n == 5);
        assert_memory_equal(c.got.p, "hello", 5);
        assert_int_equal(c.reads, 1); /* two vectors, one record */
        assert_int_equal(c.dones, 1);
        stream_shutdown(c.s);
        RUN_UNTIL(&loop, s.eof);
        send_all(&s, "late", 4);
        RUN_UNTIL(&loop, c.got.n == 9);
        stream_close(s.s, false);
        s.s = NULL;
        RUN_UNTIL(&loop, c.eof);
        end_fini(&c);
        end_fini(&s);
    }
    tls_context_unref(client);
    tls_context_unref(server);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        const char *bundle, *name, *text;
        bool verify, works;
    } CASES[] = {
        {NULL, "localhost", "self", true, false},         {other_cert_path, "localhost", "", true, false},
        {cert_path, "other.example", "ost", true, false}, {cert_path, "127.0.0.2", "address", true, false},
        {NULL, "other.example", "", false, true},         {cert_path, "x.localhost", "ost", true, false},
    };
    struct tls_context *server = server_new();
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct tls_context *client = client_new(CASES[i].bundle, CASES[i].verify);
        struct end c, s;
        start_pair(&c, &s, client, server, CASES[i].name);
        RUN_UNTIL(&loop, c.connected);
        if (CASES[i].works) {
            assert_int_equal(c.connect_error, 0);
        } else {
            assert_int_equal(c.connect_error, STREAM_ERR_TLS);
            assert_non_null(strstr(c.text, "certificate: "));
            assert_non_null(strstr(c.text, CASES[i].text));
            RUN_UNTIL(&loop, s.error || s.eof);
        }
        end_fini(&c);
        end_fini(&s);
        tls_context_unref(client);
    }
    tls_context_unref(server);
}

/* Much data both ways: records, several reads, back-pressure below the TLS layer. */
static void test_bulk(void **state)
{
    (void)state;
    enum { BYTES = 6 << 20 };
    struct tls_context *server = server_new(), *client = client_new(cert_path, true);
    struct end c, s;
    start_pair(&c, &s, client, server, "localhost");
    RUN_UNTIL(&loop, c.connected);
    assert_int_equal(c.connect_error, 0);
    char *bytes = mem_alloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (char)(i % 253);
    s.stop_after_read = true;
    send_all(&c, bytes, BYTES);
    assert_true(stream_queued(c.s) > 0);
    RUN_UNTIL(&loop, s.reads == 1);
    turn(&loop);
    turn(&loop);
    assert_int_equal(s.reads,
                     1); /* nothing comes after a stop, although more was read and decrypted is possible */
    stream_shutdown(c.s);
    for (unsigned reads = 1; s.got.n < BYTES; reads = s.reads) {
        assert_int_equal(s.eof, 0);
        stream_read_start(s.s);
        RUN_UNTIL(&loop, s.reads > reads);
        assert_int_equal(s.reads, reads + 1);
    }
    assert_memory_equal(s.got.p, bytes, BYTES);
    assert_int_equal(s.eof, 0); /* not while reading is stopped */
    stream_read_start(s.s);
    RUN_UNTIL(&loop, s.eof == 1);
    assert_int_equal(s.got.n, BYTES);
    assert_int_equal(c.drains, 1);
    free(bytes);
    end_fini(&c);
    end_fini(&s);
    tls_context_unref(client);
    tls_context_unref(server);
}

/* An end of the connection without close_notify: nobody knows whether bytes are missing. */
static void test_truncated(void **state)
{
    (void)state;
    struct tls_context *server = server_new(), *client = client_new(cert_path, true);
    struct end c, s;
    start_pair(&c, &s, client, server, "localhost");
    RUN_UNTIL(&loop, c.connected);
    send_all(&c, "x", 1);
    RUN_UNTIL(&loop, s.got.n == 1);
    stream_close(s.s, true);
    s.s = NULL;
    RUN_UNTIL(&loop, c.error);
    assert_int_equal(c.error, UV_ECONNRESET);
    end_fini(&c);
    end_fini(&s);

    struct sockaddr_in a = loopback(port); /* a server that hangs up instead of shaking hands */
    int fd;
    end_init(&c);
    c.s = stream_connect(&loop, (struct sockaddr *)&a, client, "localhost", on_connect, &EVENTS, &c);
    RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
    char tmp[4096];
    RUN_UNTIL(&loop, recv(fd, tmp, sizeof tmp, 0) > 0);
    shutdown(fd, SHUT_WR);
    RUN_UNTIL(&loop, c.connected);
    assert_int_equal(c.connect_error, STREAM_ERR_TLS);
    assert_non_null(strstr(c.text, "handshake"));
    close(fd);
    end_fini(&c);

    end_init(&c); /* plain HTTP where TLS is spoken */
    c.s = stream_connect(&loop, (struct sockaddr *)&a, client, "localhost", on_connect, &EVENTS, &c);
    RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
    assert_int_equal(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0), 28);
    RUN_UNTIL(&loop, c.connected);
    assert_int_equal(c.connect_error, STREAM_ERR_TLS);
    assert_true(c.text[0] != 0);
    close(fd);
    end_fini(&c);

    end_init(&c); /* and a client that speaks no TLS to our server */
    end_init(&s);
    c.s = stream_connect(&loop, (struct sockaddr *)&a, NULL, NULL, on_connect, &EVENTS, &c);
    RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
    s.s = stream_accept(&loop, fd, server, &EVENTS, &s);
    stream_read_start(s.s);
    RUN_UNTIL(&loop, c.connected);
    send_all(&c, "GET / HTTP/1.1\r\n\r\n", 18);
    RUN_UNTIL(&loop, s.error);
    assert_int_equal(s.error, STREAM_ERR_TLS);
    end_fini(&c);
    end_fini(&s);
    tls_context_unref(client);
    tls_context_unref(server);
}

/* An HTTP client of OpenSSL's own that offers only h2, or only TLS 1.1, is refused. */
static void test_protocols(void **state)
{
    (void)state;
    struct tls_context *server = server_new();
    for (int i = 0; i < 3; i++) {
        struct end s;
        int fd, ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in a = loopback(port);
        assert_int_equal(connect(ours, (struct sockaddr *)&a, sizeof a), 0);
        fcntl(ours, F_SETFL, O_NONBLOCK);
        RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
        end_init(&s);
        s.s = stream_accept(&loop, fd, server, &EVENTS, &s);
        stream_read_start(s.s);
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_security_level(ctx, 0);
        if (i == 0)
            SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\2h2", 3);
        else if (i == 1)
            SSL_CTX_set_max_proto_version(ctx, TLS1_1_VERSION);
        else
            SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\2h2\10http/1.1", 12);
        SSL *ssl = SSL_new(ctx);
        SSL_set_fd(ssl, ours);
        int r;
        RUN_UNTIL(&loop, (r = SSL_connect(ssl)) == 1 || SSL_get_error(ssl, r) != SSL_ERROR_WANT_READ);
        if (i < 2) {
            assert_int_not_equal(r, 1);
            RUN_UNTIL(&loop, s.error);
            assert_int_equal(s.error, STREAM_ERR_TLS);
        } else {
            const unsigned char *alpn;
            unsigned n;
            assert_int_equal(r, 1);
            SSL_get0_alpn_selected(ssl, &alpn, &n);
            assert_int_equal(n, 8);
            assert_memory_equal(alpn, "http/1.1", 8);
        }
        SSL_free(ssl);
        SSL_CTX_free(ctx);
        close(ours);
        end_fini(&s);
    }
    tls_context_unref(server);
}

static void test_files(void **state)
{
    (void)state;
    char error[256];
    assert_true(tls_bundle_check(cert_path, error));
    assert_false(tls_bundle_check(junk_path, error));
    assert_non_null(strstr(error, junk_path));
    assert_false(tls_bundle_check("/nonexistent.pem", error));
    assert_non_null(strstr(error, "No such file"));
    assert_null(tls_server_new(cert_path, other_key_path, error));
    assert_true(strlen(error) > 10);
    assert_null(tls_server_new(junk_path, key_path, error));
    assert_non_null(strstr(error, junk_path));
    assert_null(tls_server_new("/nonexistent.pem", key_path, error));
    assert_non_null(strstr(error, "No such file"));
    assert_null(tls_server_new(cert_path, junk_path, error));
    const char *bundle = junk_path;
    assert_null(tls_client_new(&bundle, 1, true, error));
    assert_non_null(strstr(error, junk_path));
    struct tls_context *t = client_new(cert_path, true);
    assert_ptr_equal(tls_context_ref(t), t);
    tls_context_unref(t);
    tls_context_unref(t);
    tls_context_unref(NULL);
}

/* Exchanges over TLS: kept connections, resumed sessions, failures with their reason. */
static void answer_read(struct stream *s, void *arg, const char *p, size_t n)
{
    struct end *e = arg;
    buf_add(&e->got, p, n);
    if (e->got.n < 4 || memcmp(e->got.p + e->got.n - 4, "\r\n\r\n", 4) != 0)
        return;
    buf_clear(&e->got);
    e->reads++;
    static const char REPLY[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const struct iovec iov = {(void *)REPLY, sizeof REPLY - 1};
    assert_int_equal(stream_writev(s, &iov, 1), 0);
}

static const struct stream_events ANSWER_EVENTS = {answer_read, NULL, on_eof, on_error, NULL};

static void test_exchange(void **state)
{
    (void)state;
    struct tls_context *server = server_new();
    struct pool *pool = pool_new(&loop, 4, 60000);
    const char *bundles[] = {cert_path};
    struct net_origin origin;
    const char *why;
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%u", port);
    assert_true(origin_parse(span_str(url), &origin, &why));
    origin.ca_bundles = bundles;
    origin.n_ca_bundles = 1;
    origin_seal(&origin);
    struct end s;
    struct owner o;
    for (int round = 0; round < 4; round++) { /* new, kept, new again with a resumed session, kept */
        owner_init(&o);
        owner_get(&o, pool, &origin, NULL);
        if (round % 2 == 0) {
            int fd;
            RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
            end_init(&s);
            s.s = stream_accept(&loop, fd, server, &ANSWER_EVENTS, &s);
            stream_read_start(s.s);
        }
        RUN_UNTIL(&loop, owner_over(&o));
        assert_int_equal(o.ends, 1);
        assert_int_equal(o.body.n, 2);
        assert_int_equal(o.reused, round % 2);
        assert_int_equal(pool_idle(pool), 1);
        owner_fini(&o);
        if (round % 2 == 1) {
            end_fini(&s);
            RUN_UNTIL(&loop, pool_idle(pool) == 0);
        }
    }
    assert_int_equal(SSL_CTX_sess_hits(server->ctx), 1);
    origin.n_ca_bundles = 0;
    origin_seal(&origin);
    owner_init(&o);
    owner_get(&o, pool, &origin, NULL);
    int fd;
    RUN_UNTIL(&loop, (fd = accept_now()) >= 0);
    end_init(&s);
    s.s = stream_accept(&loop, fd, server, &ANSWER_EVENTS, &s);
    stream_read_start(s.s);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_TLS);
    assert_non_null(strstr(o.detail, "certificate"));
    owner_fini(&o);
    end_fini(&s);

    bundles[0] = junk_path;
    origin.n_ca_bundles = 1;
    origin_seal(&origin);
    owner_init(&o);
    owner_get(&o, pool, &origin, NULL);
    RUN_UNTIL(&loop, owner_over(&o));
    assert_int_equal(o.why, EXCHANGE_TLS);
    assert_non_null(strstr(o.detail, junk_path));
    owner_fini(&o);
    origin_fini(&origin);
    pool_free(pool);
    tls_context_unref(server);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_echo),      TEST(test_refusals), TEST(test_bulk),     TEST(test_truncated),
        TEST(test_protocols), TEST(test_files),    TEST(test_exchange),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
