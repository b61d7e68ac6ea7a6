import torch

N_ITERS = 5

# training
model = torch.nn.Linear(3, 2)
opt = torch.optim.Adam(model.parameters())

@torch.compile
def train(mod, data):
    opt.zero_grad(True)
    pred = mod(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    opt.step()

before = model.weight.detach().clone()
for _ in range(N_ITERS):
    inp = (torch.ones(4, 3), torch.tensor([0, 1, 0, 1]))
    train(model, inp)

print(torch.equal(before, model.weight), dict(torch._dynamo.utils.counters["graph_break"]))

# RUN: cd %dir && %python -m taper apply_training.py
# CHECK: False {}
