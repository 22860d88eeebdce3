/* SPDX-License-Identifier: Apache-2.0
 *
 * A real cluster of three nodes: keys find their nodes, slots move while it is used, a node dies.
 */
#include "unit.h"

#include "redis/internal.h"
#include "redis/redis_rig.h"

enum { NODES = 3, KEYS = 500 };

static struct net_loop loop;
static struct resolver *resolver;
static struct rig node[NODES];
static struct lines lines;
static struct answer a;
static struct redis_client *client;

static void run(const char *const *argv)
{
    int status = -1;
    const pid_t pid = rig_spawn(argv);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Whether the node says of itself that the cluster works. */
static bool node_is_ready(const struct rig *r)
{
    struct sockaddr_in at = loopback(r->port);
    const struct timeval limit = {.tv_sec = 1};
    static const char ASK_IT[] = "CLUSTER INFO\r\n";
    char text[4096];
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t n = -1;
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && write(fd, ASK_IT, sizeof ASK_IT - 1) > 0)
        n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "cluster_state:ok") && strstr(text, "cluster_known_nodes:3");
}

static int setup(void **state)
{
    (void)state;
    char bus[8], at[NODES][32];
    assert_int_equal(net_loop_init(&loop, 0), 0);
    resolver = resolver_new(&loop);
    for (int i = 0; i < NODES; i++) {
        uint16_t port;
        close(listen_any(&port));
        snprintf(bus, sizeof bus, "%u", port);
        rig_open(&node[i],
                 (const char *const[]){"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                                       "--cluster-port", bus, "--cluster-node-timeout", "60000",
                                       "--cluster-require-full-coverage", "no", NULL});
        snprintf(at[i], sizeof at[i], "127.0.0.1:%u", node[i].port);
    }
    run((const char *const[]){"redis-cli", "--cluster", "create", at[0], at[1], at[2], "--cluster-yes",
                              NULL});
    for (int i = 0; i < NODES; i++)
        RUN_UNTIL(&loop, node_is_ready(&node[i]));
    lines.n = 0;
    answer_init(&a);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < lines.n; i++)
        print_message("             %s\n", lines.text[i]);
    redis_client_free(client);
    client = NULL;
    for (int i = 0; i < NODES; i++)
        rig_close(&node[i]);
    resolver_free(resolver);
    net_loop_fini(&loop);
    buf_fini(&a.text);
    return 0;
}

static void open_client(void)
{
    char why[256] = "";
    const struct redis_options o = {.url = node[0].url,
                                    .cluster = true,
                                    .consumer = "test",
                                    .answer_ms = 2000,
                                    .tell = on_line,
                                    .tell_arg = &lines};
    struct redis_server *s = redis_server_new(&o, why);
    assert_string_equal(why, "");
    client = redis_client_new(s, &loop, resolver);
    redis_server_unref(s);
}

/* Every node has its connection. */
static bool all_up(void)
{
    return client->slots && redis_server_is_up(client->server) && lines.n > 0;
}

static void name_key(char *out, size_t n, int i)
{
    snprintf(out, n, "key:%d", i);
}

static void set_all(int generation)
{
    char key[32], value[32];
    for (int i = 0; i < KEYS; i++) {
        name_key(key, sizeof key, i);
        snprintf(value, sizeof value, "%d.%d", i, generation);
        ASK(&loop, client, &a, "SET", key, value);
        assert_int_equal(a.outcome, REDIS_DONE);
    }
}

/* How many of the keys have their right value; none has a wrong one. */
static int count_right(int generation)
{
    char key[32], value[32];
    int right = 0;
    for (int i = 0; i < KEYS; i++) {
        name_key(key, sizeof key, i);
        snprintf(value, sizeof value, "%d.%d", i, generation);
        answer_init(&a);
        if (SEND(client, &a, 5000, "GET", key) != REDIS_DONE)
            continue;
        RUN_UNTIL(&loop, a.n);
        if (a.outcome != REDIS_DONE)
            continue;
        assert_text(&a, value);
        right++;
    }
    return right;
}

static void test_keys_find_their_nodes(void **state)
{
    (void)state;
    open_client();
    assert_int_equal(SEND(client, &a, 0, "GET", "k"), REDIS_AWAY);
    RUN_UNTIL(&loop, all_up());
    set_all(1);
    assert_int_equal(count_right(1), KEYS);
    assert_int_equal(lines.n, 1);
    assert_int_equal(client->n_links, NODES);
    /* Without a redirect: the map was right. */
    for (int i = 0; i < KEYS; i++) {
        char key[32];
        name_key(key, sizeof key, i);
        ASK(&loop, client, &a, "CLUSTER", "KEYSLOT", key);
        assert_int_equal((unsigned)a.integer, cluster_slot(span_str(key)));
    }
    const struct span set[] = {SPAN("SET"), SPAN("{tag}a"), SPAN("1")}, get[] = {SPAN("GET"), SPAN("{tag}b")};
    const struct redis_request both[] = {{set, 3, 1}, {get, 2, 1}};
    answer_init(&a);
    assert_int_equal(redis_transaction(client, both, 2, 0, on_answer, &a, NULL), REDIS_DONE);
    RUN_UNTIL(&loop, a.n);
    assert_int_equal(a.outcome, REDIS_DONE);
    assert_int_equal(a.items, 2);
}

