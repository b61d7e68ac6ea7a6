/* The event stream: settings, lines, trace records. */
#define _GNU_SOURCE
#include "test.h"
#include "base/digest.h"
#include "base/envvars.h"
#include "base/file.h"
#include "events/events.h"
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- environment variables ---------------------------------------------------------------------------- */
TEST(env_torch_spellings_need_the_alias)
{
    unsetenv("TAPER_BISECT_MAX");
    setenv("TORCH_BISECT_MAX", "7", 1);
    CHECK(env_get(ENV_bisect_max) == NULL && env_int(ENV_bisect_max, -5) == -5);
    env_set_torch_alias(true);
    CHECK_INT(env_int(ENV_bisect_max, -5), 7);
    CHECK_STR(env_name(ENV_bisect_max), "TORCH_BISECT_MAX");
    CHECK_STR(env_name(ENV_num_threads), "TAPER_NUM_THREADS");
    setenv("TAPER_BISECT_MAX", "9", 1);
    CHECK_INT(env_int(ENV_bisect_max, -5), 9);
    env_set_torch_alias(false);
    CHECK_STR(env_name(ENV_bisect_max), "TAPER_BISECT_MAX");
    setenv("TAPER_BISECT_MAX", "9x", 1);
    CHECK_INT(env_int(ENV_bisect_max, -5), -5);
    CHECK(env_on(ENV_bisect_max));
    setenv("TAPER_BISECT_MAX", "Off", 1);
    CHECK(!env_on(ENV_bisect_max));
    unsetenv("TAPER_BISECT_MAX");
    unsetenv("TORCH_BISECT_MAX");
    for (int v = 0; v < ENV_COUNT; v++) /* every row is complete, and ours begin with our name */
        CHECK((!strncmp(env_row_of(v)->name, "TAPER_", 6) || v == ENV_rank) && *env_row_of(v)->help);
}

/* --- text ---------------------------------------------------------------------------------------------- */
static strbuf seen;
static void catch (void *data, const char *text, size_t n) { strbuf_addn(&seen, text, n); }

static void listen(const char *settings)
{
    strbuf why = { 0 };
    strbuf_clear(&seen);
    ev_set_writer(catch, NULL);
    ev_reset_logs();
    if (!ev_set_logs_string(settings, &why))
        test_fail(__FILE__, __LINE__, "%s", why.s);
    strbuf_free(&why);
}

static void done(void)
{
    ev_reset_logs();
    ev_set_writer(NULL, NULL);
    strbuf_free(&seen);
}

TEST(events_nobody_listens_at_first)
{
    ev_reset_logs();
    for (int k = 0; k < EV_COUNT; k++)
        CHECK(!ev_on(k));
    CHECK(!ev_log_on(EVC_dynamo, EV_INFO) && ev_log_on(EVC_dynamo, EV_WARNING));
}

TEST(events_levels_of_components)
{
    listen("+dynamo,-inductor, aot");
    CHECK(ev_log_on(EVC_dynamo, EV_DEBUG) && ev_log_on(EVC_dynamic, EV_DEBUG)); /* dynamo implies dynamic */
    CHECK(!ev_log_on(EVC_inductor, EV_WARNING) && ev_log_on(EVC_inductor, EV_ERROR));
    CHECK(ev_log_on(EVC_aot, EV_INFO) && !ev_log_on(EVC_aot, EV_DEBUG));
    CHECK(!ev_log_on(EVC_cache, EV_INFO));
    /* Artifacts follow their component, unless they are off by default. */
    CHECK(ev_on(EV_guards) && ev_on(EV_graph_code) && !ev_on(EV_bytecode) && !ev_on(EV_recompiles_verbose));
    CHECK(ev_on(EV_aot_graphs) && ev_on(EV_aot_joint_graph) && !ev_on(EV_aot_graphs_effects));
    CHECK(!ev_on(EV_dynamo_start)); /* only the trace has it */
    listen("dynamo,+dynamic");
    CHECK(ev_log_on(EVC_dynamic, EV_DEBUG) && !ev_on(EV_guards));
    listen("+all,-dynamo");
    CHECK(ev_log_on(EVC_cache, EV_DEBUG) && !ev_log_on(EVC_dynamo, EV_WARNING) && !ev_on(EV_output_code));
    listen("export");
    CHECK(ev_log_on(EVC_dynamo, EV_INFO) && ev_log_on(EVC_dynamic, EV_INFO));
    done();
}

