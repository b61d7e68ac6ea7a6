"""Where the generator's decisions come from: a recorded list first, then a seeded generator.

Every decision is one small number, so a program is the list of its decisions. A list that reached something new is kept;
changing a few of its numbers gives a neighbour of that program."""
import random


class Choices:
    def __init__(self, seed, given=()):
        self.rng, self.given, self.made = random.Random(seed), list(given), []

    def below(self, n):
        """A number from 0 to n - 1."""
        at = len(self.made)
        k = self.given[at] % n if at < len(self.given) else self.rng.randrange(n)
        self.made.append(k)
        return k

    def one(self, seq):
        return seq[self.below(len(seq))]

    def chance(self, percent):
        return self.below(100) < percent

    def weighted(self, table):
        """One of the first members of (thing, weight) pairs."""
        k = self.below(sum(w for _, w in table))
        for thing, w in table:
            if k < w:
                return thing
            k -= w


def mutate(rng, made, other=()):
    """A neighbour of a list of decisions: some numbers changed, a part dropped or doubled, or the end of another list."""
    out = list(made)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if not out:
            break
        at, how = rng.randrange(len(out)), rng.randrange(10)
        if how < 5:
            out[at] = rng.randrange(100)
        elif how < 6:
            del out[at:at + rng.randrange(1, 8)]
        elif how < 8:
            out[at:at] = out[at:at + rng.randrange(1, 8)]
        elif other and how < 9:
            out = out[:at] + list(other[rng.randrange(len(other)):])
        else:
            out = out[:at]
    return out
