/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "options.h"

enum { WORDS_MAX = 16 };

/* Words parted by spaces. */
static enum options_result read_words(struct options *o, const char *line, char *ret_error)
{
    static char copy[512];
    const char *argv[WORDS_MAX + 1] = {"rolter-replay"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    strcpy(ret_error, "");
    return options_read(o, argc, (char **)argv, ret_error);
}

static void test_offline(void **state)
{
    struct options o;
    char error[OPTIONS_ERROR_BYTES];
    unsetenv("ROLTER_REPLAY_KEY");
    assert_int_equal(read_words(&o, "offline t.jsonl", error), OPTIONS_OK);
    assert_false(o.is_live);
    assert_string_equal(o.trace, "t.jsonl");
    assert_int_equal(o.replicas, 8);
    assert_int_equal(o.n_blocks, 1);
    assert_int_equal(o.blocks[0], 2000);
    assert_string_equal(o.strategies, "all");
    assert_true(o.speed == 1 && o.prefill_tps == 8000 && o.decode_ms == 30);
    assert_null(o.key);
    options_fini(&o);
    assert_int_equal(
        read_words(&o, "offline --blocks 5,10 --replicas=3 - --speed 2.5 --strategies a,b --skip-bad", error),
        OPTIONS_OK);
    assert_int_equal(o.n_blocks, 2);
    assert_int_equal(o.blocks[1], 10);
    assert_int_equal(o.replicas, 3);
    assert_true(o.speed == 2.5 && o.skip_bad);
    assert_string_equal(o.trace, "-");
    options_fini(&o);
}

static void test_live(void **state)
{
    struct options o;
    char error[OPTIONS_ERROR_BYTES];
    setenv("ROLTER_REPLAY_KEY", "secret", 1);
    assert_int_equal(read_words(&o, "live t --url http://h --model m", error), OPTIONS_OK);
    assert_true(o.is_live);
    assert_string_equal(o.key, "secret");
    options_fini(&o);
    assert_int_equal(read_words(&o, "live t --url http://h --model m --key other", error), OPTIONS_OK);
    assert_string_equal(o.key, "other");
    options_fini(&o);
    unsetenv("ROLTER_REPLAY_KEY");
}

static void test_targets(void **state)
{
    struct options o;
    char error[OPTIONS_ERROR_BYTES];
    assert_int_equal(
        read_words(&o, "offline t --follow f --target a,http://a,m --target b,http://b,n,o", error),
        OPTIONS_OK);
    assert_int_equal(o.replicas, 2);
    assert_string_equal(o.targets[0].api_base, "http://a");
    assert_string_equal(o.targets[1].model, "n,o");
    options_fini(&o);
}

static void test_faults(void **state)
{
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"", "offline or live? Not nothing"},
        {"replay t", "offline or live? Not replay"},
        {"offline", "missing: TRACE"},
        {"live t --model m", "missing: --url"},
        {"live t --url u", "missing: --model"},
        {"offline a b", "one trace at a time, and not b"},
        {"offline t --nonsense 1", "unknown option --nonsense"},
        {"offline t -j 1", "unknown option -j"},
        {"offline t --url x", "only for live: --url"},
        {"live t --blocks 5", "only for offline: --blocks"},
        {"offline t --json", "a value is missing for --json"},
        {"offline t --replicas 0", "bad value for --replicas: 0"},
        {"offline t --replicas 65", "at most 64: --replicas"},
        {"offline t --blocks 5,,6", "bad value for --blocks: 5,,6"},
        {"offline t --blocks 5,-6", "bad value for --blocks: 5,-6"},
        {"offline t --speed 0", "bad value for --speed: 0"},
        {"offline t --speed nan", "bad value for --speed: nan"},
        {"offline t --speed 1x", "bad value for --speed: 1x"},
        {"offline t --scale 12", "bad value for --scale: a multiple of 8, at most 1048576"},
        {"offline t --skip-bad=maybe", "bad value for --skip-bad: maybe"},
        {"offline t --target a,b", "bad value for --target: a,b"},
        {"offline t --follow f", "--follow needs the gateway's targets: --target NAME,API_BASE,MODEL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options o;
        char error[OPTIONS_ERROR_BYTES];
        assert_int_equal(read_words(&o, cases[i].line, error), OPTIONS_BAD);
        assert_string_equal(error, cases[i].error);
        options_fini(&o);
    }
}

static void test_help(void **state)
{
    struct options o;
    char error[OPTIONS_ERROR_BYTES];
    assert_int_equal(read_words(&o, "--help", error), OPTIONS_HELP);
    options_fini(&o);
    assert_int_equal(read_words(&o, "live -h", error), OPTIONS_HELP);
    options_fini(&o);
    assert_int_equal(read_words(&o, "--version", error), OPTIONS_VERSION);
    options_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offline), cmocka_unit_test(test_live), cmocka_unit_test(test_targets),
        cmocka_unit_test(test_faults),  cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