TEST(events_artifacts_are_on_when_named)
{
    listen("bytecode,-guards,aot_joint_graphs");
    CHECK(ev_on(EV_bytecode) && ev_on(EV_guards) && ev_on(EV_aot_joint_graph) && !ev_on(EV_graph_code));
    listen("");
    CHECK(!ev_on(EV_bytecode));
    done();
}

TEST(events_bad_settings_list_the_good_ones)
{
    static const char *const bad[] = { "nope",        "dynamo,,aot", "dynamo ,aot", ",dynamo",
                                       "dynamo,",     "++dynamo",    "+",           "dyn amo",
                                       "help,dynamo", "dynamo;aot",  "gu\xc3\xa9" };
    strbuf why = { 0 };
    for (size_t i = 0; i < COUNT(bad); i++) {
        CHECK(!ev_set_logs_string(bad[i], &why));
        char want[300];
        snprintf(want, sizeof want,
                 "Invalid log settings: %s, must be a comma separated list of fully qualified module names, "
                 "registered "
                 "log names or registered artifact names.\nFor more info on various settings, try "
                 "TAPER_LOGS=\"help\"\nValid settings:\nall, annotation, aot, aot_graphs, ",
                 bad[i]);
        CHECK(!strncmp(why.s, want, strlen(want)));
        CHECK(strstr(why.s, "graph_breaks, ") && !strstr(why.s, "dynamo_start"));
    }
    CHECK(!ev_log_on(EVC_dynamo, EV_INFO)); /* nothing of a bad setting stays */
    env_set_torch_alias(true);
    CHECK(!ev_set_logs_string("nope", &why) && strstr(why.s, "try TORCH_LOGS=\"help\""));
    env_set_torch_alias(false);
    strbuf_free(&why);
}

TEST(events_help_pages)
{
    strbuf why = { 0 };
    CHECK(!ev_set_logs_string("help", &why));
    CHECK(strstr(why.s, "  graph_breaks ") && strstr(why.s, "* recompiles_verbose") &&
          strstr(why.s, "  dynamo "));
    CHECK(!strstr(why.s, "loop_tiling") && !strstr(why.s, "dynamo_start"));
    CHECK(!ev_set_logs_string("+help", &why));
    CHECK(strstr(why.s, "* autotuning") && strstr(why.s, "nothing to tell\n") &&
          strstr(why.s, "   loop_tiling "));
    strbuf_free(&why);
}

static bool one_module(void *data, const char *name) { return !strcmp(name, "my.pkg"); }

TEST(events_module_names)
{
    strbuf why = { 0 };
    CHECK(!ev_set_logs_string("my.pkg", &why));
    ev_set_module_test(one_module, NULL);
    CHECK(ev_set_logs_string("+my.pkg", &why));
    CHECK_INT(ev_module_level("my.pkg.sub"), EV_DEBUG);
    CHECK_INT(ev_module_level("my.pkgs"), 0);
    CHECK(!ev_set_logs_string("other.pkg", &why));
    ev_set_module_test(NULL, NULL);
    strbuf_free(&why);
    done();
}

/* "V1115 10:20:30.123456 99 events/x.c:9]" */
static bool is_prefix(const char *s, char letter)
{
    int used = 0, d[6];
    char l, file[64];
    return sscanf(s, "%c%4d %2d:%2d:%2d.%6d %d %60[^:]:%*d]%n", &l, &d[0], &d[1], &d[2], &d[3], &d[4], &d[5],
                  file, &used) >= 8 &&
           used && l == letter && d[5] == getpid() && !strchr(file, '\\') && file[0] != '/';
}

