/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/kv_ids.h"

#include <pthread.h>

#include "base/hash.h"
#include "base/rng.h"

static uint64_t secret[2];
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void make_secret(void)
{
    rng_secure_bytes(secret, sizeof secret);
}

void kv_ids_init(void)
{
    pthread_once(&secret_once, make_secret);
}

uint64_t kv_root(struct span adapter, struct span salt)
{
    kv_ids_init();
    uint64_t h[2] = {hash_bytes_seed(adapter.p, adapter.n, secret[0]),
                     hash_bytes_seed(salt.p, salt.n, secret[1])};
    uint64_t lengths[2] = {adapter.n,
                           salt.n}; /* no adapter is not an adapter whose hash is that of nothing */
    uint64_t id = hash_mix(hash_bytes_seed(h, sizeof h, secret[0]),
                           hash_bytes_seed(lengths, sizeof lengths, secret[1]));
    return id ? id : 1;
}

uint64_t kv_digest(const uint32_t *token, size_t n)
{
    return hash_bytes_seed(token, n * sizeof *token, secret[0]);
}

uint64_t kv_behind(uint64_t before, uint64_t digest)
{
    uint64_t both[2] = {before, digest};
    uint64_t id = hash_bytes_seed(both, sizeof both, secret[1]);
    return id ? id : 1;
}
