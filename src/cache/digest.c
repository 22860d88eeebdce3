/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/digest.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"

/* Fetched once: EVP_sha256() costs a look-up in the provider tables at each use. */
static const EVP_MD *sha256(void)
{
    static _Atomic(EVP_MD *) fetched;
    EVP_MD *md = atomic_load_explicit(&fetched, memory_order_acquire);
    if (!md) {
        md = EVP_MD_fetch(NULL, "SHA256", NULL);
        CHECK_MSG(md != NULL, "OpenSSL has no SHA-256");
        EVP_MD *none = NULL;
        if (!atomic_compare_exchange_strong(&fetched, &none, md)) {
            EVP_MD_free(md);
            md = none;
        }
    }
    return md;
}

static pthread_key_t context_of_thread;

static void free_context(void *ctx)
{
    EVP_MD_CTX_free(ctx);
}

static void make_context_key(void)
{
    CHECK(pthread_key_create(&context_of_thread, free_context) == 0);
}

static EVP_MD_CTX *context(void)
{
    static _Thread_local EVP_MD_CTX *ctx;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!ctx) {
        CHECK((ctx = EVP_MD_CTX_new()) != NULL);
        CHECK(pthread_once(&once, make_context_key) == 0);
        CHECK(pthread_setspecific(context_of_thread, ctx) == 0);
    }
    return ctx;
}

void digest_begin(struct digest_writer *w)
{
    w->ctx = context();
    w->n = 0;
    CHECK(EVP_DigestInit_ex2(w->ctx, sha256(), NULL));
}

static void flush(struct digest_writer *w)
{
    CHECK(EVP_DigestUpdate(w->ctx, w->gathered, w->n));
    w->n = 0;
}

void digest_add_large(struct digest_writer *w, const void *p, size_t n)
{
    flush(w);
    if (n >= DIGEST_GATHER / 2)
        CHECK(EVP_DigestUpdate(w->ctx, p, n));
    else
        digest_add(w, p, n);
}

void digest_add_u64(struct digest_writer *w, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    digest_add(w, b, sizeof b);
}

void digest_add_framed(struct digest_writer *w, struct span s)
{
    digest_add_u64(w, s.n);
    digest_add(w, s.p, s.n);
}

void digest_end(struct digest_writer *w, struct cache_digest *ret)
{
    unsigned n = sizeof ret->b;
    flush(w);
    CHECK(EVP_DigestFinal_ex(w->ctx, ret->b, &n));
}
