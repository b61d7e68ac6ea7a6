/* cmd_report.c - taper report: trace files to one HTML page. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/vec.h"
#include "cli/serve.h"
#include "report/report.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

/* True when a program that shows pages took it. */
static bool show(const char *path)
{
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return false;
    char *const argv[] = { "xdg-open", (char *)path, NULL };
    posix_spawn_file_actions_t fa;
    pid_t pid;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    bool ok = posix_spawnp(&pid, "xdg-open", &fa, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&fa);
    int status = 0;
    return ok && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool short_o(cli_args *a, const char **out)
{
    if (strcmp(a->argv[a->at], "-o") || a->at + 1 >= a->argc)
        return false;
    *out = a->argv[a->at + 1];
    a->at += 2;
    return true;
}

static int write_page(report *r, report *diff, const char *out, bool browser, bool quiet)
{
    tp_err e = { 0 };
    if (!report_html_file(r, diff, out, &e))
        return cli_fail(&e);
    if (!quiet)
        printf("Wrote %s\n", out);
    fflush(stdout);
    if (browser && !show(out))
        fprintf(stderr, "taper: no browser could be started; open %s yourself\n", out);
    return 0;
}

/* A form for other programs, into a file or, for "-", to the terminal. */
static int write_form(report *r, void (*form)(report *r, strbuf *out), const char *to)
{
    strbuf b = { 0 };
    tp_err e = { 0 };
    int rc = 0;
    form(r, &b);
    if (!strcmp(to, "-"))
        fwrite(strbuf_str(&b), 1, b.n, stdout);
    else if (!file_write(to, strbuf_str(&b), b.n, &e))
        rc = cli_fail(&e);
    else
        printf("Wrote %s\n", to);
    strbuf_free(&b);
    return rc;
}

static bool serve_browser;
static void served(const char *url)
{
    printf("Serving %s (Ctrl-C ends it)\n", url);
    fflush(stdout);
    if (serve_browser)
        show(url);
}

static int run_serve(const char *const *paths, size_t n, bool redact, bool browser, const char *port)
{
    tp_err e = { 0 };
    char *end = NULL;
    long p = port ? strtol(port, &end, 10) : 0;
    if (port && (*end || end == port || p < 0 || p > 65535))
        return cli_usage("--port takes a number from 0 to 65535, not '%s'", port);
    serve_browser = browser;
    serve_what w = { paths, n, redact };
    return serve(&w, (int)p, served, &e) ? 0 : cli_fail(&e);
}

static int run_report(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *out = NULL, *other = NULL, *chrome = NULL, *sarif = NULL, *port = NULL;
    bool browser = true, json = false, redact = false, serving = false;
    int rc = 0;
    tp_err e = { 0 };
    report *r = report_new(), *diff = NULL;
    VEC(const char *) paths = { 0 };

    while (a.at < argc && !rc) {
        if (cli_flag(&a, "no-browser"))
            browser = false;
        else if (cli_flag(&a, "json"))
            json = true;
        else if (cli_flag(&a, "redact"))
            redact = true;
        else if (cli_flag(&a, "serve"))
            serving = true;
        else if (cli_option(&a, "chrome", &chrome) || cli_option(&a, "sarif", &sarif) ||
                 cli_option(&a, "port", &port))
            continue;
        else if (cli_option(&a, "diff", &other) || short_o(&a, &out) || cli_option(&a, "output", &out))
            continue;
        else if (argv[a.at][0] == '-' && argv[a.at][1])
            rc = cli_unknown(&a);
        else
            vec_push(&paths, argv[a.at++]);
    }
    if (!rc && serving && paths.n)
        rc = run_serve(paths.at, paths.n, redact, browser, port);
    if (redact)
        report_redact(r); /* before anything is read: names are collected then */
    for (size_t i = 0; i < paths.n && !rc; i++)
        if (!report_add(r, paths.at[i], &e))
            rc = cli_fail(&e);
    if (!rc && !paths.n)
        rc = cli_usage("'report' needs a trace file or a directory of them (TAPER_TRACE=DIR makes one)");
    if (!rc && other && json && !out)
        rc = cli_usage("--diff makes a page, not a summary: leave out --json");
    if (!rc && other) {
        diff = report_new();
        if (redact)
            report_redact(diff);
        if (!report_add(diff, other, &e))
            rc = cli_fail(&e);
    }
    if (!rc && chrome)
        rc = write_form(r, report_chrome, chrome);
    if (!rc && sarif)
        rc = write_form(r, report_sarif, sarif);
    if (!rc && (out || (!json && !chrome && !sarif)))
        rc = write_page(r, diff, out ? out : "taper_report.html", browser && !json, json);
    if (!rc && json) {
        strbuf b = { 0 };
        report_json(r, &b);
        fwrite(strbuf_str(&b), 1, b.n, stdout);
        strbuf_free(&b);
    }
    report_free(r);
    report_free(diff);
    vec_free(&paths);
    return rc;
}

const cli_cmd cmd_report = {
    "report",
    "DIR|FILE... [-o OUT.html] [--diff DIR|FILE] [--redact] [--no-browser] [--json]\n"
    "       [--serve [--port=N]] [--chrome=OUT.json] [--sarif=OUT.sarif]",
    "Turns trace files into one HTML page: what was compiled, what broke, what to do",
    "  -o, --output=OUT  where to write the page (default taper_report.html)\n"
    "  --diff=OTHER      compare with another trace, side by side\n"
    "  --redact          replace names, paths and source lines, so that the page can be shown to others\n"
    "  --no-browser      do not open it\n"
    "  --json            print a summary for programs instead (with -o: as well)\n"
    "  --serve           show it at an address of this machine and follow a program that is running\n"
    "  --port=N          of --serve (default: one that is free)\n"
    "  --chrome=OUT      write when compiles ran as Chrome's trace events, for ui.perfetto.dev (-: print)\n"
    "  --sarif=OUT       write breaks, recompiles, errors and hints as SARIF, for editors (-: print)\n"
    "Traces are made by TAPER_TRACE=DIR python prog.py. A directory stands for every *.log in it. Lines "
    "that\n"
    "make no sense are skipped; the page and the summary say which.\n",
    run_report,
    NULL
};
