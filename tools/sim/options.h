/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of rolter-sim: one table gives the command line, the help and the faults that may change at run
 * time (POST /sim/faults uses the same names with '_' for '-'). Memory: strings belong to the options;
 * sim_options_fini frees them.
 */
#ifndef ROLTER_SIM_OPTIONS_H
#define ROLTER_SIM_OPTIONS_H

#include "json/json.h"
#include "publisher.h"

/* Tokens: a reply's text must fit into a buffer. */
enum { SIM_MODELS_MAX = 64, SIM_MODEL_LEN_MAX = 32 << 20 };

struct sim_names {
    char *v[SIM_MODELS_MAX];
    unsigned n;
};

struct sim_options {
    char *listen, *port_file, *name, *api_key;
    struct sim_names models; /* none: any model is served */
    struct sim_names loras;  /* adapters, served as well */
    uint64_t block_size, blocks, max_model_len, max_running, max_waiting, tokens, seed, record;
    double prefill_tps, decode_tps;
    char *events, *events_replay, *events_topic, *events_format;
    bool events_hash_bytes, events_replay_topic;
    uint64_t events_rank;
    /* faults */
    double fail_rate, stall_rate, cut_rate;
    uint64_t fail_status, retry_after, head_delay_ms, slow_start_ms, health_status;
    char *error_body;
    bool cut_clean, chunk_usage, no_usage, no_done;
    struct publisher_faults events_faults;
    uint64_t told_blocks, template_tokens;
    char *lmcache_occupancy, *lmcache_body;
    uint64_t lmcache_status;
    bool lmcache_stall;
};

enum sim_options_result { SIM_OPTIONS_OK, SIM_OPTIONS_HELP, SIM_OPTIONS_BAD };

/* Reads the command line. BAD: ret_error (256 bytes) says why. The options must be finished in any case. */
enum sim_options_result sim_options_read(struct sim_options *o, int argc, char **argv, char *ret_error);
void sim_options_fini(struct sim_options *o);
void sim_options_help(void);
/* Changes faults from a JSON object; nothing changes when a member is unknown or bad (false, text in
 * ret_error). */
bool sim_options_set_faults(struct sim_options *o, const struct json_doc *d, struct arena *a,
                            char *ret_error);

#endif
