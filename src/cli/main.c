/* main.c - finds the command, answers --help and --version, hands over. */
#include "base/envvars.h"
#include "cli/cli.h"
#include "base/proc.h"
#include "taper.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const cli_cmd *const commands[] = {
#define CMD(name) &cmd_##name,
#include "cli/cmds.def"
};

static const char codes[] =
    "Exit codes: 0 done; 1 the input is wrong or a check failed; 2 wrong usage, unreadable file\n"
    "or syntax error; 3 a compiler failed; 4 a bug in Taper.\n";

/* ---- messages ---- */
int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("taper: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputs("\n", stderr);
    va_end(ap);
    return 2;
}

int cli_fail(const tp_err *e)
{
    bool placed = e->file[0] && !strncmp(e->msg, e->file, strlen(e->file));
    fprintf(stderr, "%s%s\n", placed ? "" : "taper: ", e->msg);
    if (e->file[0] && !placed)
        fprintf(stderr, "  at %s:%d\n", e->file, e->line);
    for (const char *s = e->notes; *s;) {
        size_t n = strcspn(s, "\n");
        fprintf(stderr, "  %.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
    return err_exit_code(e->kind);
}

/* ---- options ---- */
static const char *rest_after(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(arg, "--", 2) && !strncmp(arg + 2, name, n) ? arg + 2 + n : NULL;
}

bool cli_flag(cli_args *a, const char *name)
{
    const char *r = rest_after(a->argv[a->at], name);
    if (!r || *r)
        return false;
    a->at++;
    return true;
}

bool cli_option(cli_args *a, const char *name, const char **value)
{
    const char *r = rest_after(a->argv[a->at], name);
    if (!r || (*r && *r != '='))
        return false;
    if (*r == '=')
        *value = r + 1;
    else if (a->at + 1 < a->argc)
        *value = a->argv[++a->at];
    else
        exit(cli_usage("option '--%s' needs a value", name));
    a->at++;
    return true;
}

void cli_error_line(strbuf *b, const char *text)
{
    const char *best = text;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        const char *e = strstr(p, "Error"), *old = strstr(best, "Error");
        bool named = e && e < p + n, was = old && old < best + strcspn(best, "\n");
        if (n && *p != ' ' && (named || !was)) /* an indented line goes on with a message, or is source */
            best = p;
        p += n + (p[n] == '\n');
    }
    strbuf_addf(b, "%.*s", (int)MIN(strcspn(best, "\n"), (size_t)200), best);
}

bool cli_ended_early(const proc_result *r, const strbuf *otherwise)
{
    return !r->status && !r->timed_out && r->out.n < otherwise->n &&
           (!r->out.n || !memcmp(r->out.s, otherwise->s, r->out.n));
}

/* Letters to change, add, drop or swap with the next one, up to `most`. */
static int distance(const char *a, const char *b, int most)
{
    if (!*a || !*b)
        return (int)(strlen(a) + strlen(b));
    if (*a == *b)
        return distance(a + 1, b + 1, most);
    if (!most)
        return 1;
    int best = distance(a + 1, b + 1, most - 1), more = distance(a + 1, b, most - 1),
        less = distance(a, b + 1, most - 1);
    best = MIN(best, MIN(more, less));
    if (a[0] == b[1] && a[1] == b[0])
        best = MIN(best, distance(a + 2, b + 2, most - 1));
    return 1 + best;
}

const char *cli_nearest(const char *word, const char *const *words)
{
    static char text[80];
    int most = strlen(word) < 4 ? 1 : 2, best = most + 1;
    *text = 0;
    for (; *words; words++) {
        int d = distance(word, *words, most);
        if (d < best) {
            best = d;
            snprintf(text, sizeof text, " (did you mean '%s'?)", *words);
        }
    }
    return text;
}

int cli_unknown(const cli_args *a)
{
    return cli_usage("'%s' does not know the option '%s'; see --help", a->argv[0], a->argv[a->at]);
}

/* ---- help ---- */
static void print_subs(const cli_cmd *c)
{
    for (; c->name; c++)
        printf("  %-10s %s\n", c->name, c->summary);
}

static int help_of(const cli_cmd *c, const char *before)
{
    printf("usage: taper %s%s %s\n\n%s.\n", before, c->name, c->args, c->summary);
    if (c->details)
        printf("\n%s", c->details);
    if (c->subs) {
        printf("\nCommands:\n");
        print_subs(c->subs);
    }
    printf("\n%s", codes);
    return 0;
}

static int help(void)
{
    printf("usage: taper COMMAND ...\n\nA tensor compiler you can debug.\n\nCommands:\n");
    for (size_t i = 0; i < COUNT(commands); i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n  taper COMMAND --help says more about one; taper --version names the version.\n\n%s", codes);
    return 0;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

/* ---- running ---- */
enum { MOST_WORDS = 32 };

static int run_sub(const cli_cmd *c, int argc, char **argv)
{
    const char *want = argc > 1 ? argv[1] : NULL;
    for (const cli_cmd *s = c->subs; want && s->name; s++)
        if (!strcmp(s->name, want)) {
            char before[64];
            snprintf(before, sizeof before, "%s ", c->name);
            return wants_help(argc - 1, argv + 1) ? help_of(s, before) : s->run(argc - 1, argv + 1);
        }
    if (wants_help(argc, argv))
        return help_of(c, "");
    if (!want)
        return cli_usage("'%s' needs a command; see taper %s --help", c->name, c->name);
    const char *words[MOST_WORDS] = { NULL };
    for (int i = 0; i < MOST_WORDS - 1 && c->subs[i].name; i++)
        words[i] = c->subs[i].name;
    return cli_usage("'%s' has no command '%s'%s; see taper %s --help", c->name, want,
                     cli_nearest(want, words), c->name);
}

int main(int argc, char **argv)
{
    const char *want = argc > 1 ? argv[1] : NULL;
    int rc = -1;

    env_check();
    if (!want || !strcmp(want, "--help") || !strcmp(want, "-h") || !strcmp(want, "help")) {
        help();
        rc = want ? 0 : 2;
    } else if (!strcmp(want, "--version")) {
        printf("taper %s\n", tp_version());
        rc = 0;
    }
    for (size_t i = 0; rc < 0 && i < COUNT(commands); i++) {
        const cli_cmd *c = commands[i];
        if (strcmp(c->name, want))
            continue;
        if (c->subs)
            rc = run_sub(c, argc - 1, argv + 1);
        else
            rc = wants_help(argc - 1, argv + 1) ? help_of(c, "") : c->run(argc - 1, argv + 1);
    }
    if (rc < 0) {
        const char *words[COUNT(commands) + 1] = { NULL };
        for (size_t i = 0; i < COUNT(commands); i++)
            words[i] = commands[i]->name;
        rc = cli_usage("there is no command '%s'%s; see taper --help", want, cli_nearest(want, words));
    }
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "taper: cannot write the output\n");
        rc = rc ? rc : 2;
    }
    return rc;
}
