/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson beside our reader: the two have names in common, so jansson's get another prefix. Its type macros
 * (json_is_object) must not be used behind this; oracle_is takes their place.
 */
#ifndef ROLTER_TESTS_JSON_ORACLE_H
#define ROLTER_TESTS_JSON_ORACLE_H

#define JSON_NULL   JANSSON_NULL
#define JSON_FALSE  JANSSON_FALSE
#define JSON_TRUE   JANSSON_TRUE
#define JSON_STRING JANSSON_STRING
#define JSON_ARRAY  JANSSON_ARRAY
#define JSON_OBJECT JANSSON_OBJECT
#define json_string jansson_string
#include <jansson.h>
#undef JSON_NULL
#undef JSON_FALSE
#undef JSON_TRUE
#undef JSON_STRING
#undef JSON_ARRAY
#undef JSON_OBJECT
#undef json_string

#include "json/json.h"

static inline json_t *oracle_load(struct span s, json_error_t *err)
{
    return json_loadb(s.p, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, err);
}

static inline bool oracle_is(const json_t *v, enum json_type type)
{
    switch (json_typeof(v)) {
    case JANSSON_NULL:
        return type == JSON_NULL;
    case JANSSON_FALSE:
        return type == JSON_FALSE;
    case JANSSON_TRUE:
        return type == JSON_TRUE;
    case JSON_INTEGER:
    case JSON_REAL:
        return type == JSON_NUMBER;
    case JANSSON_STRING:
        return type == JSON_STRING;
    case JANSSON_ARRAY:
        return type == JSON_ARRAY;
    default:
        return type == JSON_OBJECT;
    }
}

#endif