TEST(events_every_line_has_the_prefix)
{
    listen("graph_breaks,dynamic");
    ev_text(EV_graph_breaks, (&(ev_cid){ 0, 1, 0 }), "first\n\nthird %d", 3);
    int lines = 0;
    for (char *p = seen.s, *nl; (nl = strchr(p, '\n')); p = nl + 1, lines++) {
        static const char *const want[] = { "] [0/1] [__graph_breaks] first", "] [0/1] [__graph_breaks] ",
                                            "] [0/1] [__graph_breaks] third 3" };
        *nl = 0;
        CHECK(is_prefix(p, 'V'));
        CHECK_STR(strchr(p, ']'), want[lines]);
    }
    CHECK_INT(lines, 3);
    strbuf_clear(&seen);
    ev_cid_set(&(ev_cid){ 3, 0, 2 });
    ev_log(EVC_dynamic, EV_INFO, NULL, "create_env");
    ev_cid_set(NULL);
    CHECK(is_prefix(seen.s, 'I'));
    CHECK_STR(strchr(seen.s, ']'), "] [3/0_2] create_env\n");
    strbuf_clear(&seen);
    ev_log(EVC_dynamo, EV_WARNING, NULL, "out\n");
    CHECK(is_prefix(seen.s, 'W'));
    CHECK_STR(strchr(seen.s, ']'), "] out\n");
    strbuf_clear(&seen);
    ev_log(EVC_dynamic, EV_DEBUG, NULL, "not shown");
    ev_text(EV_guards, NULL, "not shown");
    CHECK_INT(seen.n, 0);
    listen("custom_format_test_artifact");
    ev_text(EV_custom_format_test_artifact, NULL, "bare");
    CHECK_STR(seen.s, "bare\n");
    done();
}

static void with_env(const char *name, const char *value)
{
    strbuf why = { 0 };
    setenv(name, value, 1);
    CHECK(ev_init(&why));
    unsetenv(name);
    strbuf_free(&why);
}

TEST(events_format_filter_and_file)
{
    tp_err err = { 0 };
    char *dir = file_temp_dir(NULL, "taper-test-", &err), *path = path_join(dir, "log.txt"), *text;

    listen("graph_breaks");
    with_env("TAPER_LOGS_FORMAT", "short");
    ev_text(EV_graph_breaks, NULL, "a\nb");
    CHECK_STR(seen.s, "DEBUG:taper.dynamo.__graph_breaks:a\nb\n");
    strbuf_clear(&seen);
    with_env("TAPER_LOGS_FORMAT", "%(levelno)d %(filename)s %(name)s 100%% %(nope)s %(message)s %(");
    ev_log(EVC_aot, EV_ERROR, NULL, "boom");
    CHECK_STR(seen.s, "40 test_events.c taper.aot 100% %(nope)s boom %(\n");
    strbuf_clear(&seen);
    with_env("TAPER_LOGS_TRACE_ID_FILTER", "[0/0],[1/0]");
    ev_text(EV_graph_breaks, (&(ev_cid){ 0, 1, 0 }), "no");
    CHECK_INT(seen.n, 0);
    ev_text(EV_graph_breaks, (&(ev_cid){ 1, 0, 0 }), "yes");
    CHECK(strstr(strbuf_str(&seen), "yes"));
    with_env("TAPER_LOGS_OUT", path);
    ev_text(EV_graph_breaks, NULL, "to both");
    CHECK(strstr(seen.s, "to both"));
    text = file_read(path, 1 << 20, NULL, &err);
    CHECK(text && strstr(text, "[__graph_breaks] to both\n"));
    free(text);
    with_env("TAPER_LOGS_OUT", "");
    CHECK(file_remove_tree(dir, &err));
    free(path);
    free(dir);
    done();
}

TEST(events_set_logs)
{
    strbuf why = { 0 };
    ev_reset_logs();
    ev_setting good[] = { { "dynamo", EV_SET_int, 10, "10" },
                          { "output_code", EV_SET_bool, 1, "True" },
                          { "aot", EV_SET_none } };
    CHECK(ev_set_logs(good, 3, &why));
    CHECK(ev_log_on(EVC_dynamo, EV_DEBUG) && ev_on(EV_output_code) && !ev_log_on(EVC_aot, EV_INFO));
    CHECK(ev_set_logs(NULL, 0, &why) && !ev_on(EV_output_code)); /* earlier settings are cleared */
    CHECK(!ev_set_logs(&(ev_setting){ "guards", EV_SET_int, 10, "10" }, 1, &why));
    CHECK_STR(why.s, "Expected bool to enable artifact guards, received 10");
    CHECK(!ev_set_logs(&(ev_setting){ "dynamo", EV_SET_int, 11, "11" }, 1, &why));
    CHECK(!strncmp(why.s, "Unrecognized log level for log dynamo: 11, valid level values are: ", 67));
    CHECK(!ev_set_logs(&(ev_setting){ "xyz", EV_SET_bool, 1, "True" }, 1, &why));
    CHECK_STR(why.s, "Unrecognized log or artifact name passed to set_logs: xyz");
    ev_set_logs_default();
    CHECK(ev_on(EV_guards) && ev_on(EV_recompiles) && ev_log_on(EVC_inductor, EV_INFO) &&
          !ev_on(EV_graph_code));
    /* The variable wins. */
    ev_set_writer(catch, NULL);
    with_env("TAPER_LOGS", "graph_breaks");
    CHECK(ev_set_logs(good, 3, &why) && !ev_on(EV_output_code) && ev_on(EV_graph_breaks));
    CHECK(strstr(strbuf_str(&seen),
                 "Using TAPER_LOGS environment variable for log settings, ignoring call to set_logs"));
    setenv("TAPER_LOGS", "nope", 1);
    CHECK(!ev_init(&why) && strstr(why.s, "Invalid log settings: nope"));
    unsetenv("TAPER_LOGS");
    strbuf_free(&why);
    done();
}

