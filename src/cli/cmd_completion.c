/* cmd_completion.c - `taper completion SHELL`: a script that completes commands and options in bash, zsh or fish.
 * It is made of the same rows as --help, so it knows what the program knows. */
#include "cli/cli.h"
#include <ctype.h>

/* The options that a text of --help names, each once: "--json --output". */
static void options_in(strbuf *out, const char *text)
{
    for (const char *p = text; p && (p = strstr(p, "--"));) {
        size_t n = 2;
        while (islower((unsigned char)p[n]) || isdigit((unsigned char)p[n]) || p[n] == '-')
            n++;
        char word[64];
        snprintf(word, sizeof word, " %.*s ", (int)MIN(n, (size_t)60), p);
        bool starts = p == text || !(isalnum((unsigned char)p[-1]) || p[-1] == '-');
        if (n > 2 && starts && !(out->n && strstr(strbuf_str(out), word)))
            strbuf_addf(out, out->n ? "%s" : " %s", word + 1);
        p += n;
    }
}

static void words_of(strbuf *out, const cli_cmd *c)
{
    for (const cli_cmd *s = c->subs; s && s->name; s++)
        strbuf_addf(out, out->n ? "%s " : " %s ", s->name);
    options_in(out, c->args);
    options_in(out, c->details);
    for (const cli_cmd *s = c->subs; s && s->name; s++) {
        options_in(out, s->args);
        options_in(out, s->details);
    }
    options_in(out, "--help");
}

static void quoted(const char *s) /* inside single quotes of a shell */
{
    for (; *s; s++)
        if (*s == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*s);
}

static void bash(void)
{
    printf("_taper() {\n    local cur=${COMP_WORDS[COMP_CWORD]} words\n    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; cli_commands[i]; i++) {
        strbuf w = { 0 };
        words_of(&w, cli_commands[i]);
        printf("    %s) words='%s' ;;\n", cli_commands[i]->name, strbuf_str(&w));
        strbuf_free(&w);
    }
    printf("    esac\n    [ \"$COMP_CWORD\" -gt 1 ] || words='");
    for (int i = 0; cli_commands[i]; i++)
        printf("%s ", cli_commands[i]->name);
    printf("--help --version'\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
           "complete -o default -F _taper taper\n");
}

static void zsh(void)
{
    printf("#compdef taper\n_taper() {\n    if (( CURRENT == 2 )); then\n        local -a commands=(");
    for (int i = 0; cli_commands[i]; i++) {
        printf("'%s:", cli_commands[i]->name);
        quoted(cli_commands[i]->summary);
        printf("' ");
    }
    printf(")\n        _describe command commands\n        return\n    fi\n    case ${words[2]} in\n");
    for (int i = 0; cli_commands[i]; i++) {
        strbuf w = { 0 };
        words_of(&w, cli_commands[i]);
        printf("    %s) compadd --%s ;;\n", cli_commands[i]->name, strbuf_str(&w));
        strbuf_free(&w);
    }
    printf("    esac\n    _files\n}\ncompdef _taper taper\n");
}

static void fish(void)
{
    for (int i = 0; cli_commands[i]; i++) {
        printf("complete -c taper -n __fish_use_subcommand -a %s -d '", cli_commands[i]->name);
        quoted(cli_commands[i]->summary);
        printf("'\n");
        strbuf w = { 0 };
        words_of(&w, cli_commands[i]);
        printf("complete -c taper -n '__fish_seen_subcommand_from %s' -a '%s'\n", cli_commands[i]->name,
               strbuf_str(&w));
        strbuf_free(&w);
    }
}

static int run(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };
    if (argc != 2)
        return cli_usage("completion needs the name of a shell: bash, zsh or fish");
    near_word near = { argv[1] };
    for (size_t i = 0; i < COUNT(shells); i++) {
        near_try(&near, shells[i].name);
        if (!strcmp(shells[i].name, argv[1])) {
            shells[i].print();
            return 0;
        }
    }
    return cli_usage("there is no completion for '%s': bash, zsh or fish%s", argv[1], near_hint(&near));
}

const cli_cmd cmd_completion = {
    "completion",
    "bash|zsh|fish",
    "Prints a script that completes commands and options in a shell",
    "  bash: eval \"$(taper completion bash)\"       in ~/.bashrc\n"
    "  zsh:  eval \"$(taper completion zsh)\"        in ~/.zshrc, after compinit\n"
    "  fish: taper completion fish | source         in ~/.config/fish/config.fish\n",
    run,
    NULL,
};
