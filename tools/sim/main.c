/* SPDX-License-Identifier: Apache-2.0
 *
 * rolter-sim: a simulated vLLM replica.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "sim.h"

/* As many open streams as the system lets us. */
static void raise_file_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

/* Written beside and renamed, so that a reader never sees half of it. */
static bool write_port(const char *path, unsigned port)
{
    char *beside = mem_printf("%s.tmp", path);
    FILE *f = fopen(beside, "w");
    bool ok = f && fprintf(f, "%u\n", port) > 0;
    ok = (!f || fclose(f) == 0) && ok && rename(beside, path) == 0;
    free(beside);
    return ok;
}

int main(int argc, char **argv)
{
    static struct sim sim;
    char error[256] = "";
    switch (sim_options_read(&sim.o, argc, argv, error)) {
    case SIM_OPTIONS_HELP:
        sim_options_help();
        return 0;
    case SIM_OPTIONS_BAD:
        fprintf(stderr, "rolter-sim: %s (--help lists the options)\n", error);
        return 2;
    default:
        break;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    if (sim_open(&sim, error) < 0) {
        fprintf(stderr, "rolter-sim: %s\n", error);
        return 1;
    }
    unsigned port = server_port(sim.server);
    if (sim.o.port_file && !write_port(sim.o.port_file, port)) {
        fprintf(stderr, "rolter-sim: cannot write %s\n", sim.o.port_file);
        return 1;
    }
    printf("listening on http://%.*s:%u\n", (int)(strrchr(sim.o.listen, ':') - sim.o.listen), sim.o.listen,
           port);
    if (sim.publisher)
        printf("KV events on %s%s%s\n", publisher_endpoint(sim.publisher),
               sim.o.events_replay ? ", replay on " : "", publisher_replay_endpoint(sim.publisher));
    fflush(stdout);
    net_loop_run(&sim.loop);
    sim_close(&sim);
    return 0;
}