/* --- trace --------------------------------------------------------------------------------------------- */
static int stack(void *data, ev_frame *f, int max)
{
    f[0] = (ev_frame){ "/home/u/play.py", "main", "fn(x)", 12 };
    f[1] = (ev_frame){ "/home/u/play.py", "fn", NULL, 5 };
    return 2;
}

static char *only_file(const char *dir, const char *begins, int *count)
{
    DIR *d = opendir(dir);
    char *found = NULL;
    *count = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, begins, strlen(begins))) {
            free(found);
            found = path_join(dir, e->d_name);
            ++*count;
        }
    closedir(d);
    return found;
}

/* The JSON of a record line, after checking its prefix. */
static const json_val *record(arena *a, const char *line, size_t n)
{
    tp_err err = { 0 };
    const char *s = arena_strndup(a, line, n), *json = strstr(s, "] ");
    CHECK(is_prefix(s, 'V') && json);
    const json_val *v = json ? json_parse(a, json + 2, strlen(json + 2), &err) : NULL;
    if (!v)
        test_fail(__FILE__, __LINE__, "%s: %s", err.msg, s);
    return v;
}

TEST(events_trace_file)
{
    tp_err err = { 0 };
    arena a = { 0 };
    int n;
    char *dir = file_temp_dir(NULL, "taper-test-", &err), *sub = path_join(dir, "a/b");

    CHECK(ev_trace_start(sub, false, &err));
    free(only_file(sub, "dedicated", &n));
    CHECK_INT(n, 0); /* lazily */
    CHECK(ev_trace_on(EV_dynamo_start) && !ev_text_on(EV_aot_joint_graph) && ev_trace_on(EV_aot_joint_graph));
    CHECK(!ev_on(EV_guard_added) && !ev_on(EV_guards)); /* slow; log only */
    ev_set_stack_source(stack, NULL);
    ev_cid cid = { 0, 1, 2 };
    strbuf m = { 0 };
    json_w w = { &m };
    json_obj(&w);
    json_key(&w, "stack");
    ev_json_user_stack(&w);
    json_end(&w);
    ev_json(EV_dynamo_start, &cid, m.s, NULL);
    ev_json(EV_dynamo_output_graph, &cid, "{\"sizes\": {}}", "def f():\n\treturn \"\xc3\xa9\"\n");
    ev_artifact("fx_graph_runnable", "string", NULL, "");
    ev_phase("compile", 'B', &cid, NULL);
    ev_set_stack_source(NULL, NULL);
    char *path = only_file(sub, "dedicated_log_taper_trace_", &n), *text;
    size_t size = 0;
    CHECK_INT(n, 1);
    CHECK_STR(path, ev_trace_path());
    text = file_read(path, 1 << 20, &size, &err);

    /* str, dynamo_start, dynamo_output_graph + 3 lines, artifact + 1 line, chromium_event + 1 line */
    const char *line[16];
    size_t len[16];
    int lines = 0;
    for (char *p = text, *nl; lines < 16 && (nl = strchr(p, '\n')); p = nl + 1, lines++)
        line[lines] = p, len[lines] = (size_t)(nl - p);
    CHECK_INT(lines, 10);
    const json_val *v = record(&a, line[0], len[0]);
    CHECK(json_get(v, "str") && !json_get(v, "frame_id"));
    CHECK_STR(json_cstr(&json_get(v, "str")->at[0]), "/home/u/play.py");
    CHECK_INT(json_i64(&json_get(v, "str")->at[1], -1), 0);
    v = record(&a, line[1], len[1]);
    const json_val *st = json_get(json_get(v, "dynamo_start"), "stack");
    CHECK(json_is(st, JSON_arr) && st->n == 2);
    CHECK_INT(json_i64(json_get(&st->at[1], "line"), 0), 5);
    CHECK(!json_get(&st->at[1], "loc") && json_i64(json_get(&st->at[1], "filename"), -1) == 0);
    CHECK(json_i64(json_get(v, "frame_id"), -1) == 0 && json_i64(json_get(v, "frame_compile_id"), -1) == 1 &&
          json_i64(json_get(v, "attempt"), -1) == 2);
    v = record(&a, line[2], len[2]);
    char md5[DIGEST_HEX];
    digest_of(DIGEST_md5, "def f():\n\treturn \"\xc3\xa9\"\n", 22, md5);
    CHECK_STR(json_cstr(json_get(v, "has_payload")), md5);
    CHECK(!memcmp(line[3], "\tdef f():", 9) && !memcmp(line[4], "\t\treturn", 8) && len[5] == 1 &&
          *line[5] == '\t');
    v = record(&a, line[6], len[6]);
    CHECK_STR(json_cstr(json_get(json_get(v, "artifact"), "name")), "fx_graph_runnable");
    CHECK(json_is(json_get(v, "stack"), JSON_arr) && !json_get(v, "frame_id")); /* no compile: where it was */
    CHECK_STR(json_cstr(json_get(v, "has_payload")), "d41d8cd98f00b204e9800998ecf8427e");
    v = record(&a, line[8], len[8]);
    CHECK(json_get(v, "chromium_event") != NULL);
    v = json_parse(&a, line[9] + 1, len[9] - 1, &err);
    CHECK_STR(json_cstr(json_get(v, "ph")), "B");

    /* A forked child writes a file of its own, with its own strings. */
    pid_t pid = fork();
    if (!pid) {
        ev_set_stack_source(stack, NULL);
        ev_json(EV_dynamo_start, NULL, "{}", NULL);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    free(path);
    path = only_file(sub, "dedicated_log_taper_trace_", &n);
    CHECK_INT(n, 2);
    free(text);
    text = file_read(ev_trace_path(), 1 << 20, &size, &err);
    CHECK(!strstr(strrchr(text, '{'), "dynamo_start"));
    ev_trace_stop();
    CHECK(!ev_on(EV_dynamo_start));
    ev_json(EV_dynamo_start, NULL, "{}", NULL); /* nothing happens */

    env_set_torch_alias(true);
    setenv("TORCH_DTRACE", dir, 1);
    CHECK(ev_init(&m));
    CHECK(ev_on(EV_guard_added));
    ev_json(EV_guard_added, NULL, "{}", NULL);
    free(path);
    path = only_file(dir, "dedicated_log_torch_trace_", &n);
    CHECK_INT(n, 1);
    unsetenv("TORCH_DTRACE");
    env_set_torch_alias(false);
    ev_trace_stop();
    CHECK(!ev_trace_start("/proc/nope", false, &err) && err.kind == ERR_os);
    err_clear(&err);
    CHECK(file_remove_tree(dir, &err));
    strbuf_free(&m);
    free(text);
    free(path);
    free(sub);
    free(dir);
    arena_free(&a);
}

/* --- killed processes ---------------------------------------------------------------------------------- */
enum { LARGE = 1 << 17, EVERY = 3 }; /* every third record is large, and made by the other thread */

static void make_large(void *arg)
{
    char meta[40], *text = mem_alloc(LARGE + 1);
    snprintf(meta, sizeof meta, "{\"n\": %d}", *(int *)arg);
    memset(text, 'x', LARGE);
    text[LARGE] = 0;
    ev_json(EV_dynamo_output_graph, NULL, meta, text);
    free(text);
}

/* Numbered records until somebody kills it; each number goes to fd once its event was emitted. */
static void emit_for_ever(const char *dir, bool settle, int fd)
{
    tp_err err = { 0 };
    ev_cid cid = { 0, 0, 0 };
    if (!ev_trace_start(dir, false, &err))
        _exit(1);
    ev_cid_set(&cid);
    for (int i = 0;; i++) {
        char meta[40];
        snprintf(meta, sizeof meta, "{\"n\": %d}", i);
        if (i % EVERY)
            ev_json(EV_dynamo_start, NULL, meta, NULL);
        else
            ev_later(make_large, &i, sizeof i, NULL, NULL);
        if (settle)
            ev_settle();
        if (write(fd, &i, sizeof i) != sizeof i)
            _exit(1);
    }
}

/* Marks the records of a trace that are whole, and says how many of them; only one may be torn. Empty lines are room for
 * records to come. */
static int whole_records(const char *text, size_t size, bool *got, int most)
{
    int count = 0, torn = 0;
    for (const char *p = text, *end = text + size, *nl; p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl)
            return count;
        if (nl == p)
            continue;
        const char *n = memmem(p, (size_t)(nl - p), "{\"n\": ", 6);
        if (*p == '\t' || !n) {
            CHECK(++torn == 1);
            continue;
        }
        int k = atoi(n + 6);
        if (k % EVERY == 0) {
            const char *payload = nl + 1;
            nl = memchr(payload, '\n', (size_t)(end - payload));
            if (!nl)
                return count;
            if (nl - payload != LARGE + 1) {
                CHECK(++torn == 1);
                continue;
            }
        }
        if (k < most)
            got[k] = true;
        count++;
    }
    return count;
}

