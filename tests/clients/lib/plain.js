// SPDX-License-Identifier: Apache-2.0

const ID = /^([a-z]+[-_])[0-9a-f]{16}$/;
const TIMES = new Set(['created', 'created_at']);

/** A value as plain data that can be compared with that of another run: without ids and times. */
export function plain(value) {
    if (value === undefined) return null;
    return JSON.parse(JSON.stringify(value), (name, item) => {
        if (typeof item === 'string') return item.replace(ID, '$1*');
        return TIMES.has(name) && typeof item === 'number' ? 0 : item;
    });
}