/* Thousands of slots move from node to node while keys are read and written: nothing is lost, nothing is
 * wrong, and no caller is told of an error. */
static void test_slots_move(void **state)
{
    (void)state;
    char at[32], from[64], to[64], key[32], value[32];
    open_client();
    RUN_UNTIL(&loop, all_up());
    set_all(0);
    snprintf(at, sizeof at, "127.0.0.1:%u", node[0].port);
    for (int i = 0; i < 2; i++) {
        struct redis_link *l = client->slots[i * (REDIS_SLOTS - 1)];
        struct answer id = {0};
        const struct span argv[] = {SPAN("CLUSTER"), SPAN("MYID")};
        /* Asked of the node that has the slot. */
        struct redis_call *call = call_new(client, net_now_ms(&loop), 5000);
        answer_init(&id);
        call->internal = true;
        call->fn = on_answer;
        call->arg = &id;
        redis_format(&call->bytes, argv, 2);
        call_send(call, l);
        RUN_UNTIL(&loop, id.n);
        snprintf(i == 0 ? from : to, sizeof from, "%.*s", (int)id.text.n, id.text.p);
        buf_fini(&id.text);
    }
    const struct redis_link *first = client->slots[0];
    const pid_t mover = rig_spawn((const char *const[]){
        "redis-cli", "--cluster", "reshard", at, "--cluster-from", from, "--cluster-to", to,
        "--cluster-slots", "2000", "--cluster-yes", "--cluster-pipeline", "10", NULL});
    int status = -1, rounds = 0;
    while (waitpid(mover, &status, WNOHANG) == 0 || rounds < 2) {
        rounds++;
        for (int i = 0; i < KEYS; i++) {
            name_key(key, sizeof key, i);
            snprintf(value, sizeof value, "%d.%d", i, rounds);
            ASK(&loop, client, &a, "SET", key, value);
            assert_int_equal(a.outcome, REDIS_DONE);
            ASK(&loop, client, &a, "GET", key);
            assert_int_equal(a.outcome, REDIS_DONE);
            assert_text(&a, value);
        }
    }
    assert_int_equal(status, 0);
    assert_int_equal(count_right(rounds), KEYS);
    assert_int_equal(lines.n, 1); /* nothing of this is worth a line */
    /* And it knows the new places without being redirected. */
    RUN_UNTIL(&loop, (count_right(rounds), client->slots[0] != first && !client->map_stale));
}

/* A node dies: its keys are away at once, the others' go on; it comes back. */
static void test_node_dies(void **state)
{
    (void)state;
    open_client();
    RUN_UNTIL(&loop, all_up());
    set_all(1);
    rig_kill(&node[1]);
    RUN_UNTIL(&loop, lines.n == 2);
    assert_non_null(strstr(lines.text[1], "node 127.0.0.1:"));
    const uint64_t start = clock_mono_ms();
    const int right = count_right(1);
    assert_in_range(right, KEYS / 2, KEYS - 50);
    assert_true(clock_mono_ms() - start < 2000);
    char bus[8];
    uint16_t port;
    close(listen_any(&port));
    snprintf(bus, sizeof bus, "%u", port);
    rig_start(&node[1],
              (const char *const[]){"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
                                    "--cluster-port", bus, "--cluster-node-timeout", "60000", NULL});
    RUN_UNTIL(&loop, all_up());
    RUN_UNTIL(&loop, SEND(client, NULL, 0, "SET", "key:1", "x") == REDIS_DONE);
}

/* A client that was not told of the cluster says so, once. */
static void test_not_told(void **state)
{
    (void)state;
    char why[256], key[32];
    const struct redis_options o = {
        .url = node[0].url, .consumer = "test", .tell = on_line, .tell_arg = &lines};
    struct redis_server *s = redis_server_new(&o, why);
    client = redis_client_new(s, &loop, resolver);
    redis_server_unref(s);
    RUN_UNTIL(&loop, redis_client_is_up(client));
    int refused = 0;
    for (int i = 0; i < 20; i++) {
        name_key(key, sizeof key, i);
        ASK(&loop, client, &a, "GET", key);
        refused += a.outcome == REDIS_REFUSED;
    }
    assert_in_range(refused, 5, 19);
    assert_int_equal(lines.n, 2);
    assert_non_null(strstr(lines.text[1], "cluster = true"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_keys_find_their_nodes),
        T(test_slots_move),
        T(test_node_dies),
        T(test_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
