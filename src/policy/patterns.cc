/* SPDX-License-Identifier: Apache-2.0 */
#include <re2/re2.h>
#include <re2/set.h>
#include <re2/stringpiece.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

/* Headers of C, whose one word C++ spells differently. */
#define _Noreturn [[noreturn]]
extern "C" {
#include "policy/pattern_prefix.h"
#include "policy/patterns.h"
}
#undef _Noreturn

namespace
{

/* The automaton of all patterns together is built while texts are scanned; a budget that is used up makes RE2
 * start it anew, so a small one costs time only. */
constexpr int64_t SET_BYTES = 8 << 20, SET_BYTES_EACH = 1 << 20, SET_BYTES_MAX = 64 << 20;
constexpr size_t PREFIX_BYTES_MAX = 1 << 20;

re2::StringPiece piece(span s)
{
    return re2::StringPiece(s.p ? s.p : "", s.n);
}

RE2::Options options(int64_t bytes)
{
    RE2::Options o;
    o.set_max_mem(bytes);
    o.set_log_errors(false);
    return o;
}

std::unique_ptr<RE2> compile(span text)
{
    return std::make_unique<RE2>(piece(text), options(PATTERN_PROGRAM_BYTES));
}

/* Beginnings up to the end of the text. */
std::unique_ptr<RE2> compile_prefix(span text)
{
    struct buf b;
    buf_init(&b, PREFIX_BYTES_MAX);
    buf_add_str(&b, "(?:");
    bool good = pattern_prefix(text, &b);
    buf_add_str(&b, ")\\z");
    std::unique_ptr<RE2> re;
    if (good && !b.full) {
        /* Every repeat stands there twice: the limit is on what was written. */
        re = std::make_unique<RE2>(piece(buf_view(&b)), options(4 * PATTERN_PROGRAM_BYTES));
        if (!re->ok())
            re.reset();
    }
    buf_fini(&b);
    return re;
}

bool refuse(char *ret_why, const char *why)
{
    snprintf(ret_why, PATTERN_WHY, "%s", why);
    return false;
}

bool matches_nothing(const RE2 &re, const char *text)
{
    re2::StringPiece hit;
    return re.Match(text, 0, strlen(text), RE2::UNANCHORED, &hit, 1) && hit.empty();
}

} // namespace

struct patterns {
    std::vector<std::unique_ptr<RE2>> one, prefix;
    std::unique_ptr<RE2::Set> set;
    std::vector<unsigned> in_set; /* index in the set -> pattern */
    std::vector<uint64_t> always; /* bits of those that are not in it */
};

bool pattern_check(struct span text, bool for_streams, char ret_why[PATTERN_WHY])
{
    auto re = compile(text);
    if (!re->ok()) {
        bool large = re->error_code() == RE2::ErrorPatternTooLarge;
        return refuse(ret_why, large ? "it is larger than a program of 1 MiB" : re->error().c_str());
    }
    if (matches_nothing(*re, "") || matches_nothing(*re, "a") || matches_nothing(*re, " "))
        return refuse(ret_why, "it matches the empty text, so it would match everywhere");
    if (for_streams && !compile_prefix(text))
        return refuse(ret_why,
                      "it cannot be applied to streams (streaming_post_call = \"apply\"): too large, or "
                      "\\C");
    return true;
}

struct patterns *patterns_new(const struct span *text, unsigned n, bool for_streams)
{
    auto *p = new patterns;
    int64_t bytes = std::min<int64_t>(SET_BYTES + n * SET_BYTES_EACH, SET_BYTES_MAX);
    p->set = std::make_unique<RE2::Set>(options(bytes), RE2::UNANCHORED);
    p->always.resize((n + 63) / 64);
    for (unsigned i = 0; i < n; i++) {
        p->one.push_back(compile(text[i]));
        CHECK(p->one.back()->ok());
        if (for_streams) {
            p->prefix.push_back(compile_prefix(text[i]));
            CHECK(p->prefix.back() != nullptr);
        }
        if (!pattern_has_anchor(text[i]) && p->set->Add(piece(text[i]), nullptr) >= 0)
            p->in_set.push_back(i);
        else
            p->always[i / 64] |= uint64_t{1} << i % 64;
    }
    if (p->in_set.empty() || !p->set->Compile())
        p->set.reset();
    if (!p->set)
        for (unsigned i : p->in_set)
            p->always[i / 64] |= uint64_t{1} << i % 64;
    return p;
}

void patterns_free(struct patterns *p)
{
    delete p;
}

bool patterns_scan(const struct patterns *p, struct span text, uint64_t *ret_bits)
{
    static thread_local std::vector<int> hits;
    RE2::Set::ErrorInfo fault{};
    uint64_t any = 0;
    hits.clear();
    bool out_of_memory = false;
    if (p->set && !p->set->Match(piece(text), &hits, &fault))
        out_of_memory = fault.kind != RE2::Set::kNoError;
    for (size_t w = 0; w < p->always.size(); w++)
        ret_bits[w] = p->always[w];
    for (int k : hits)
        ret_bits[p->in_set[static_cast<size_t>(k)] / 64] |= uint64_t{1}
                                                            << p->in_set[static_cast<size_t>(k)] % 64;
    if (out_of_memory) /* each is asked by itself, then */
        for (unsigned i : p->in_set)
            ret_bits[i / 64] |= uint64_t{1} << i % 64;
    for (size_t w = 0; w < p->always.size(); w++)
        any |= ret_bits[w];
    return any != 0;
}

bool patterns_find(const struct patterns *p, unsigned i, struct span text, size_t from,
                   struct pattern_hit *ret)
{
    re2::StringPiece all = piece(text), hit;
    while (from < text.n && p->one[i]->Match(all, from, text.n, RE2::UNANCHORED, &hit, 1)) {
        size_t at = static_cast<size_t>(hit.data() - all.data());
        if (!hit.empty()) {
            *ret = {at, at + hit.size()};
            return true;
        }
        from = at + 1; /* an empty match, which the check at load could not foresee */
    }
    return false;
}

size_t patterns_pending(const struct patterns *p, unsigned i, struct span text, size_t from)
{
    re2::StringPiece all = piece(text), hit;
    if (from >= text.n || !p->prefix[i]->Match(all, from, text.n, RE2::UNANCHORED, &hit, 1))
        return text.n;
    return static_cast<size_t>(hit.data() - all.data());
}
