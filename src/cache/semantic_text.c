/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/semantic_text.h"

enum role { ROLE_NONE, ROLE_INSTRUCTION, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };

/* Words joined by single spaces. A word may come in pieces, since strings are read in pieces. */
struct word_writer {
    struct buf out;
    bool in_word;
    unsigned char held[3]; /* the beginning of a character that is not whole yet */
    unsigned n_held;
    bool has_words; /* beside role words and names */
};

static enum role role_of(const struct json_doc *d, uint32_t node)
{
    static const struct {
        struct span word;
        enum role role;
    } roles[] = {{{"user", 4}, ROLE_USER},          {{"assistant", 9}, ROLE_ASSISTANT},
                 {{"system", 6}, ROLE_INSTRUCTION}, {{"developer", 9}, ROLE_INSTRUCTION},
                 {{"tool", 4}, ROLE_TOOL},          {{"function", 8}, ROLE_TOOL}};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (json_string_eq(d, node, roles[i].word))
            return roles[i].role;
    return ROLE_NONE;
}

bool semantic_turn_is_instruction(const struct json_doc *d, uint32_t turn)
{
    return role_of(d, json_get(d, turn, "role")) == ROLE_INSTRUCTION;
}

const char *semantic_text_member(enum dialect_id id)
{
    switch (id) {
    case DIALECT_CHAT:
    case DIALECT_MESSAGES:
        return "messages";
    case DIALECT_COMPLETIONS:
        return "prompt";
    default:
        return NULL;
    }
}

/* Length of the white space (Unicode's White_Space) at <p>, or 0. */
static size_t space_at(const unsigned char *p, size_t n)
{
    if (p[0] == ' ' || (p[0] >= '\t' && p[0] <= '\r'))
        return 1;
    if (p[0] == 0xc2)
        return n > 1 && (p[1] == 0x85 || p[1] == 0xa0) ? 2 : 0;
    if (n < 3 || p[0] < 0xe1 || p[0] > 0xe3)
        return 0;
    unsigned c = (unsigned)(p[0] & 0x0f) << 12 | (unsigned)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    bool space = c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                 c == 0x205f || c == 0x3000;
    return space ? 3 : 0;
}

static size_t char_length(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static void put_chars(struct word_writer *w, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t space = space_at(p + i, n - i);
        if (space) {
            w->in_word = false;
            i += space;
            continue;
        }
        if (!w->in_word && w->out.n)
            buf_add_char(&w->out, ' ');
        w->in_word = true;
        size_t whole = char_length(p[i]);
        if (whole > n - i)
            whole = n - i;
        buf_add(&w->out, p + i, whole);
        i += whole;
    }
}

/* Pieces are cut anywhere, so the end of one may be half a character that is white space with the next. */
static void put_piece(void *arg, const char *bytes, size_t n)
{
    struct word_writer *w = arg;
    const unsigned char *p = (const unsigned char *)bytes;
    if (w->n_held) {
        unsigned char c[4];
        memcpy(c, w->held, w->n_held);
        size_t have = w->n_held, whole = char_length(c[0]);
        while (have < whole && n) {
            c[have++] = *p++;
            n--;
        }
        if (have < whole) {
            memcpy(w->held, c, have);
            w->n_held = (unsigned)have;
            return;
        }
        w->n_held = 0;
        put_chars(w, c, whole);
    }
    size_t end = n;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        if ((p[n - back] & 0xc0) == 0x80)
            continue;
        if (char_length(p[n - back]) > back)
            end = n - back;
        break;
    }
    put_chars(w, p, end);
    w->n_held = (unsigned)(n - end);
    memcpy(w->held, p + end, n - end);
}

static void put_string(struct word_writer *w, const struct json_doc *d, uint32_t node)
{
    w->in_word = false;
    json_string_each(d, node, put_piece, w);
    w->in_word = false;
}

static void put_content_string(struct word_writer *w, const struct json_doc *d, uint32_t node)
{
    size_t before = w->out.n;
    put_string(w, d, node);
    w->has_words = w->has_words || w->out.n > before;
}

/* One part: {"type": "text", "text": ...}, with cache_control, which marks a place and changes no reply. */
static const char *read_part(const struct json_doc *d, uint32_t part, struct word_writer *w)
{
    if (!json_is(d, part, JSON_OBJECT) || !json_string_eq(d, json_get(d, part, "type"), SPAN("text")))
        return "part";
    for (uint32_t m = json_first(d, part); m != JSON_NODE_NONE; m = json_next(d, part, m))
        if (!json_string_eq(d, m, SPAN("type")) && !json_string_eq(d, m, SPAN("text")) &&
            !json_string_eq(d, m, SPAN("cache_control")))
            return "part";
    uint32_t text = json_get(d, part, "text");
    if (!json_is(d, text, JSON_STRING))
        return "part";
    if (w)
        put_content_string(w, d, text);
    return NULL;
}

