/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of strings as a configuration has it. Memory: whoever filled it, usually the settings' arena.
 */
#ifndef ROLTER_BASE_STRINGS_H
#define ROLTER_BASE_STRINGS_H

struct strings {
    const char **item;
    unsigned n;
};

#endif
