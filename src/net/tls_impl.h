/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a TLS context, for stream_tls.c.
 */
#ifndef ROLTER_NET_TLS_IMPL_H
#define ROLTER_NET_TLS_IMPL_H

#include <openssl/ssl.h>

#include "net/tls.h"

enum { TLS_SESSIONS = 16, TLS_SESSION_KEY = 272 };

/* The last session with a server, for a shorter handshake next time. */
struct tls_session {
    char key[TLS_SESSION_KEY]; /* "name:port"; empty = unused */
    SSL_SESSION *session;
};

struct tls_context {
    SSL_CTX *ctx;
    unsigned refs;
    unsigned next_session; /* which slot is replaced next */
    struct tls_session sessions[TLS_SESSIONS];
};

/* The session kept for <key>, borrowed, or NULL. */
SSL_SESSION *tls_session_find(struct tls_context *t, const char *key);
/* Takes over <session>. */
void tls_session_keep(struct tls_context *t, const char *key, SSL_SESSION *session);
/* Called by OpenSSL for each new session of a client; defined by the stream layer. */
int stream_tls_on_session(SSL *ssl, SSL_SESSION *session);

#endif