/* A killed process loses the one record that the other thread was just making, and nothing of what was settled. */
static void kill_and_look(bool settle, int us)
{
    enum { MOST = 1 << 16 };
    tp_err err = { 0 };
    int fd[2], last = -1, lost = 0, files;
    char *dir = file_temp_dir(NULL, "taper-test-", &err);
    CHECK(!pipe(fd));
    pid_t pid = fork();
    if (!pid)
        emit_for_ever(dir, settle, fd[1]);
    close(fd[1]);
    for (int i; last < 0 && read(fd[0], &i, sizeof i) == sizeof i;)
        last = i; /* it has begun */
    usleep((useconds_t)us);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i; read(fd[0], &i, sizeof i) == sizeof i;)
        last = i;
    close(fd[0]);
    char *path = only_file(dir, "dedicated", &files);
    size_t size = 0;
    char *text = path ? file_read(path, (size_t)1 << 31, &size, &err) : NULL;
    bool *got = mem_zalloc(MOST);
    int n = text ? whole_records(text, size, got, MOST) : 0;
    for (int i = 0; i <= last && i < MOST; i++)
        if (!got[i]) {
            lost++;
            CHECK(!settle && i % EVERY == 0);
        }
    CHECK(lost <= 1 && (lost == 0 || !settle) && n >= last + 1 - lost);
    free(got);
    free(text);
    free(path);
    CHECK(file_remove_tree(dir, &err));
    free(dir);
}

