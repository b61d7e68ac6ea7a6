/* cmd_cache.c - taper cache: what lies in the disk cache, whether it is whole, and away with it. */
#include "base/json.h"
#include "cli/cli.h"
#include "target/disk.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct listing {
    int n, bad;
    int64_t bytes;
    bool full, only_bad;
    json_w *json; /* NULL: text */
} listing;

static void add_size(strbuf *b, int64_t n)
{
    if (n < 1024)
        strbuf_addf(b, "%lld B", (long long)n);
    else if (n < 1 << 20)
        strbuf_addf(b, "%.1f KiB", (double)n / 1024);
    else
        strbuf_addf(b, "%.1f MiB", (double)n / (1 << 20));
}

static void safe(strbuf *b,
                 const char *s) /* names come from programs: nothing of them may steer the terminal */
{
    for (; *s; s++)
        strbuf_addc(b, (unsigned char)*s < 32 || (unsigned char)*s == 127 ? '?' : *s);
}

static void show_json(json_w *w, const disk_entry *e)
{
    json_obj(w);
    json_key(w, "kind"), json_str(w, *e->kind ? e->kind : NULL);
    json_key(w, "id"), json_str(w, *e->id ? e->id : NULL);
    json_key(w, "file"), json_str(w, e->file);
    json_key(w, "bytes"), json_int(w, e->bytes);
    json_key(w, "used"), json_int(w, e->used); /* seconds since 1970 */
    json_key(w, "what"), json_str(w, e->what);
    json_key(w, "bad"), json_str(w, e->bad);
    json_end(w);
}

static void show(void *data, const disk_entry *e)
{
    listing *l = data;
    l->n++;
    l->bad += e->bad != NULL;
    l->bytes += e->bytes;
    if (l->only_bad && !e->bad)
        return;
    if (l->json) {
        show_json(l->json, e);
        return;
    }
    strbuf b = { 0 };
    time_t t = (time_t)e->used;
    struct tm tm;
    char when[32] = "";
    if (localtime_r(&t, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    safe(&b, *e->kind ? e->kind : "?");
    strbuf_pad(&b, 0, 9);
    strbuf_addf(&b, " %.16s ", *e->id ? e->id : e->file);
    strbuf_pad(&b, 0, 28);
    size_t at = b.n;
    add_size(&b, e->bytes);
    strbuf_pad(&b, at, 11);
    strbuf_addf(&b, "%s  ", when);
    safe(&b, e->what);
    if (e->bad) {
        strbuf_add(&b, *e->what ? ": " : "");
        safe(&b, e->bad);
    }
    strbuf_addc(&b, '\n');
    if (l->full && !e->bad) {
        strbuf_add(&b, "          ");
        for (const char *s = e->config; *s && !(s[0] == '\n' && s[1] == '\n'); s++)
            strbuf_addc(&b, *s == '\n' ? ' ' : *s);
        strbuf_addc(&b, '\n');
    }
    fputs(strbuf_str(&b), stdout);
    strbuf_free(&b);
}

static int each(int argc, char **argv, bool verify)
{
    cli_args a = { argc, 1, argv };
    listing l = { .only_bad = verify };
    tp_err err = { 0 };
    strbuf b = { 0 };
    json_w w = { &b };
    while (a.at < argc) {
        if (!verify && cli_flag(&a, "full"))
            l.full = true;
        else if (cli_flag(&a, "json"))
            l.json = &w;
        else
            return cli_unknown(&a);
    }
    if (l.json) {
        json_obj(&w);
        json_key(&w, "entries");
        json_arr(&w);
    }
    char *dir = disk_dir(&err);
    if (!dir || !disk_each(verify, show, &l, &err)) {
        free(dir);
        strbuf_free(&b);
        return cli_fail(&err);
    }
    if (l.json) {
        json_end(&w);
        json_key(&w, "folder"), json_str(&w, dir);
        json_key(&w, "bytes"), json_int(&w, l.bytes);
        json_key(&w, "limit"), json_int(&w, disk_limit());
        json_key(&w, "read"), json_int(&w, l.n);
        json_key(&w, "damaged"), json_int(&w, l.bad);
        json_end(&w);
        puts(strbuf_str(&b));
        strbuf_free(&b);
        free(dir);
        return verify && l.bad;
    }
    add_size(&b, l.bytes);
    strbuf_addf(&b, " of ");
    add_size(&b, disk_limit());
    if (verify)
        printf("%d of %d %s in %s %s whole (%s)\n", l.n - l.bad, l.n, l.n == 1 ? "entry" : "entries", dir,
               l.n - l.bad == 1 ? "is" : "are", strbuf_str(&b));
    else
        printf("%d %s in %s (%s)\n", l.n, l.n == 1 ? "entry" : "entries", dir, strbuf_str(&b));
    strbuf_free(&b);
    free(dir);
    return verify && l.bad;
}

static int run_ls(int argc, char **argv) { return each(argc, argv, false); }
static int run_verify(int argc, char **argv) { return each(argc, argv, true); }

static int run_clear(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    tp_err err = { 0 };
    int n;
    int64_t bytes;
    strbuf b = { 0 };
    bool json = false;
    while (a.at < argc) {
        if (!cli_flag(&a, "json"))
            return cli_unknown(&a);
        json = true;
    }
    char *dir = disk_dir(&err);
    if (!dir || !disk_clear(&n, &bytes, &err)) {
        free(dir);
        return cli_fail(&err);
    }
    if (json) {
        json_w w = { &b };
        json_obj(&w);
        json_key(&w, "removed"), json_int(&w, n);
        json_key(&w, "bytes"), json_int(&w, bytes);
        json_key(&w, "folder"), json_str(&w, dir);
        json_end(&w);
        puts(strbuf_str(&b));
        strbuf_free(&b);
        free(dir);
        return 0;
    }
    add_size(&b, bytes);
    printf("removed %d %s (%s) from %s\n", n, n == 1 ? "entry" : "entries", strbuf_str(&b), dir);
    strbuf_free(&b);
    free(dir);
    return 0;
}

static const cli_cmd subs[] = {
    { "ls", "[--full] [--json]", "Lists the entries, the one used last first",
      "  --full   also what each was made with and for\n"
      "  --json   for programs\n",
      run_ls, NULL },
    { "clear", "[--json]", "Removes every entry", NULL, run_clear, NULL },
    { "verify", "[--json]", "Reads every entry, compares its checksum, and lists those that would be refused",
      "  Exit code 1 when there are any. Damaged entries are also found, dropped and made again when they "
      "are used.\n",
      run_verify, NULL },
    { 0 },
};

const cli_cmd cmd_cache = {
    "cache",
    "ls | clear | verify",
    "Looks after the compiled graphs and kernels kept on disk",
    "  They lie in TAPER_CACHE_DIR, else in taper/ of the user's cache directory; TAPER_CACHE=0 "
    "turns the cache off,\n"
    "  TAPER_CACHE_SIZE=MiB limits it. TAPER_LOGS=cache says what was found there, and why not.\n",
    NULL,
    subs
};
