/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS between a socket and the owner of its stream. OpenSSL reads through a BIO that is a window onto the
 * loop's read buffer and writes through one that appends to the loop's cipher_out, so no byte is copied for
 * its sake and one socket write carries all records of one stream_writev.
 */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/stream_impl.h"
#include "net/tls_impl.h"

enum { TEXT_BYTES = 160, RECORD_BYTES = 16384, PIECE_BYTES = 65536 };

struct stream_tls {
    SSL *ssl;
    struct tls_context *ctx;
    struct net_loop *loop;
    const char *in; /* the window: bytes of the current read that OpenSSL has not taken */
    size_t in_n;
    struct buf held; /* the rest of a read that stream_read_stop interrupted */
    bool client;
    bool ready;       /* handshake done */
    bool interrupted; /* OpenSSL may have more although nothing new came */
    bool goodbye;     /* close_notify sent */
    bool socket_eof;  /* the peer closed the socket's sending side */
    bool failed;
    char text[TEXT_BYTES];
    char session_key[TLS_SESSION_KEY];
};

/* ---- what OpenSSL reads from and writes to ---- */

static int bio_read(BIO *b, char *out, int n)
{
    struct stream_tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (t->in_n == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    size_t take = t->in_n < (size_t)n ? t->in_n : (size_t)n;
    memcpy(out, t->in, take);
    t->in += take;
    t->in_n -= take;
    return (int)take;
}

static int bio_write(BIO *b, const char *p, int n)
{
    struct stream_tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    buf_add(&t->loop->cipher_out, p, (size_t)n);
    return n;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b, (void)num, (void)ptr;
    return cmd == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

static BIO_METHOD *bio_method;

static void bio_method_make(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rolter stream");
    CHECK(bio_method);
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
    BIO_meth_set_create(bio_method, bio_create);
}

/* ---- life ---- */

int stream_tls_on_session(SSL *ssl, SSL_SESSION *session)
{
    struct stream_tls *t = SSL_get_app_data(ssl);
    tls_session_keep(t->ctx, t->session_key, session);
    return 1; /* the reference is ours now */
}

static bool expect_peer(struct stream_tls *t, const char *name, uint16_t port)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
    struct in6_addr any;
    bool literal = inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    /* A name may end in the dot of the root; certificates and SNI do not have it. */
    size_t n = strlen(name);
    if (n && name[n - 1] == '.')
        n--;
    snprintf(t->session_key, sizeof t->session_key, "%.*s", (int)n, name);
    bool ok = literal ? X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1
                      : X509_VERIFY_PARAM_set1_host(param, name, n) == 1 &&
                            SSL_set_tlsext_host_name(t->ssl, t->session_key) == 1;
    n = strlen(t->session_key);
    snprintf(t->session_key + n, sizeof t->session_key - n, ":%u", (unsigned)port);
    SSL_SESSION *kept = tls_session_find(t->ctx, t->session_key);
    if (kept)
        SSL_set_session(t->ssl, kept);
    return ok;
}

struct stream_tls *stream_tls_new(struct stream *s, struct tls_context *ctx, const char *server_name,
                                  uint16_t port)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_method_make);
    struct stream_tls *t = MEM_NEW(struct stream_tls);
    t->loop = s->loop;
    t->ctx = tls_context_ref(ctx);
    t->client = server_name != NULL;
    buf_init(&t->held, SIZE_MAX / 2);
    t->ssl = SSL_new(ctx->ctx);
    BIO *bio = BIO_new(bio_method);
    CHECK(t->ssl && bio);
    BIO_set_data(bio, t);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_app_data(t->ssl, t);
    if (!t->client) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
        if (!expect_peer(t, server_name, port)) {
            stream_tls_free(t);
            return NULL;
        }
    }
    return t;
}

void stream_tls_free(struct stream_tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    tls_context_unref(t->ctx);
    buf_fini(&t->held);
    free(t);
}

const char *stream_tls_text(const struct stream_tls *t)
{
    return t->text[0] ? t->text : NULL;
}

/* ---- doing ---- */

