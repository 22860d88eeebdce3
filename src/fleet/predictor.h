/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a request will take at a target: w0 + w1 * queue depth + w2 * kilotokens of prompt, in
 * milliseconds. The three coefficients are learnt from requests that ended well, one at a time (normalised
 * least mean squares): a handful of samples gives a rough figure, some dozens a good one, and a target that
 * changes is followed within about as many.
 *
 * Threads: any. Learning takes a lock for some tens of nanoseconds; reading takes none and waits for nobody.
 */
#ifndef ROLTER_FLEET_PREDICTOR_H
#define ROLTER_FLEET_PREDICTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PREDICTOR_SILENT_BELOW = 8 /* samples */ };

struct predictor_weights {
    double base_ms, per_depth_ms, per_kilotoken_ms;
    uint64_t samples;
};

struct predictor {
    pthread_mutex_t lock; /* among writers */
    /* The low bit says which of the two copies counts. The other one may be half written. */
    _Atomic uint64_t version;
    struct {
        _Atomic uint64_t base, per_depth, per_kilotoken; /* doubles */
        _Atomic uint64_t samples;
    } copies[2];
};

void predictor_init(struct predictor *p);
void predictor_fini(struct predictor *p);
/* A request that found <depth> others and had <tokens> of prompt took <ms>. Nothing happens when <ms> is
 * negative or not finite. */
void predictor_learn(struct predictor *p, double ms, unsigned depth, uint64_t tokens);
/* False before PREDICTOR_SILENT_BELOW samples. Never negative. */
bool predictor_ask(const struct predictor *p, unsigned depth, uint64_t tokens, double *ret_ms);
struct predictor_weights predictor_weights(const struct predictor *p);

#endif
