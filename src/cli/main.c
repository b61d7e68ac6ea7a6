/* main.c - finds the command, answers --help and --version, hands over. */
#include "base/envvars.h"
#include "cli/cli.h"
#include "base/proc.h"
#include "taper.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const cli_cmd *const cli_commands[] = {
#define CMD(name) &cmd_##name,
#include "cli/cmds.def"
    NULL
};

static const char codes[] =
    "Exit codes: 0 done; 1 the input is wrong or a check failed; 2 wrong usage, unreadable file\n"
    "or syntax error; 3 a compiler failed; 4 a bug in Taper.\n";

/* ---- messages ---- */
const char *cli_colour(FILE *f, cli_style s)
{
    static const char *const codes_of[] = { "\033[0m", "\033[1m", "\033[1;31m" };
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    bool on = !(no && *no) && term && strcmp(term, "dumb") && isatty(fileno(f));
    return on ? codes_of[s] : "";
}

static void complain(void)
{
    fprintf(stderr, "%staper:%s ", cli_colour(stderr, CLI_red), cli_colour(stderr, CLI_plain));
}

int cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain();
    vfprintf(stderr, fmt, ap);
    fputs("\n", stderr);
    va_end(ap);
    return 2;
}

int cli_fail(const tp_err *e)
{
    bool placed = e->file[0] && !strncmp(e->msg, e->file, strlen(e->file));
    if (!placed)
        complain();
    fprintf(stderr, "%s\n", e->msg);
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
static const char *rest_after(cli_args *a, const char *name)
{
    const char *arg = a->argv[a->at];
    size_t n = strlen(name);
    if (a->near.want != arg)
        a->near = (near_word){ arg };
    char option[64];
    snprintf(option, sizeof option, "--%s", name);
    near_try(&a->near, option);
    return !strncmp(arg, "--", 2) && !strncmp(arg + 2, name, n) ? arg + 2 + n : NULL;
}

bool cli_flag(cli_args *a, const char *name)
{
    const char *r = rest_after(a, name);
    if (!r || *r)
        return false;
    a->at++;
    return true;
}

bool cli_option(cli_args *a, const char *name, const char **value)
{
    const char *r = rest_after(a, name);
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

int cli_unknown(cli_args *a)
{
    const char *hint = a->near.want == a->argv[a->at] ? near_hint(&a->near) : "";
    return cli_usage("'%s' does not know the option '%s'%s", a->argv[0], a->argv[a->at],
                     *hint ? hint : "; see --help");
}

/* ---- help ---- */
static void print_subs(const cli_cmd *c)
{
    for (; c->name; c++)
        printf("  %s%-10s%s %s\n", cli_colour(stdout, CLI_bold), c->name, cli_colour(stdout, CLI_plain),
               c->summary);
}

static int help_of(const cli_cmd *c, const char *before)
{
    printf("usage: %staper %s%s%s %s\n\n%s.\n", cli_colour(stdout, CLI_bold), before, c->name,
           cli_colour(stdout, CLI_plain), c->args, c->summary);
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
    for (const cli_cmd *const *c = cli_commands; *c; c++)
        printf("  %s%-10s%s %s\n", cli_colour(stdout, CLI_bold), (*c)->name, cli_colour(stdout, CLI_plain),
               (*c)->summary);
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
    near_word near = { want };
    for (const cli_cmd *s = c->subs; s->name; s++)
        near_try(&near, s->name);
    const char *hint = near_hint(&near);
    if (*hint)
        return cli_usage("'%s' has no command '%s'%s", c->name, want, hint);
    return cli_usage("'%s' has no command '%s'; see taper %s --help", c->name, want, c->name);
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
    for (int i = 0; rc < 0 && cli_commands[i]; i++) {
        const cli_cmd *c = cli_commands[i];
        if (strcmp(c->name, want))
            continue;
        if (c->subs)
            rc = run_sub(c, argc - 1, argv + 1);
        else
            rc = wants_help(argc - 1, argv + 1) ? help_of(c, "") : c->run(argc - 1, argv + 1);
    }
    if (rc < 0) {
        near_word near = { want };
        for (int i = 0; cli_commands[i]; i++)
            near_try(&near, cli_commands[i]->name);
        const char *hint = near_hint(&near);
        rc = cli_usage("there is no command '%s'%s", want, *hint ? hint : "; see taper --help");
    }
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "taper: cannot write the output\n");
        rc = rc ? rc : 2;
    }
    return rc;
}
