/* SPDX-License-Identifier: Apache-2.0 */
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

/* Headers of C, whose one word C++ spells differently. */
#define _Noreturn [[noreturn]]
extern "C" {
#include "base/arena.h"
}
#undef _Noreturn
#include "config/toml_tree.h"

namespace
{

toml_place place(const toml::source_position &p)
{
    return {static_cast<unsigned>(p.line), static_cast<unsigned>(p.column)};
}

span copy(arena *a, std::string_view s)
{
    return arena_dup(a, span{s.data() ? s.data() : "", s.size()});
}

int write_date(char *out, size_t cap, const toml::date &d)
{
    return std::snprintf(out, cap, "%04u-%02u-%02u", static_cast<unsigned>(d.year),
                         static_cast<unsigned>(d.month), static_cast<unsigned>(d.day));
}

int write_time(char *out, size_t cap, const toml::time &t)
{
    int n = std::snprintf(out, cap, "%02u:%02u:%02u", static_cast<unsigned>(t.hour),
                          static_cast<unsigned>(t.minute), static_cast<unsigned>(t.second));
    if (t.nanosecond != 0) {
        n += std::snprintf(out + n, cap - static_cast<size_t>(n), ".%09u",
                           static_cast<unsigned>(t.nanosecond));
        while (out[n - 1] == '0')
            n--;
    }
    return n;
}

void write_date_time(arena *a, toml_node *node, const toml::date_time &v)
{
    char text[96];
    int n = write_date(text, sizeof text, v.date);
    text[n++] = 'T';
    n += write_time(text + n, sizeof text - static_cast<size_t>(n), v.time);
    if (v.offset) {
        const int minutes = v.offset->minutes, size = minutes < 0 ? -minutes : minutes;
        if (minutes == 0)
            n += std::snprintf(text + n, sizeof text - static_cast<size_t>(n), "Z");
        else
            n += std::snprintf(text + n, sizeof text - static_cast<size_t>(n), "%c%02d:%02d",
                               minutes < 0 ? '-' : '+', size / 60, size % 60);
    }
    node->date_has_offset = v.offset.has_value();
    node->string = copy(a, std::string_view(text, static_cast<size_t>(n)));
}

void set_value(arena *a, toml_node *node, const toml::node &from)
{
    char text[64];
    switch (from.type()) {
    case toml::node_type::string:
        node->kind = TOML_K_STRING;
        node->string = copy(a, from.as_string()->get());
        break;
    case toml::node_type::integer:
        node->kind = TOML_K_INTEGER;
        node->integer = from.as_integer()->get();
        break;
    case toml::node_type::floating_point:
        node->kind = TOML_K_FLOAT;
        node->number = from.as_floating_point()->get();
        break;
    case toml::node_type::boolean:
        node->kind = TOML_K_BOOL;
        node->boolean = from.as_boolean()->get();
        break;
    case toml::node_type::date:
        node->kind = TOML_K_DATE;
        node->string =
            copy(a, std::string_view(
                        text, static_cast<size_t>(write_date(text, sizeof text, from.as_date()->get()))));
        break;
    case toml::node_type::time:
        node->kind = TOML_K_DATE;
        node->string =
            copy(a, std::string_view(
                        text, static_cast<size_t>(write_time(text, sizeof text, from.as_time()->get()))));
        break;
    case toml::node_type::date_time:
        node->kind = TOML_K_DATE;
        write_date_time(a, node, from.as_date_time()->get());
        break;
    default:
        UNREACHABLE();
    }
}

bool stands_before(const toml_node *a, const toml_node *b)
{
    if (a->key_at.line != b->key_at.line)
        return a->key_at.line < b->key_at.line;
    return a->key_at.column < b->key_at.column;
}

/* Recursion is bounded by the limits that fault_of_depth has checked. */
toml_node *build(arena *a, const toml::node &from, toml_place parent)
{
    toml_node *node = ARENA_NEW(a, toml_node);
    node->at = place(from.source().begin);
    if (node->at.line == 0)
        node->at = parent;
    std::vector<toml_node *> children;
    if (const toml::table *table = from.as_table()) {
        node->kind = TOML_K_TABLE;
        for (auto &&[key, value] : *table) {
            toml_node *child = build(a, value, node->at);
            child->key = copy(a, key.str());
            child->key_at = place(key.source().begin);
            if (child->key_at.line == 0)
                child->key_at = child->at;
            children.push_back(child);
        }
        std::stable_sort(children.begin(), children.end(), stands_before);
    } else if (const toml::array *array = from.as_array()) {
        node->kind = TOML_K_ARRAY;
        for (auto &&value : *array)
            children.push_back(build(a, value, node->at));
    } else {
        set_value(a, node, from);
    }
    toml_node **link = &node->first;
    for (toml_node *child : children) {
        *link = child;
        link = &child->next;
    }
    node->n = static_cast<unsigned>(children.size());
    return node;
}

/* Walks over a string that begins at <at>; returns the place behind it. A string that does not end on its
 * line is left to the parser to complain about. */
size_t skip_string(std::string_view s, size_t at, unsigned &line, size_t &line_begin)
{
    const char quote = s[at];
    const bool triple = s.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''");
    at += triple ? 3 : 1;
    while (at < s.size()) {
        if (s[at] == '\n') {
            if (!triple)
                return at;
            line++;
            line_begin = at + 1;
        } else if (s[at] == '\\' && quote == '"' && at + 1 < s.size() && s[at + 1] != '\n') {
            at++;
        } else if (s[at] == quote) {
            if (!triple)
                return at + 1;
            if (s.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''")) {
                at += 3;
                /* Up to two quotes may stand directly before the closing three. */
                for (int more = 0; more < 2 && at < s.size() && s[at] == quote; more++)
                    at++;
                return at;
            }
        }
        at++;
    }
    return at;
}

/* True when the text nests deeper than the limits; the parser builds and frees its tree recursively. */
bool fault_of_depth(std::string_view s, toml_fault *ret)
{
    unsigned line = 1, parts = 0, brackets = 0;
    size_t line_begin = 0, at = 0;
    while (at < s.size()) {
        const char c = s[at];
        if (c == '"' || c == '\'') {
            at = skip_string(s, at, line, line_begin);
            continue;
        }
        if (c == '#') {
            at = std::min(s.find('\n', at), s.size());
            continue;
        }
        if (c == '.')
            parts++;
        else if (c == '\n' || c == '=' || c == ',')
            parts = 0;
        else if (c == '[' || c == '{') {
            brackets++;
            parts = 0;
        } else if ((c == ']' || c == '}') && brackets > 0)
            brackets--;
        if (parts >= TOML_MAX_PARTS || brackets > TOML_MAX_BRACKETS) {
            ret->at = {line, static_cast<unsigned>(at - line_begin + 1)};
            std::snprintf(ret->what, sizeof ret->what, "%s",
                          parts >= TOML_MAX_PARTS ? "a dotted key has too many parts" : "nested too deeply");
            return true;
        }
        if (c == '\n') {
            line++;
            line_begin = at + 1;
        }
        at++;
    }
    return false;
}

} // namespace