/* A string or an array of text parts. <w> NULL: only looked at. */
static const char *read_content(const struct json_doc *d, uint32_t content, struct word_writer *w)
{
    if (json_is(d, content, JSON_STRING)) {
        if (w)
            put_content_string(w, d, content);
        return NULL;
    }
    if (!json_is(d, content, JSON_ARRAY))
        return "shape";
    for (uint32_t p = json_first(d, content); p != JSON_NODE_NONE; p = json_next(d, content, p)) {
        const char *why = read_part(d, p, w);
        if (why)
            return why;
    }
    return NULL;
}

static bool is_absent(const struct json_doc *d, uint32_t node)
{
    return node == JSON_NODE_NONE || json_is(d, node, JSON_NULL);
}

static const char *read_turn(enum dialect_id id, const struct json_doc *d, uint32_t turn,
                             struct word_writer *w, enum role *ret_role)
{
    if (!json_is(d, turn, JSON_OBJECT))
        return "shape";
    uint32_t role_node = json_get(d, turn, "role");
    enum role role = role_of(d, role_node);
    if (role == ROLE_TOOL)
        return "tools";
    if (role == ROLE_NONE || (id == DIALECT_MESSAGES && role == ROLE_INSTRUCTION))
        return "role";
    for (uint32_t m = json_first(d, turn); m != JSON_NODE_NONE; m = json_next(d, turn, m)) {
        if (json_string_eq(d, m, SPAN("role")) || json_string_eq(d, m, SPAN("content")) ||
            json_string_eq(d, m, SPAN("name")) || json_is(d, m + 1, JSON_NULL))
            continue;
        bool tools = json_string_eq(d, m, SPAN("tool_calls")) || json_string_eq(d, m, SPAN("tool_call_id")) ||
                     json_string_eq(d, m, SPAN("function_call"));
        return tools ? "tools" : "member";
    }
    uint32_t name = json_get(d, turn, "name");
    if (!is_absent(d, name) && !json_is(d, name, JSON_STRING))
        return "name";
    bool is_text = role != ROLE_INSTRUCTION; /* instructions are compared exactly, in the partition */
    if (is_text) {
        put_string(w, d, role_node);
        if (!is_absent(d, name))
            put_string(w, d, name);
    }
    *ret_role = role;
    return read_content(d, json_get(d, turn, "content"), is_text ? w : NULL);
}

static const char *read_turns(enum dialect_id id, const struct json_doc *d, struct word_writer *w)
{
    uint32_t messages = json_get(d, 0, "messages");
    if (!json_is(d, messages, JSON_ARRAY))
        return "shape";
    enum role last = ROLE_NONE;
    for (uint32_t t = json_first(d, messages); t != JSON_NODE_NONE; t = json_next(d, messages, t)) {
        const char *why = read_turn(id, d, t, w, &last);
        if (why)
            return why;
    }
    if (last == ROLE_ASSISTANT)
        return "prefill";
    uint32_t system = json_get(d, 0, "system");
    if (id == DIALECT_MESSAGES && !is_absent(d, system) && read_content(d, system, NULL))
        return "system";
    return NULL;
}

static const char *read_body(enum dialect_id id, const struct json_doc *d, struct word_writer *w)
{
    if (id != DIALECT_COMPLETIONS)
        return read_turns(id, d, w);
    uint32_t prompt = json_get(d, 0, "prompt");
    if (!json_is(d, prompt, JSON_STRING))
        return "shape";
    put_content_string(w, d, prompt);
    return NULL;
}

const char *semantic_text(enum dialect_id id, const struct json_doc *d, struct arena *a,
                          struct span *ret_text)
{
    if (!semantic_text_member(id))
        return "dialect";
    if (d->odd)
        return "odd";
    if (!json_is(d, 0, JSON_OBJECT))
        return "shape";
    struct word_writer w = {.in_word = false};
    buf_init(&w.out, SEMANTIC_TEXT_MAX);
    const char *why = read_body(id, d, &w);
    if (!why && w.out.full)
        why = "too_long";
    else if (!why && !w.has_words)
        why = "empty";
    if (!why)
        *ret_text = arena_dup(a, buf_view(&w.out));
    buf_fini(&w.out);
    return why;
}
