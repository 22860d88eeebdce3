/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "server_rig.h"

static char dir[] = "/tmp/rolter-test-XXXXXX", cert_path[64], key_path[64];

/* A certificate that signs itself. */
static int make_certificate(void **state)
{
    assert_non_null(mkdtemp(dir));
    snprintf(cert_path, sizeof cert_path, "%s/cert.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/key.pem", dir);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_true(key && x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fopen(cert_path, "w");
    assert_true(f && PEM_write_X509(f, x) == 1);
    fclose(f);
    f = fopen(key_path, "w");
    assert_true(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
    return 0;
}

static int remove_certificate(void **state)
{
    unlink(cert_path);
    unlink(key_path);
    return rmdir(dir);
}

struct secure {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
    struct buf in;
    bool closed;
};

static struct rig *secure_rig(enum rig_does does)
{
    char error[256] = "";
    struct rig *r = rig_new();
    r->does = does;
    r->o.tls = tls_server_new(cert_path, key_path, error);
    assert_string_equal(error, "");
    rig_open(r);
    tls_context_unref(r->o.tls); /* the server keeps its own */
    return r;
}

/* Does <call> until it succeeds or fails for good; its result. */
#define SECURE(r, s, ret, call)                                                                              \
    do {                                                                                                     \
        uint64_t until_ = clock_mono_ms() + RIG_DEADLINE_MS;                                                 \
        int why_;                                                                                            \
        ERR_clear_error();                                                                                   \
        while (((ret) = (call)) <= 0 && ((why_ = SSL_get_error((s)->ssl, (ret))) == SSL_ERROR_WANT_READ ||   \
                                         why_ == SSL_ERROR_WANT_WRITE)) {                                    \
            assert_true(clock_mono_ms() < until_);                                                           \
            rig_turn((r), NULL);                                                                             \
        }                                                                                                    \
    } while (0)

static void secure_connect(struct rig *r, struct secure *s)
{
    *s = (struct secure){.fd = connect_port(server_port(r->s)), .ctx = SSL_CTX_new(TLS_client_method())};
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    s->ssl = SSL_new(s->ctx);
    SSL_set_fd(s->ssl, s->fd);
    buf_init(&s->in, 64 << 20);
    int ret;
    SECURE(r, s, ret, SSL_connect(s->ssl));
    assert_int_equal(ret, 1);
}

static void secure_send(struct rig *r, struct secure *s, const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int ret;
        SECURE(r, s, ret, SSL_write(s->ssl, p + at, (int)(n - at)));
        assert_true(ret > 0);
        at += (size_t)ret;
    }
}

/* Reads until <text> was seen, or the end when it is NULL. */
static void secure_read(struct rig *r, struct secure *s, const char *text)
{
    char part[16384];
    while (!text || span_find(buf_view(&s->in), span_str(text)) < 0) {
        int ret;
        SECURE(r, s, ret, SSL_read(s->ssl, part, sizeof part));
        if (ret <= 0) {
            s->closed = SSL_get_error(s->ssl, ret) == SSL_ERROR_ZERO_RETURN;
            assert_null(text);
            return;
        }
        buf_add(&s->in, part, (size_t)ret);
    }
}

static void secure_close(struct secure *s)
{
    if (s->fd >= 0)
        close(s->fd);
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
    buf_fini(&s->in);
}

#define GET "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"

static void requests_and_bodies(void **state)
{
    struct rig *r = secure_rig(RIG_ANSWER);
    struct secure s;
    secure_connect(r, &s);
    secure_send(r, &s, GET GET, 2 * (sizeof GET - 1));
    secure_read(r, &s, "GET /x 0\n");
    size_t n = 3000000;
    char *body = mem_alloc(n);
    for (size_t i = 0; i < n; i++)
        body[i] = (char)('a' + i % 23);
    static const char head[] = "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n";
    secure_send(r, &s, head, sizeof head - 1);
    secure_send(r, &s, body, n);
    r->reply_bytes = 1 << 20;
    secure_read(r, &s, "POST /b 3000000\n");
    assert_true(span_eq(buf_view(&r->last_body), span_of(body, n)));
    free(body);
    /* The end is a close_notify behind the whole reply. */
    static const char last[] = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    secure_send(r, &s, last, sizeof last - 1);
    secure_read(r, &s, NULL);
    assert_true(s.closed);
    assert_true(span_find(buf_view(&s.in), SPAN("GET /last 0\n")) > 0);
    assert_true(s.in.n > 2 << 20);
    secure_close(&s);
    RIG_WAIT(r, server_connections(r->s) == 0);
    rig_free(r);
}

static void secure_burst(void **state)
{
    struct rig *r = secure_rig(RIG_PARK);
    struct secure s;
    secure_connect(r, &s);
    struct buf burst;
    buf_init(&burst, 1 << 20);
    for (int i = 0; i < 1000; i++)
        buf_printf(&burst, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    secure_send(r, &s, burst.p, burst.n);
    buf_fini(&burst);
    for (unsigned i = 0; i < 1000; i++) {
        char want[32];
        RIG_WAIT(r, r->parked);
        snprintf(want, sizeof want, "/%u", i);
        assert_string_equal(r->last_path, want);
        struct conn *c = r->parked;
        r->parked = NULL;
        rig_answer(r, c);
    }
    secure_read(r, &s, "GET /999 0\n");
    secure_close(&s);
    rig_free(r);
}

static void goes_away(void **state)
{
    /* Without a word, and with a close_notify first. */
    for (int polite = 0; polite < 2; polite++) {
        struct rig *r = secure_rig(RIG_PARK);
        struct secure s;
        secure_connect(r, &s);
        secure_send(r, &s, GET, sizeof GET - 1);
        RIG_WAIT(r, r->parked);
        if (polite)
            SSL_shutdown(s.ssl);
        close(s.fd);
        s.fd = -1;
        uint64_t since = clock_mono_ms();
        RIG_WAIT(r, r->gone == 1);
        assert_true(clock_mono_ms() - since < 2000); /* before the first check of the slow series */
        secure_close(&s);
        rig_free(r);
    }
}

static void no_handshake(void **state)
{
    struct rig *r = secure_rig(RIG_ANSWER);
    struct client *plain = rig_connect(r);
    client_say(r, plain, GET);
    RIG_WAIT(r, plain->eof || plain->reset);
    assert_int_equal(r->heads, 0);
    assert_false(client_has(plain, "HTTP/1.1"));
    /* Silence: the head's time-out covers the handshake. */
    r->o.head_ms = 30;
    server_update(r->s, &r->o);
    struct client *silent = rig_connect(r);
    RIG_WAIT(r, silent->eof || silent->reset);
    RIG_WAIT(r, server_connections(r->s) == 0);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_bodies),
        cmocka_unit_test(secure_burst),
        cmocka_unit_test(goes_away),
        cmocka_unit_test(no_handshake),
    };
    return cmocka_run_group_tests(tests, make_certificate, remove_certificate);
}