extern "C" const toml_node *toml_tree_parse(arena *a, span text, toml_fault *ret_fault)
{
    const std::string_view s(text.p ? text.p : "", text.n);
    if (s.size() > TOML_MAX_BYTES) {
        ret_fault->at = {1, 1};
        std::snprintf(ret_fault->what, sizeof ret_fault->what, "the file is larger than 64 MiB");
        return nullptr;
    }
    if (fault_of_depth(s, ret_fault))
        return nullptr;
    try {
        const toml::table root = toml::parse(s);
        return build(a, root, {1, 1});
    } catch (const toml::parse_error &e) {
        ret_fault->at = place(e.source().begin);
        std::string_view what = e.description();
        const std::string_view redundant = "Error "; /* the message says so before */
        if (what.substr(0, redundant.size()) == redundant)
            what.remove_prefix(redundant.size());
        std::snprintf(ret_fault->what, sizeof ret_fault->what, "%.*s",
                      static_cast<int>(std::min(what.size(), size_t{240})), what.data());
    } catch (const std::exception &e) {
        ret_fault->at = {1, 1};
        std::snprintf(ret_fault->what, sizeof ret_fault->what, "%.200s", e.what());
    }
    if (ret_fault->at.line == 0)
        ret_fault->at = {1, 1};
    return nullptr;
}

extern "C" const toml_node *toml_tree_get(const toml_node *table, span name)
{
    if (!table || table->kind != TOML_K_TABLE)
        return nullptr;
    for (const toml_node *child = table->first; child; child = child->next)
        if (span_eq(child->key, name))
            return child;
    return nullptr;
}

extern "C" const char *toml_kind_name(enum toml_kind kind)
{
    switch (kind) {
    case TOML_K_TABLE:
        return "a table";
    case TOML_K_ARRAY:
        return "an array";
    case TOML_K_STRING:
        return "a string";
    case TOML_K_INTEGER:
        return "an integer";
    case TOML_K_FLOAT:
        return "a float";
    case TOML_K_BOOL:
        return "a boolean";
    case TOML_K_DATE:
        return "a date";
    }
    UNREACHABLE();
}
