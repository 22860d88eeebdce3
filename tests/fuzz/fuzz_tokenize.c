/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of any dialect (the first byte says which) as questions to a tokenizer: what is written is JSON, and
 * reads as the same question. And the same bytes as an engine's answer.
 */
#include "base/check.h"
#include "gateway/token_question.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void question(enum dialect_id dialect, const struct json_doc *d, struct arena *a)
{
    struct token_question q, again;
    struct json_doc written;
    struct json_fault fault;
    struct buf out;
    if (!token_question_read(dialect, d, NULL, 7, a, &q) || q.given.n)
        return;
    CHECK(q.n_beginnings < (q.n > 1 ? q.n : 1) || q.n_beginnings == TOKEN_BEGINNINGS_MAX);
    for (unsigned i = 1; i < q.n_beginnings; i++)
        CHECK(q.beginning[i].bytes <= q.beginning[i - 1].bytes);
    buf_init(&out, 64 << 20);
    token_question_write(&q, SPAN("\"m\""), a, &out);
    const struct json_limits limits = {.max_depth = 256};
    CHECK(json_parse(a, buf_view(&out), &limits, &written, &fault));
    /* A question is a body that asks the same. */
    if (dialect == DIALECT_CHAT && token_question_read(dialect, &written, NULL, 7, a, &again) &&
        !(d->odd & JSON_ODD_DUPLICATE))
        CHECK(again.key == q.key && again.n == q.n);
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct json_doc d;
    struct json_fault fault;
    struct token_ids ids;
    if (size == 0)
        return 0;
    struct span text = span_of((const char *)data + 1, size - 1);
    arena_init(&a, NULL);
    if (json_parse(&a, text, NULL, &d, &fault))
        question((enum dialect_id)(data[0] % DIALECT_COUNT), &d, &a);
    if (token_answer_read(text, &a, &ids))
        CHECK(ids.n > 0);
    arena_reset(&a);
    return 0;
}
