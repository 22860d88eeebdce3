/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS contexts (OpenSSL 3). TLS 1.2 and 1.3, ALPN "http/1.1". A context belongs to one loop: sessions are not
 * shared between threads.
 */
#ifndef ROLTER_NET_TLS_H
#define ROLTER_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct tls_context; /* wraps an SSL_CTX; reference counted by tls_context_ref/unref on one thread */

/* <cert> and <key>: PEM files. NULL with a text in ret_error (at least 256 bytes) when they cannot be used.
 */
struct tls_context *tls_server_new(const char *cert, const char *key, char *ret_error);
/* System roots plus the PEM files in <ca_bundles>. <verify> false switches verification off. */
struct tls_context *tls_client_new(const char *const *ca_bundles, size_t n, bool verify, char *ret_error);
struct tls_context *tls_context_ref(struct tls_context *t);
void tls_context_unref(struct tls_context *t);
/* Checks that a file holds at least one certificate, for `rolter check`. */
bool tls_bundle_check(const char *path, char *ret_error);

#endif