static int flush_out(struct stream *s)
{
    struct buf *out = &s->loop->cipher_out;
    const struct iovec iov = {out->p, out->n};
    int err = s->broken ? s->broken : stream_send_raw(s, &iov, 1);
    buf_clear(out);
    return err;
}

static void note_failure(struct stream_tls *t)
{
    unsigned long code = ERR_peek_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    long verify = t->client ? SSL_get_verify_result(t->ssl) : X509_V_OK;
    t->failed = true;
    if (t->text[0])
        return;
    if (verify != X509_V_OK && SSL_get_verify_mode(t->ssl) != SSL_VERIFY_NONE)
        snprintf(t->text, sizeof t->text, "certificate: %s", X509_verify_cert_error_string(verify));
    else
        snprintf(t->text, sizeof t->text, "%s", reason ? reason : "the connection broke");
    ERR_clear_error();
}

static void tls_fail(struct stream *s)
{
    note_failure(s->tls);
    flush_out(s); /* the alert that tells the peer why */
    if (!s->closed && !s->told)
        stream_tell_error(s, STREAM_ERR_TLS);
}

/* True when the handshake is done (now or before) and the owner still wants the stream. */
static bool handshake(struct stream *s)
{
    struct stream_tls *t = s->tls;
    if (t->ready)
        return true;
    ERR_clear_error();
    int r = SSL_do_handshake(t->ssl);
    if (r != 1) {
        if (SSL_get_error(t->ssl, r) == SSL_ERROR_WANT_READ)
            flush_out(s);
        else
            tls_fail(s);
        return false;
    }
    t->ready = true;
    if (flush_out(s) || !t->client)
        return !s->broken;
    stream_tell_connected(s, 0);
    if (s->closed)
        return false;
    if (!s->reading)
        stream_poll(s, false);
    return true;
}

/* Decrypts into the loop's buffer until it is full or the input is used up; *ret_why is OpenSSL's reason to
 * stop, SSL_ERROR_NONE when the buffer is full. */
static size_t decrypt(struct stream_tls *t, int *ret_why)
{
    size_t got = 0;
    *ret_why = SSL_ERROR_NONE;
    ERR_clear_error();
    while (NET_READ_BYTES - got >= RECORD_BYTES) {
        size_t n;
        int r = SSL_read_ex(t->ssl, t->loop->plain_buf + got, NET_READ_BYTES - got, &n);
        if (r != 1) {
            *ret_why = SSL_get_error(t->ssl, r);
            break;
        }
        got += n;
    }
    return got;
}

static void hold_rest(struct stream_tls *t)
{
    if (t->in_n) /* the window may lie in <held> itself only when resuming, which has taken <held> away before
                  */
        buf_add(&t->held, t->in, t->in_n);
    t->in_n = 0;
    t->interrupted = true;
}

/* All bytes before the end of the socket's stream were handed over. */
static void conclude_eof(struct stream *s)
{
    struct stream_tls *t = s->tls;
    /* Without close_notify nobody knows whether a reply that ends with its connection was complete. Clients
     * of ours frame their requests, so for them it is an ordinary end. */
    if (t->ready && !t->client) {
        s->ev->on_eof(s, s->arg);
        return;
    }
    snprintf(t->text, sizeof t->text, "the peer closed the connection %s",
             t->ready ? "without saying so in TLS" : "during the handshake");
    t->failed = true;
    stream_tell_error(s, t->ready ? UV_ECONNRESET : STREAM_ERR_TLS);
}

static void deliver(struct stream *s)
{
    struct stream_tls *t = s->tls;
    bool any = false;
    int why = SSL_ERROR_NONE;
    t->interrupted = false;
    do {
        if (!s->reading) {
            hold_rest(t);
            break;
        }
        size_t got = decrypt(t, &why);
        if (got) {
            any = true;
            s->ev->on_read(s, s->arg, t->loop->plain_buf, got);
            if (s->closed)
                return;
        }
    } while (why == SSL_ERROR_NONE);
    flush_out(s); /* answers to key updates and the like */
    if (any && s->ev->on_read_done) {
        s->ev->on_read_done(s, s->arg);
        if (s->closed)
            return;
    }
    if (why == SSL_ERROR_NONE)
        return;
    if (!s->reading) {
        t->interrupted = why != SSL_ERROR_WANT_READ || t->socket_eof; /* OpenSSL says it again */
    } else if (why == SSL_ERROR_ZERO_RETURN) {
        stream_poll(s, false);
        s->eof = true;
        s->ev->on_eof(s, s->arg);
    } else if (why != SSL_ERROR_WANT_READ) {
        tls_fail(s);
    } else if (t->socket_eof) {
        conclude_eof(s);
    }
}