TEST(events_a_killed_process_loses_what_is_being_made)
{
    for (int i = 0; i < 40; i++)
        kill_and_look(i % 2, i * 173 % 5000);
}

/* What a process leaves that puts a record off, and then goes on in one of these ways. */
enum { CATCHES_UP, HANDS_OVER, WAITS_FOR_IT, WAITS_FOR_ANOTHER, PUTS_OFF_MORE, SETTLES, CRASHES, FORKS };

static void put_off_and_go_on(const char *dir, int how)
{
    tp_err err = { 0 };
    ev_cid cid = { 0, 0, 0 };
    int n[5] = { 0, 3, 6, 9, 12 };
    if (!ev_trace_start(dir, false, &err))
        _exit(1);
    ev_cid_set(&cid);
    ev_later(make_large, &n[0], sizeof *n, NULL, NULL);
    ev_put_off(make_large, &n[1], sizeof *n, &n[1]);
    ev_json(EV_dynamo_start, NULL, "{\"n\": 1}", NULL);
    switch (how) {
    case CATCHES_UP: ev_catch_up(); break;
    case HANDS_OVER: ev_later(make_large, &n[2], sizeof *n, NULL, NULL); break;
    case WAITS_FOR_IT: ev_wait(&n[1]); break;
    case WAITS_FOR_ANOTHER: ev_wait(&n[2]); break;
    case PUTS_OFF_MORE: ev_put_off(make_large, &n[2], sizeof *n, NULL); break;
    case SETTLES: ev_settle(); break;
    case CRASHES: raise(SIGSEGV); break;
    case FORKS: /* it stays the parent's */
        if (!fork()) {
            ev_settle();
            _exit(0);
        }
        wait(NULL);
        break;
    }
    ev_wait(NULL); /* so that the small one comes after what was handed over */
    ev_json(EV_dynamo_start, NULL, "{\"n\": 2}", NULL);
    ev_trace_stop();
    _exit(0); /* what the parent's threads own is nobody's here */
}

