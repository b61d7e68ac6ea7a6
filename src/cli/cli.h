/* cli.h - the `taper` program: commands are rows of cmds.def, each with its own file cmd_<name>.c.
 * Exit codes: 0 done; 1 the input is wrong or what was checked does not hold; 2 wrong usage, unreadable file
 * or syntax error; 3 a compiler failed; 4 a bug in Taper (base/err.def says which error kind gives which). */
#ifndef TAPER_CLI_H
#define TAPER_CLI_H
#include "base/proc.h"
#include "base/err.h"
#include "base/near.h"
#include "base/strbuf.h"
#include <stdio.h>

typedef struct cli_cmd {
    const char *name;
    const char *args;                  /* "FILE [--table]" */
    const char *summary;               /* one line */
    const char *details;               /* printed by --help after the summary, or NULL */
    int (*run)(int argc, char **argv); /* argv[0] is the command; NULL when it only has subcommands */
    const struct cli_cmd *subs;        /* ends in a row without name, or NULL */
} cli_cmd;

/* Reads options: each call looks at one argument.
 *   --name=VALUE or --name VALUE for options with a value, --name for flags. */
typedef struct cli_args {
    int argc, at;
    char **argv;
    near_word near; /* private: the option that argv[at] is most like */
} cli_args;
bool cli_flag(cli_args *a, const char *name); /* consumes --name */
bool cli_option(cli_args *a, const char *name,
                const char **value); /* consumes --name VALUE; exits 2 without */
/* Appends the line of what a program wrote to stderr that names an error, or just the last one. */
void cli_error_line(strbuf *b, const char *text);
/* Did a run that reports success end before it had printed what the program prints otherwise? */
bool cli_ended_early(const proc_result *r, const strbuf *otherwise);
int cli_unknown(cli_args *a);                        /* says so; returns 2 */
int cli_fail(const tp_err *e);                       /* prints it; returns the exit code */
int cli_usage(const char *fmt, ...) TP_PRINTF(1, 2); /* prints it; returns 2 */

/* Is dir a failure of a PyTorch backend, as taper.torch.debug saves it? */
bool cli_torch_saved(const char *dir);
/* Becomes python3 -m taper.torch COMMAND ARGS; returns only when that cannot be started. */
int cli_torch(const char *command, int argc, char **argv);

extern const cli_cmd *const cli_commands[]; /* ends in NULL */
/* "\033[1m" and the like where f is a terminal that wants colours (NO_COLOR, TERM=dumb: none), else "". */
typedef enum { CLI_plain, CLI_bold, CLI_red } cli_style;
const char *cli_colour(FILE *f, cli_style s);

#define CMD(name) extern const cli_cmd cmd_##name;
#include "cli/cmds.def"
#endif