void stream_tls_start(struct stream *s)
{
    stream_poll(s, true);
    handshake(s);
}

void stream_tls_feed(struct stream *s, const char *p, size_t n)
{
    struct stream_tls *t = s->tls;
    if (t->failed)
        return;
    if (t->held.n) { /* reading was resumed, but what was held has not had its turn yet */
        buf_add(&t->held, p, n);
        return;
    }
    t->in = p;
    t->in_n = n;
    if (handshake(s) && !s->closed && !s->told)
        deliver(s);
    t->in_n = 0;
}

void stream_tls_resume(struct stream *s)
{
    struct stream_tls *t = s->tls;
    struct buf held = t->held;
    if (!t->interrupted || t->failed)
        return;
    buf_init(&t->held, SIZE_MAX / 2);
    t->in = held.p;
    t->in_n = held.n;
    deliver(s);
    t->in_n = 0;
    buf_fini(&held);
}

bool stream_tls_has_held(const struct stream_tls *t)
{
    return t->interrupted;
}

void stream_tls_eof(struct stream *s)
{
    struct stream_tls *t = s->tls;
    t->socket_eof = true;
    if (!t->interrupted)
        conclude_eof(s);
    else if (s->reading)
        stream_tls_resume(s);
}

/* Encrypts one piece of at most a record that is gathered from the vectors; moves on in them. */
static size_t encrypt_record(struct stream_tls *t, const struct iovec **iov, unsigned *n, size_t *skip)
{
    size_t got = 0;
    const char *from = t->loop->gather;
    while (*n && got < RECORD_BYTES) {
        size_t left = (*iov)->iov_len - *skip;
        size_t take = left < RECORD_BYTES - got ? left : RECORD_BYTES - got;
        const char *p = (const char *)(*iov)->iov_base + *skip;
        if (got == 0 && (take == RECORD_BYTES || *n == 1))
            from = p; /* a record from one vector needs no gathering */
        else if (take)
            memcpy(t->loop->gather + got, p, take);
        got += take;
        *skip += take;
        if (*skip == (*iov)->iov_len) {
            (*iov)++;
            (*n)--;
            *skip = 0;
        }
    }
    size_t written = 0;
    if (got == 0)
        return 0;
    ERR_clear_error();
    bool done = SSL_write_ex(t->ssl, from, got, &written) == 1;
    if (from == t->loop->gather)
        explicit_bzero(t->loop->gather, got); /* as in send_now */
    return done ? written : SIZE_MAX;
}

int stream_tls_writev(struct stream *s, const struct iovec *iov, unsigned n)
{
    struct stream_tls *t = s->tls;
    size_t skip = 0;
    if (!t->ready || t->failed || t->goodbye) {
        stream_break(s, UV_ENOTCONN);
        return UV_ENOTCONN;
    }
    while (n) {
        for (size_t piece = 0; n && piece < PIECE_BYTES;) {
            size_t r = encrypt_record(t, &iov, &n, &skip);
            if (r == SIZE_MAX) {
                note_failure(t);
                flush_out(s);
                stream_break(s, STREAM_ERR_TLS);
                return STREAM_ERR_TLS;
            }
            piece += r;
        }
        int err = flush_out(s);
        if (err)
            return err;
    }
    return 0;
}

void stream_tls_goodbye(struct stream *s)
{
    struct stream_tls *t = s->tls;
    if (!t->ready || t->failed || t->goodbye)
        return;
    t->goodbye = true;
    ERR_clear_error();
    SSL_shutdown(t->ssl);
    ERR_clear_error();
    flush_out(s);
}
