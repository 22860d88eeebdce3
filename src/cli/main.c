/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: which command, which options, which configuration file.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

static const char usage[] =
    "rolter " ROLTER_VERSION ": a gateway for language models that keeps conversations where their cache is\n"
    "\n"
    "usage: rolter [serve] [options]     run the gateway\n"
    "       rolter check [options]       read the configuration, report every fault, do not start\n"
    "       rolter semantic-calibrate    a threshold for the semantic cache, from labelled pairs (--help)\n"
    "       rolter docs configuration    the reference of all keys, as Markdown\n"
    "       rolter docs metrics          the reference of all metrics, as Markdown\n"
    "\n"
    "options\n"
    "  -c, --config FILE   configuration (default: $ROLTER_CONFIG, else rolter.toml)\n"
    "      --host HOST     address to listen on, instead of server.host ($ROLTER_HOST)\n"
    "      --port PORT     port, instead of server.port; 0 lets the kernel choose ($ROLTER_PORT)\n"
    "      --strict        check: warnings count as errors\n"
    "      --show          check: print the effective configuration, secrets masked\n"
    "      --debug         more diagnostics on stderr\n"
    "  -V, --version       print the version\n"
    "  -h, --help          print this text\n"
    "\n"
    "signals: HUP reads the configuration again (so does a change of the file), TERM and INT finish what is "
    "in\n"
    "flight and end.\n";

enum { OPT_HOST = 256, OPT_PORT, OPT_STRICT, OPT_SHOW, OPT_DEBUG };

static int wrong(const char *text, const char *what)
{
    fprintf(stderr, "rolter: %s%s\ntry: rolter --help\n", text, what);
    return 2;
}

static bool read_port(const char *text, struct cli_options *o)
{
    uint64_t port;
    if (!span_to_u64(span_str(text), &port) || port > 65535)
        return false;
    o->overrides.port = (unsigned)port;
    o->overrides.port_given = true;
    return true;
}

/* 0 = go on, else the exit status + 1. */
static int read_options(int argc, char **argv, struct cli_options *o)
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, 'c'},
        {"host", required_argument, NULL, OPT_HOST},
        {"port", required_argument, NULL, OPT_PORT},
        {"strict", no_argument, NULL, OPT_STRICT},
        {"show", no_argument, NULL, OPT_SHOW},
        {"debug", no_argument, NULL, OPT_DEBUG},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "c:Vh", longs, NULL)) != -1;) {
        switch (c) {
        case 'c':
            o->config = optarg;
            o->config_given = true;
            break;
        case OPT_HOST:
            o->overrides.host = optarg;
            break;
        case OPT_PORT:
            if (!read_port(optarg, o))
                return 1 + wrong("not a port: ", optarg);
            break;
        case OPT_STRICT:
            o->strict = true;
            break;
        case OPT_SHOW:
            o->show = true;
            break;
        case OPT_DEBUG:
            o->debug = true;
            break;
        case 'V':
            puts("rolter " ROLTER_VERSION);
            return 1;
        case 'h':
            fputs(usage, stdout);
            return 1;
        default:
            fputs("try: rolter --help\n", stderr);
            return 1 + 2;
        }
    }
    return 0;
}

static int read_environment(struct cli_options *o)
{
    const char *host = getenv("ROLTER_HOST"), *port = getenv("ROLTER_PORT"),
               *config = getenv("ROLTER_CONFIG");
    o->config = "rolter.toml";
    if (config && *config) {
        o->config = config;
        o->config_given = true;
    }
    if (host && *host)
        o->overrides.host = host;
    if (port && *port && !read_port(port, o))
        return wrong("ROLTER_PORT is not a port: ", port);
    return 0;
}

int main(int argc, char **argv)
{
    struct cli_options o = {0};
    if (argc > 1 && strcmp(argv[1], "semantic-calibrate") == 0)
        return cli_calibrate(argc - 1, argv + 1);
    int bad = read_environment(&o);
    if (bad)
        return bad;
    int stop = read_options(argc, argv, &o);
    if (stop)
        return stop - 1;
    const char *command = optind < argc ? argv[optind++] : "serve";
    if (strcmp(command, "docs") == 0) {
        const char *what = optind < argc ? argv[optind++] : "";
        return optind < argc ? wrong("too many words: ", argv[optind]) : cli_docs(what);
    }
    if (optind < argc)
        return wrong("too many words: ", argv[optind]);
    if (strcmp(command, "serve") == 0)
        return cli_serve(&o);
    if (strcmp(command, "check") == 0)
        return cli_check(&o);
    return wrong("unknown command: ", command);
}