TEST(events_what_is_put_off_has_its_place)
{
    static const struct {
        int how, order[6];
    } rows[] = { { CATCHES_UP, { 0, 3, 2, -1 } },
                 { HANDS_OVER, { 0, 3, 6, 2, -1 } },
                 { WAITS_FOR_IT, { 0, 3, 2, -1 } },
                 { WAITS_FOR_ANOTHER, { 0, 3, 2, -1 } },
                 { PUTS_OFF_MORE, { 0, 3, 6, 2, -1 } },
                 { SETTLES, { 0, 3, 2, -1 } },
                 { CRASHES, { 0, 3, -1 } },
                 { FORKS, { 0, 3, 2, -1 } } };
    for (size_t i = 0; i < COUNT(rows) * 3; i++) {
        tp_err err = { 0 };
        int files, status, k = 0, small = -1;
        char *dir = file_temp_dir(NULL, "taper-test-", &err);
        pid_t pid = fork();
        if (!pid)
            put_off_and_go_on(dir, rows[i / 3].how);
        waitpid(pid, &status, 0);
        CHECK(rows[i / 3].how == CRASHES ? WIFSIGNALED(status) || WEXITSTATUS(status) : !status);
        char *path = only_file(dir, "dedicated", &files);
        CHECK_INT(files, 1);
        size_t size = 0;
        char *text = path ? file_read(path, (size_t)1 << 31, &size, &err) : NULL;
        for (const char *p = text; p && (p = strstr(p, "{\"n\": ")); p += 6) {
            int n = atoi(p + 6);
            if (n == 1) { /* by the first thread, meanwhile: anywhere before what was put off */
                small = k;
                continue;
            }
            CHECK_INT(n, rows[i / 3].order[k]);
            k++;
        }
        CHECK_INT(rows[i / 3].order[k], -1);
        CHECK(small == 0 || small == 1);
        free(text);
        free(path);
        CHECK(file_remove_tree(dir, &err));
        free(dir);
    }
}

TEST(events_table_is_consistent)
{
    static const char *const reserved[] = { "rank",      "compiled_autograd_id",
                                            "frame_id",  "frame_compile_id",
                                            "attempt",   "severity",
                                            "timestamp", "pathname",
                                            "thread" };
    for (int i = 0; ev_artifact_name(i); i++)
        for (int j = 0; ev_component_name(j); j++)
            CHECK(strcmp(ev_artifact_name(i), ev_component_name(j)));
    static const char *const names[] = {
#define EV(name, component, level, flags, help) #name,
#include "events/events.def"
    };
    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t j = 0; j < COUNT(reserved); j++)
            CHECK(strcmp(names[i], reserved[j]));
}

/* docs/logging.md has a row for every name, with its help text. */
TEST(events_page_lists_every_name)
{
    tp_err err = { 0 };
    char *page = file_read(TP_SOURCE_DIR "/docs/logging.md", 1 << 20, NULL, &err), row[400];
    static const struct {
        const char *name, *help;
    } rows[] = {
#define EV(name, component, level, flags, help) { #name, help },
#include "events/events.def"
#define EV_COMPONENT(name, implies, help) { #name, help },
#include "events/events.def"
#define ENV(id, name, torch, type, help) { name, help },
#include "base/envvars.def"
    };
    CHECK(page != NULL);
    for (size_t i = 0; page && i < COUNT(rows); i++) {
        snprintf(row, sizeof row, "\n| `%s` |", rows[i].name);
        const char *at = strstr(page, row);
        snprintf(row, sizeof row, "| %s |\n", rows[i].help);
        if (!at || !strstr(at, row))
            test_fail(__FILE__, __LINE__, "docs/logging.md lacks %s ('%s'): run tools/gendocs_logging.py",
                      rows[i].name, rows[i].help);
    }
    free(page);
}
