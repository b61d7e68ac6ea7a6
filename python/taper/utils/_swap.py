"""Two tensors change places."""


def swap_tensors(t1, t2):
    """Everybody who holds t1 sees t2's value and the other way round: contents, gradient and attributes."""
    if type(t1) is not type(t2):
        raise RuntimeError("swap_tensors: the tensors are of different classes")
    a, b = t1.data, t2.data
    ga, gb, ra, rb = t1.grad, t2.grad, t1.requires_grad, t2.requires_grad
    t1.data, t2.data = b, a
    t1.requires_grad, t2.requires_grad = rb, ra
    t1.grad, t2.grad = gb, ga
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
