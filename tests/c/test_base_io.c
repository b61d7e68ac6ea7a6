/* Files, child processes, digests, interned strings, UTF-8. */
#include "test.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/intern.h"
#include "base/proc.h"
#include "base/source.h"
#include "base/utf8.h"
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(digest_known_answers)
{
    static const struct {
        const char *text, *md5, *sha1, *sha256;
    } rows[] = {
        { "", "d41d8cd98f00b204e9800998ecf8427e", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "900150983cd24fb0d6963f7d28e17f72", "a9993e364706816aba3e25717850c26c9cd0d89d",
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "8215ef0796a20bcaaae116d3876c664a",
          "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    char hex[DIGEST_HEX];
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t n = strlen(rows[i].text);
        digest_of(DIGEST_md5, rows[i].text, n, hex);
        CHECK_STR(hex, rows[i].md5);
        digest_of(DIGEST_sha1, rows[i].text, n, hex);
        CHECK_STR(hex, rows[i].sha1);
        digest_of(DIGEST_sha256, rows[i].text, n, hex);
        CHECK_STR(hex, rows[i].sha256);
    }
    /* A million 'a', fed in uneven pieces. */
    static char as[977];
    memset(as, 'a', sizeof as);
    digest d;
    digest_init(&d, DIGEST_sha256);
    for (size_t left = 1000000; left;) {
        size_t n = MIN(left, 1 + left % sizeof as);
        digest_add(&d, as, n);
        left -= n;
    }
    digest_hex(&d, hex);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(interns_give_one_pointer)
{
    interns t = { 0 };
    bool fresh;
    CHECK_INT(intern_id(&t, "a.py", 4, &fresh), 0);
    CHECK(fresh);
    CHECK_INT(intern_id(&t, "b.py", 4, NULL), 1);
    CHECK_INT(intern_id(&t, "a.pyx", 4, &fresh), 0);
    CHECK(!fresh);
    const char *p = intern_str(&t, "a.py", 4);
    for (int i = 0; i < 1000; i++) {
        char s[16];
        snprintf(s, sizeof s, "n%d", i);
        intern_str(&t, s, strlen(s));
    }
    CHECK(intern_str(&t, "a.py", 4) == p);
    interns_free(&t);
}

TEST(utf8_accepts_and_refuses)
{
    uint32_t c;
    char out[4];
    CHECK(utf8_decode("\xe2\x82\xac", 3, &c) == 3 && c == 0x20ac);
    CHECK(utf8_decode("\xf0\x9f\x98\x80", 4, &c) == 4 && c == 0x1f600);
    CHECK_INT(utf8_decode("\xe2\x82", 2, &c), 0);         /* cut */
    CHECK_INT(utf8_decode("\xc0\x80", 2, &c), 0);         /* overlong */
    CHECK_INT(utf8_decode("\xed\xa0\x80", 3, &c), 0);     /* surrogate */
    CHECK_INT(utf8_decode("\xf4\x90\x80\x80", 4, &c), 0); /* too large */
    CHECK_INT(utf8_decode("\x80", 1, &c), 0);
    CHECK_INT(utf8_decode("", 0, &c), 0);
    for (uint32_t u = 0; u < 0x110000; u += 37) {
        int n = utf8_encode(u, out);
        CHECK(n ? utf8_decode(out, (size_t)n, &c) == n && c == u : u >= 0xd800 && u < 0xe000);
    }
    CHECK_INT(utf8_bad("ab\xff", 3), 2);
    CHECK_INT(utf8_count("h\xc3\xa9\xff", 4), 3);
}

static const char *line_of(const char *dir, const char *name, const char *text, size_t n, int line)
{
    char *path = path_join(dir, name); /* each name once: files are kept as they were */
    tp_err err = { 0 };
    CHECK(file_write(path, text, n, &err));
    CHECK(source_is_file(path));
    const char *s = source_line(path, line);
    free(path);
    return s;
}

TEST(source_lines_are_read_as_python_does)
{
    tp_err err = { 0 };
    char *dir = file_temp_dir(NULL, "source", &err);
#define LINE(name, text, k) line_of(dir, name, text, sizeof text - 1, k)
    CHECK_STR(LINE("plain", "a\n  b \t\n\nc", 2), "  b");
    char *path = path_join(dir, "plain");
    CHECK_STR(source_line_stripped(path, 2), "b");
    CHECK_STR(source_line(path, 3), "");
    CHECK_STR(source_line(path, 4), "c");
    CHECK_STR(source_line(path, 5), "");
    CHECK_STR(source_line(path, 0), "");
    CHECK_STR(source_line(path, -1), "");
    CHECK(file_write(path, "other\n", 6, &err));
    CHECK_STR(source_line(path, 1), "a"); /* as it was when a line of it was first asked for */
    free(path);
    CHECK_STR(LINE("empty", "", 1), "");
    CHECK_STR(LINE("ends", "a\r\nb\rc\n", 3), "c");
    CHECK_STR(LINE("mark",
                   "\xef\xbb\xbf"
                   "a\n",
                   1),
              "a");
    CHECK_STR(LINE("utf8", "# coding: utf-8\n\xc3\xbc\n", 2), "\xc3\xbc");
    CHECK_STR(LINE("latin", "#!/bin/x\n# -*- coding: latin-1 -*-\n\xfc\n", 3), "\xc3\xbc");
    CHECK_STR(LINE("late", "#\n#\n# coding: latin-1\n\xc3\xbc\n", 4), "\xc3\xbc");
    CHECK_STR(LINE("after", "x = 1\n# coding: latin-1\n\xc3\xbc\n", 3), "\xc3\xbc");
    CHECK(LINE("nul", "a\0b\n", 1) == NULL);
    CHECK(LINE("bytes", "a\n\xfc\n", 1) == NULL);
    CHECK(LINE("unknown", "# coding: words-of-mine\na\n", 2) == NULL);
    CHECK(source_line("/nowhere/at/all.py", 1) == NULL);
    CHECK(!source_is_file("/nowhere/at/all.py") && !source_is_file("/") && !source_is_file("<stdin>") &&
          !source_is_file("/dev/null"));
    CHECK(file_remove_tree(dir, &err));
    free(dir);
}

TEST(file_write_is_atomic_and_reads_back)
{
    tp_err err = { 0 };
    char *dir = file_temp_dir(NULL, "taper-test-", &err), *path = path_join(dir, "a/b/c.txt"), *s;
    size_t n = 99;

    CHECK(!file_write(path, "x", 1, &err));
    CHECK(strstr(err.msg, "No such file") && strstr(err.msg, "c.txt") && err.kind == ERR_os);
    err_clear(&err);
    char *sub = path_join(dir, "a/b/");
    CHECK(file_mkdirs(sub, &err) && file_mkdirs(sub, &err));
    CHECK(file_write(path, "hello\0x", 7, &err));
    CHECK(file_write(path, "again", 5, &err));
    s = file_read(path, 100, &n, &err);
    CHECK_STR(s, "again");
    CHECK_INT(n, 5);
    free(s);
    CHECK(file_write(path, "", 0, &err));
    s = file_read(path, 0, &n, &err);
    CHECK_STR(s, "");
    free(s);
    CHECK(file_write(path, "0123456789", 10, &err));
    CHECK(!file_read(path, 9, &n, &err));
    CHECK(strstr(err.msg, "larger than the limit of 9 bytes"));
    err_clear(&err);
    CHECK(!file_read(dir, 9, &n, &err));
    CHECK(strstr(err.msg, "directory"));
    err_clear(&err);
    char *under_file = path_join(path, "d");
    CHECK(!file_mkdirs(under_file, &err));
    CHECK(err.kind == ERR_os);
    err_clear(&err);
    CHECK(file_remove_tree(dir, &err));
    CHECK(!file_exists(dir));
    CHECK(file_remove_tree(dir, &err));
    free(under_file);
    free(sub);
    free(path);
    free(dir);
}

TEST(file_private_dir_refuses_what_others_can_reach)
{
    tp_err err = { 0 };
    char *dir = file_temp_dir(NULL, "taper-test-", &err);
    char *p = path_join(dir, "x/cache"), *link = path_join(dir, "link"), *slash = path_join(dir, "link/");
    struct stat st;

    CHECK(file_private_dir(p, &err));
    CHECK(!stat(p, &st) && (st.st_mode & 0777) == 0700);
    CHECK(file_private_dir(p, &err));
    CHECK(!chmod(p, 0755));
    CHECK(!file_private_dir(p, &err));
    CHECK(strstr(err.msg, "0755"));
    err_clear(&err);
    CHECK(!chmod(p, 0700) && !symlink(p, link));
    CHECK(!file_private_dir(link, &err));
    CHECK(strstr(err.msg, "symbolic link"));
    err_clear(&err);
    CHECK(!file_private_dir(slash, &err));
    CHECK(strstr(err.msg, "symbolic link"));
    err_clear(&err);
    CHECK(file_private_dir(p, &err));
    CHECK(file_write(link, "f", 1, &err)); /* replaces the link, not its target */
    CHECK(!file_private_dir(link, &err));
    CHECK(strstr(err.msg, "not a directory"));
    err_clear(&err);
    if (geteuid() == 0 && !chown(p, 12345, 0)) {
        CHECK(!file_private_dir(p, &err));
        CHECK(strstr(err.msg, "belongs to user 12345"));
        err_clear(&err);
    }
    CHECK(file_remove_tree(dir, &err));
    free(p);
    free(link);
    free(slash);
    free(dir);
}

static bool run(proc_result *r, const char *script, int64_t ms)
{
    const char *argv[] = { "sh", "-c", script, NULL };
    tp_err err = { 0 };
    return proc_run(&(proc_spec){ .argv = argv, .timeout_ms = ms }, r, &err);
}

TEST(proc_captures_output_and_status)
{
    proc_result r;
    strbuf b = { 0 };
    CHECK(run(&r, "echo out; echo err >&2; exit 3", 0));
    CHECK_STR(strbuf_str(&r.out), "out\n");
    CHECK_STR(strbuf_str(&r.err), "err\n");
    CHECK_INT(r.status, 3);
    proc_describe(&b, &r);
    CHECK_STR(b.s, "exit status 3");
    proc_result_free(&r);
    CHECK(run(&r, "kill -SEGV $$", 0));
    CHECK_INT(r.status, -SIGSEGV);
    strbuf_clear(&b);
    proc_describe(&b, &r);
    CHECK(strstr(b.s, "signal 11"));
    proc_result_free(&r);
    strbuf_free(&b);
}

TEST(proc_start_failure_is_an_error)
{
    const char *argv[] = { "/no/such/program", NULL };
    tp_err err = { 0 };
    proc_result r;
    CHECK(!proc_run(&(proc_spec){ .argv = argv }, &r, &err));
    CHECK(strstr(err.msg, "/no/such/program") && strstr(err.msg, "No such file"));
}

TEST(proc_timeout_kills_the_whole_group)
{
    proc_result r;
    int64_t t = clock_ns();
    CHECK(run(&r, "sleep 30 & echo $!; sleep 30", 200));
    CHECK(r.timed_out);
    CHECK(clock_ns() - t < 5000000000);
    int grandchild = atoi(strbuf_str(&r.out));
    CHECK(grandchild > 0);
    bool gone = false; /* init, not we, reaps it: give it a moment */
    for (int i = 0; i < 100 && !gone; i++, usleep(10000)) {
        char path[64], *s;
        snprintf(path, sizeof path, "/proc/%d/stat", grandchild);
        s = file_read(path, 4096, NULL, NULL);
        gone = !s || strstr(s, ") Z");
        free(s);
    }
    CHECK(gone);
    proc_result_free(&r);
}

TEST(proc_does_not_wait_for_daemons_that_keep_the_pipe)
{
    proc_result r;
    int64_t t = clock_ns();
    CHECK(run(&r, "sleep 30 & echo done", 20000));
    CHECK(clock_ns() - t < 5000000000);
    CHECK(!r.timed_out && r.status == 0);
    CHECK_STR(strbuf_str(&r.out), "done\n");
    proc_result_free(&r);
}

TEST(proc_input_and_limits)
{
    const char *cat[] = { "cat", NULL }, *head[] = { "true", NULL };
    tp_err err = { 0 };
    proc_result r;
    size_t n = 3 << 20;
    char *big = mem_alloc(n);
    memset(big, 'x', n);
    proc_spec s = { .argv = cat, .input = big, .n_input = n, .timeout_ms = 20000 };
    CHECK(proc_run(&s, &r, &err) && r.out.n == n && r.status == 0 && !r.truncated);
    proc_result_free(&r);
    s.output_limit = 1000;
    CHECK(proc_run(&s, &r, &err) && r.out.n == 1000 && r.truncated && r.status == 0);
    proc_result_free(&r);
    s.argv = head; /* never reads: writing must not kill us */
    CHECK(proc_run(&s, &r, &err) && r.status == 0);
    proc_result_free(&r);
    free(big);
}

static int square(void *arg)
{
    printf("in child\n");
    return *(int *)arg * *(int *)arg;
}
static int hang(void *arg)
{
    sleep(60);
    return 0;
}
static bool yes(void *data) { return true; }

TEST(proc_function_in_a_forked_child)
{
    tp_err err = { 0 };
    proc_result r;
    int x = 7;
    CHECK(proc_run(&(proc_spec){ .fn = square, .arg = &x }, &r, &err));
    CHECK_INT(r.status, 49);
    CHECK_STR(strbuf_str(&r.out), "in child\n");
    proc_result_free(&r);
    CHECK(!proc_run(&(proc_spec){ .fn = hang, .interrupted = yes }, &r, &err));
    CHECK_INT(err.kind, ERR_interrupt);
    proc_result_free(&r);
}

TEST(proc_wait_any_returns_the_first)
{
    tp_err err = { 0 };
    int x = 3;
    proc *p[2] = { proc_start(&(proc_spec){ .fn = hang }, &err),
                   proc_start(&(proc_spec){ .fn = square, .arg = &x }, &err) };
    CHECK_INT(proc_wait_any(p, 2), 1);
    proc_result r;
    proc_end(p[1], &r);
    CHECK_INT(r.status, 9);
    proc_result_free(&r);
    proc_end(p[0], NULL);
}

#if !defined(__SANITIZE_ADDRESS__) /* the sanitizer reserves terabytes of address space */
TEST(proc_memory_limit)
{
    proc_result r;
    const char *argv[] = { "sh", "-c", "head -c 400000000 /dev/zero | sort > /dev/null", NULL };
    tp_err err = { 0 };
    CHECK(proc_run(&(proc_spec){ .argv = argv, .memory_limit = 100 << 20, .timeout_ms = 20000 }, &r, &err));
    CHECK(r.status != 0 && !r.timed_out);
    proc_result_free(&r);
}
#endif
