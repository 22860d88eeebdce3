/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of rolter-replay. One table gives the reading and the help. Memory: strings belong to the
 * options; options_fini frees them.
 */
#ifndef ROLTER_REPLAY_OPTIONS_H
#define ROLTER_REPLAY_OPTIONS_H

#include "base/span.h"

enum { OPTIONS_LIST_MAX = 64 };

struct target_option { /* --target NAME,API_BASE,MODEL */
    char *name, *api_base, *model;
};

struct options {
    bool is_live;
    char *trace;
    char *json, *html, *record, *follow;
    double speed;
    uint64_t limit, block_tokens, scale, seed;
    bool skip_bad, own_loads;
    /* offline */
    uint64_t replicas, gateways;
    char *strategies;
    uint64_t blocks[OPTIONS_LIST_MAX];
    unsigned n_blocks;
    double prefill_tps, decode_ms;
    double sync_lag_ms;  /* until other gateways know of a placement; negative: never */
    double event_lag_ms; /* until a change of a cache is known to who hears of it */
    double slack_ms;
    double threshold, balance_rel; /* of cache_aware */
    uint64_t balance_abs;
    double miss_weight, home_bonus; /* of least_prefill */
    struct target_option targets[OPTIONS_LIST_MAX];
    unsigned n_targets;
    /* live */
    char *url, *model, *key;
    uint64_t max_output, timeout_ms;
    double gap_ms;
    bool ignore_eos, insecure;
};

enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_BAD };

enum { OPTIONS_ERROR_BYTES = 256 };

/* Reads the command line. BAD: ret_error (OPTIONS_ERROR_BYTES) says why. options_fini in any case. */
enum options_result options_read(struct options *o, int argc, char **argv, char *ret_error);
void options_fini(struct options *o);
void options_help(void);

#endif
