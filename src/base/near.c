#include "base/near.h"
#include <ctype.h>
#include <stdio.h>

enum { LONGEST = 63 };

static int least(int a, int b, int c) { return MIN(a, MIN(b, c)); }

/* Letters to insert, drop, change or swap with their neighbour; case and - for _ are free. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1], n = (int)strlen(b);
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= n; j++)
        above[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            x = x == '-' ? '_' : x;
            y = y == '-' ? '_' : y;
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = MIN(row[j], before[j - 2] + 1);
        }
        int *t = before;
        before = above;
        above = row;
        row = t;
    }
    return above[n];
}

void near_try(near_word *n, const char *name)
{
    if (!n->want || !*n->want || strlen(n->want) > LONGEST || strlen(name) > LONGEST)
        return;
    int d = distance(n->want, name);
    if (*n->best && d >= n->distance)
        return;
    snprintf(n->best, sizeof n->best, "%s", name);
    n->distance = d;
}

const char *near_best(const near_word *n)
{
    if (!n->want || !*n->best)
        return NULL;
    size_t k = strlen(n->want);
    if (n->distance <= (int)(k < 4 ? 1 : k < 8 ? 2 : 3) && n->distance < (int)strlen(n->best))
        return n->best;
    return NULL;
}

const char *near_hint(near_word *n)
{
    const char *best = near_best(n);
    snprintf(n->text, sizeof n->text, best ? "; did you mean '%s'?" : "", best);
    return n->text;
}
