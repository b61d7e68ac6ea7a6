import taper


def noisy(x):
    print("between two graphs")
    return x * 2


@taper.compile
def step(x):
    return noisy(x.sin()).cos().sum()


for n in (4, 5):
    step(taper.ones(n))
w = taper.ones(3, requires_grad=True)
taper.compile(lambda w: (w * w).sum())(w).backward()


@taper.compile(fullgraph=True)
def whole(x):
    print("never in one graph")
    return x + 1


def caller():
    whole(taper.ones(2))


try:
    caller()
except Exception as e:
    print(type(e).__name__)
