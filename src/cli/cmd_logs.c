/* cmd_logs.c - taper logs: what TAPER_LOGS understands. */
#include "cli/cli.h"
#include "events/events.h"
#include <stdio.h>

static int run_logs(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *name = NULL;
    strbuf b = { 0 };
    bool all = false, json = false;
    int rc = 0;

    while (a.at < argc && !rc) {
        if (cli_flag(&a, "all"))
            all = true;
        else if (cli_flag(&a, "json"))
            json = true;
        else if (argv[a.at][0] == '-' || name)
            rc = cli_unknown(&a);
        else
            name = argv[a.at++];
    }
    if (rc)
        return rc;
    if (name && json)
        return cli_usage("--json lists all log options: leave out '%s'", name);
    if (name && !ev_describe(&b, name))
        rc = cli_usage("there is no log option '%s'; taper logs --all lists them", name);
    if (json)
        ev_list_json(&b, all);
    else if (!name) {
        ev_list(&b, all);
        strbuf_add(&b, "\nExample: TAPER_LOGS=\"+dynamo,graph_breaks\" python program.py\n"
                       "taper logs NAME shows what one option prints; TAPER_LOGS_OUT=FILE also writes the "
                       "lines to a file.\n");
    }
    fputs(strbuf_str(&b), stdout);
    strbuf_free(&b);
    return rc;
}

const cli_cmd cmd_logs = { "logs",
                           "[NAME] [--all] [--json]",
                           "Lists what TAPER_LOGS can show, one line each",
                           "  NAME   say more about one, with an example of what it prints\n"
                           "  --all  also the rare ones\n"
                           "  --json for programs\n",
                           run_logs,
                           NULL };
