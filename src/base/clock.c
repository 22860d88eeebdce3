/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

static uint64_t now_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_mono_us(void)
{
    return now_us(CLOCK_MONOTONIC);
}

uint64_t clock_mono_ms(void)
{
    return now_us(CLOCK_MONOTONIC) / 1000u;
}

uint64_t clock_wall_ms(void)
{
    return now_us(CLOCK_REALTIME) / 1000u;
}

uint64_t clock_wall_ms_at(uint64_t mono_us)
{
    static _Thread_local uint64_t ahead_us, good_until_us;
    if (mono_us >= good_until_us) {
        uint64_t mono = now_us(CLOCK_MONOTONIC);
        ahead_us = now_us(CLOCK_REALTIME) - mono;
        good_until_us = mono + 1000000u;
    }
    return (mono_us + ahead_us) / 1000u;
}
