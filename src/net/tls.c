/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "net/tls_impl.h"

enum { ERROR_BYTES = 256 };

/* "<what>: <OpenSSL's reason>"; empties the error queue. */
static void say(char *ret_error, const char *what, const char *object)
{
    unsigned long code = ERR_peek_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (code && ERR_SYSTEM_ERROR(code))
        reason = strerror(ERR_GET_REASON(code));
    snprintf(ret_error, ERROR_BYTES, "%s%s%s: %s", what, *object ? " " : "", object,
             reason ? reason : "not usable");
    ERR_clear_error();
}

/* The code of http/1.1 in ALPN. A client that offers only other protocols gets the alert that RFC 7301 asks
 * for. */
static const unsigned char ALPN[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in,
                   unsigned in_n, void *arg)
{
    (void)ssl, (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_n, ALPN, sizeof ALPN, in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* A key with a passphrase must not make the process ask on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf, (void)size, (void)writing, (void)arg;
    return 0;
}

static struct tls_context *context_new(const SSL_METHOD *method)
{
    struct tls_context *t = MEM_NEW(struct tls_context);
    ERR_clear_error();
    t->refs = 1;
    t->ctx = SSL_CTX_new(method);
    CHECK(t->ctx);
    SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(t->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* Buffers of idle connections are given back: some 34 KiB each. */
    SSL_CTX_set_mode(t->ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_passwd_cb(t->ctx, no_passphrase);
    return t;
}

struct tls_context *tls_server_new(const char *cert, const char *key, char *ret_error)
{
    struct tls_context *t = context_new(TLS_server_method());
    SSL_CTX_set_alpn_select_cb(t->ctx, on_alpn, NULL);
    SSL_CTX_set_num_tickets(t->ctx, 1);
    static const unsigned char ID[] = "rolter";
    SSL_CTX_set_session_id_context(t->ctx, ID, sizeof ID - 1);
    if (SSL_CTX_use_certificate_chain_file(t->ctx, cert) != 1)
        say(ret_error, "certificate", cert);
    else if (SSL_CTX_use_PrivateKey_file(t->ctx, key, SSL_FILETYPE_PEM) != 1)
        say(ret_error, "private key", key);
    else if (SSL_CTX_check_private_key(t->ctx) != 1)
        say(ret_error, "private key does not belong to the certificate", "");
    else
        return t;
    tls_context_unref(t);
    return NULL;
}

struct tls_context *tls_client_new(const char *const *ca_bundles, size_t n, bool verify, char *ret_error)
{
    struct tls_context *t = context_new(TLS_client_method());
    SSL_CTX_set_alpn_protos(t->ctx, ALPN, sizeof ALPN);
    SSL_CTX_set_verify(t->ctx, verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(t->ctx, stream_tls_on_session);
    if (!verify)
        return t;
    SSL_CTX_set_default_verify_paths(t->ctx);
    for (size_t i = 0; i < n; i++) {
        if (SSL_CTX_load_verify_file(t->ctx, ca_bundles[i]) != 1) {
            say(ret_error, "CA bundle", ca_bundles[i]);
            tls_context_unref(t);
            return NULL;
        }
    }
    ERR_clear_error();
    return t;
}

struct tls_context *tls_context_ref(struct tls_context *t)
{
    t->refs++;
    return t;
}

void tls_context_unref(struct tls_context *t)
{
    if (!t || --t->refs)
        return;
    for (size_t i = 0; i < TLS_SESSIONS; i++)
        SSL_SESSION_free(t->sessions[i].session);
    SSL_CTX_free(t->ctx);
    free(t);
}

SSL_SESSION *tls_session_find(struct tls_context *t, const char *key)
{
    for (size_t i = 0; i < TLS_SESSIONS; i++)
        if (t->sessions[i].session && !strcmp(t->sessions[i].key, key))
            return t->sessions[i].session;
    return NULL;
}

void tls_session_keep(struct tls_context *t, const char *key, SSL_SESSION *session)
{
    struct tls_session *slot = NULL;
    for (size_t i = 0; i < TLS_SESSIONS && !slot; i++)
        if (!strcmp(t->sessions[i].key, key))
            slot = &t->sessions[i];
    if (!slot)
        slot = &t->sessions[t->next_session++ % TLS_SESSIONS];
    SSL_SESSION_free(slot->session);
    slot->session = session;
    snprintf(slot->key, sizeof slot->key, "%s", key);
}

bool tls_bundle_check(const char *path, char *ret_error)
{
    ERR_clear_error();
    BIO *file = BIO_new_file(path, "r");
    X509 *cert = file ? PEM_read_bio_X509(file, NULL, no_passphrase, NULL) : NULL;
    if (!cert)
        say(ret_error, file ? "no certificate in" : "CA bundle", path);
    X509_free(cert);
    BIO_free(file);
    return cert != NULL;
}
