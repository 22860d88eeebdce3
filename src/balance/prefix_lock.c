/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/prefix_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TRIES = 200 };

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void prefix_lock_wait(struct prefix_lock *l)
{
    for (int i = 0; i < TRIES; i++) {
        cpu_relax();
        if (atomic_load_explicit(&l->word, memory_order_relaxed) == 0 && prefix_lock_try(l))
            return;
    }
    while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

/* The memory may be gone by now (a node that its last holder unlinked); the kernel only looks at the address,
 * and a spurious wake-up is harmless. */
void prefix_lock_wake(struct prefix_lock *l)
{
    syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
