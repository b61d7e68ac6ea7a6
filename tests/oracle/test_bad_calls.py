"""Wrong calls: the same exception class as PyTorch, and a message that says the same.

Where PyTorch lists signatures, ours may come in another order or carry fewer optional parameters, and where only
one signature has a fitting number of arguments we explain that one; so for those the class and the function's name
are compared. Everything else is compared word for word.
"""
import re
from both import compare

LISTS = "received an invalid combination of arguments"
# Equally helpful in other words.
OTHER_WORDS = {"zeros: Dimension size must be non-negative.", "shape '[-1, 0]' is invalid for input of size 6"}


def same(want, got):
    if want == got or any(w in want for w in OTHER_WORDS) and want.split(":")[0] == got.split(":")[0]:
        return True
    short = lambda s: re.sub(r"device string: .*", "", re.sub(r"Expected one of .* device type", "Expected", s.replace("torch.Tensor", "Tensor")))
    if short(want) == short(got):
        return True
    if LISTS in want or "Got:" in want or "sizes=[" in want or "meshgrid" in want:
        head = lambda s: re.split(r"\W", s.split(": ", 1)[1])[0]
        return want.split(":")[0] == got.split(":")[0] and head(want) == head(got)
    return False


def test_wrong_calls():
    compare(r"""
T.add(x)
T.cdist(T.ones(2), T.ones(2))
T.cdist(T.ones(2, 2), T.ones(2))
T.cdist(T.ones(2, 2), T.ones(2, 3))
T.add(x,"a")
T.add(x,None)
T.add("a",x)
T.add()
T.add(x,x,x)
T.add(x,x,alpha="a")
T.add(x,x,beta=2)
T.add(x,other=x,alpha=2)
T.sin()
T.sin(3)
T.sin(x,x)
T.sin(x,q=1)
T.sin([1,2])
T.sum(x,"a")
T.sum(x,dim="a")
T.sum(x,dim=5)
T.sum(x,dim=(0,0))
x.sum("a")
x.sum(dim=1.5)
x.view()
x.view("a")
x.view(4)
x.view(-1,-1)
x.view(2,-3)
x.reshape(5)
x.reshape(-1,0)
x.permute(0)
x.permute(0,0)
x.permute(0,5)
x.transpose(0)
x.transpose(0,5)
x.expand(4,3)
x.expand(3)
T.cat([x,i])
T.cat([])
T.cat(x)
T.cat([x,1])
T.cat([x,T.ones(3,2)])
T.stack([x,T.ones(3)])
T.mm(x,x)
T.mm(x,i)
T.matmul(x,x)
x@x
x@i
x@1
T.zeros("a")
T.zeros(2,-1)
T.zeros(2.5)
T.zeros(2**62)
T.zeros(2**40,2**40)
T.zeros(2,dtype="float")
T.zeros(2,device="foo")
T.zeros(2,foo=1)
T.zeros()
T.ones([2,"a"])
T.full((2,),"a")
T.full((2,))
T.arange()
T.arange("a")
T.arange(1,0)
T.arange(0,5,0)
T.linspace(0,1,-1)
T.eye(-1)
x+T.ones(4)
x+[1,2,3]
x+"a"
x+None
[1,2]+x
x-T.tensor([True])
T.tensor([True])-T.tensor([True])
-T.tensor([True])
~x
x&x
x//0
i//0
i%0
x.add_(T.ones(5))
x.add_(T.ones(2,2,3))
i.add_(1.5)
i.div_(2)
x.item()
x.squeeze(5)
x.unsqueeze(5)
x.select(0,5)
x.narrow(0,1,5)
x.index_select(0,T.tensor([5]))
x.index_select(0,T.tensor([1.]))
x.gather(1,T.tensor([[0,5]]))
x.gather(1,i)
x.masked_fill(T.tensor([True]),"a")
x.max(5)
x.argmax(5)
T.max(T.tensor([]))
T.mean(i)
x.softmax(5)
x.clamp()
T.where(x,x,x)
T.where(x>0,x,"a")
x.split(0)
x.split([1,2,3],1)
x.chunk(0)
x.flatten(5)
x.repeat(2)
x.t().t().t()
T.ones(2,2,2).t()
x.unfold(0,5,1)
F.relu("a")
x.to(1,2,3)
x.bernoulli(2.0)
T.randint(5,2,(2,))
T.normal(0.0,-1.0,(2,))
T.multinomial(T.tensor([-1.0]),1)
x.foo
x.shape=3
x[0]="a"
del x[0]
hash(x)==hash(x)
bool(x)
int(T.tensor(float('nan')))
x.dtype.foo
i.requires_grad_()
T.dot(x,x)
T.outer(x,x)
T.bmm(x,x)
T.addmm(x,x,x)
x.diagonal(0,0,0)
x.tril("a")
x.cumsum()
x.cumsum(5)
x.flip(5)
x.roll(1,5)
T.meshgrid(x,x)
x.scatter(0,i,x)
x.new_zeros("a")
T.empty(2,3,memory_format=T.channels_last)
x.contiguous(memory_format=T.channels_last)
x.as_strided((5,5),(5,5))
x.as_strided((2,),(-1,))
x.copy_(T.ones(5))
x.fill_("a")
x.fill_(T.ones(2))
""", lambda T: dict(x=T.ones(2, 3), i=T.tensor([0, 1]), F=T.nn.functional), same)
