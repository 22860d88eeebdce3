/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of the command line. Each returns the process's exit status: 0, 1 (faults), 2 (wrong usage).
 */
#ifndef ROLTER_CLI_COMMANDS_H
#define ROLTER_CLI_COMMANDS_H

#include "config/config.h"

struct cli_options {
    const char *config;
    bool config_given; /* by option or environment: then the file must exist */
    struct config_overrides overrides;
    bool strict, show, debug;
};

int cli_serve(const struct cli_options *o);
int cli_check(const struct cli_options *o);
int cli_docs(const char *what);
/* Options of its own: argv[0] is the command. */
int cli_calibrate(int argc, char **argv);

#endif
