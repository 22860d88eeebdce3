/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/prompt_blocks.h"

#include "balance/block_chain.h"

/* Role words and eight bytes for each image may make the prompt longer than the body. */
enum { SLACK = 4096 };

static void feed(void *arg, const char *p, size_t n)
{
    block_chain_feed(arg, p, n);
}

enum salt_kind { SALT_CACHE = 1, SALT_ADAPTER };

/* The same word means something else in another member. */
static uint64_t salt_with(const struct json_doc *d, const char *member, enum salt_kind kind, struct arena *a,
                          uint64_t salt)
{
    struct span v = json_string(d, json_get(d, 0, member), a);
    return v.n ? hash_mix(hash_bytes_seed(v.p, v.n, kind), salt) : salt;
}

void prompt_blocks_read(enum dialect_id id, const struct json_doc *d, struct arena *a,
                        struct prompt_blocks *ret, struct prompt_context *ret_context)
{
    struct block_chain c;
    uint32_t room = block_chain_room(d->text.n + SLACK);
    uint64_t salt = salt_with(d, "cache_salt", SALT_CACHE, a, 0);
    salt = salt_with(d, "lora_path", SALT_ADAPTER, a, salt);
    block_chain_begin(&c, salt, arena_alloc(a, room * sizeof(uint64_t)), room);
    struct prompt_options o = {.include_tools = true, .each = feed, .arg = &c, .each_only = true};
    dialect_prompt_with(id, d, &o, a, ret_context);
    /* Without a user turn all of the prompt is the one turn. */
    uint64_t head = ret_context->turn_len ? ret_context->head_len : 0;
    uint64_t turn = ret_context->turn_len ? ret_context->turn_len : ret_context->len;
    *ret = (struct prompt_blocks){
        .key = c.keys, .n = c.n, .bytes = c.bytes, .home = block_chain_home(&c, head, turn)};
}
