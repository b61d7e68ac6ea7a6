/* torch.c - commands whose subject is a backend of PyTorch's are Python's, beside PyTorch: python3 -m taper.torch COMMAND. */
#include "cli/cli.h"
#include "base/file.h"
#include <unistd.h>

bool cli_torch_saved(const char *dir)
{
    size_t n;
    char *path = path_join(dir, "failure.json"), *text = file_read(path, 1 << 20, &n, NULL);
    const char *key = text ? strstr(text, "\"subject\"") : NULL;
    bool is = key && !strncmp(key + strspn(key + 9, " :") + 9, "\"torch\"", 7);
    free(path);
    free(text);
    return is;
}

/* Exit code 1 is an answer; a Python without PyTorch gives 2. */
static const char start[] = "import sys\n"
                            "try:\n"
                            "    from taper.torch.__main__ import main\n"
                            "except ImportError as e:\n"
                            "    print(f'taper: {sys.executable}: {e}', file=sys.stderr)\n"
                            "    sys.exit(2)\n"
                            "sys.exit(main())\n";

int cli_torch(const char *command, int argc, char **argv)
{
    const char **all = mem_alloc(((size_t)argc + 5) * sizeof *all);
    int n = 0;
    all[n++] = "python3";
    all[n++] = "-c";
    all[n++] = start;
    all[n++] = command;
    for (int i = 0; i < argc; i++)
        all[n++] = argv[i];
    all[n] = NULL;
    fflush(NULL);
    execvp("python3", (char *const *)all);
    free(all);
    return cli_usage("python3 cannot be started");
}
