"""Indexing and index assignment, compared with PyTorch."""
from both import compare


def env(T):
    def S(x, i, v):
        x = x.clone()
        x[i] = v
        return x

    return dict(S=S, a=T.tensor([0., 0., 0.]), c=T.tensor([0, 1, 2]), b=T.tensor([[0, 1, 2], [3, 4, 5]]),
                x=T.tensor([[[i * 15 + j * 5 + k for k in range(5)] for j in range(3)] for i in range(2)]),
                m=T.tensor([[True, False, True], [True, True, False]]), m1=T.tensor([True, False]),
                i1=T.tensor([0, 1]), i2=T.tensor([[0, 1], [1, 0]]))


def test_indexing():
    compare(r"""
S(a,0,[1])
S(a,slice(0,2),T.ones(3))
S(a,slice(0,2),T.ones(1,1,2))
S(a,slice(0,2),T.ones(2,1,2))
S(a,T.tensor([0,1]),T.ones(3))
S(a,T.tensor([0,1]),T.ones(1,1,2))
S(a,T.tensor([0,1]),T.tensor([1,2]))
S(a,T.tensor([0,1]),5)
S(a,T.tensor([True,False,True]),5)
S(a,T.tensor([True,False,True]),T.tensor(5))
S(a,T.tensor([True,False,True]),T.tensor([5.,6.]))
S(a,T.tensor([True,False,True]),T.tensor([5.,6.,7.]))
S(a,0,"a")
S(a,0,None)
S(b,0,1.7)
S(b,0,float('nan'))
S(b,(0,1),2**70)
S(b.bool(),0,5)
S(a,True,5)
S(a,False,5)
S(a,None,5)
S(a,Ellipsis,T.ones(3))
S(a,0,T.tensor([7.]))
S(a,0,T.tensor([7.,8.]))
S(a,(),T.tensor([7.,8.,9.]))
S(b,(slice(None),1),T.tensor([7,8]))
S(b,([0,1],[1,2]),T.tensor([7,8]))
S(b,(slice(None),[0,2]),T.tensor([7,8]))
S(b,m,T.tensor([7,8,9,10]))
S(b,m,-1)
S(x,(0,slice(None,None,2),[1,2]),-1)
S(x,(m,slice(0,2)),-1)
a[()]
b[0,...,None]
b[...,None,0]
b[T.tensor([[0,1]]),None].shape
b[:,[0,1],None].shape
b[[0],:,None,[1]].shape
b[:,True].shape
b[True,[0,1]].shape
b[T.zeros(2,3).bool()].shape
b[:,T.zeros(3).bool()].shape
b[T.zeros(2,4).bool()].shape
b[[[True,False,True],[False,False,True]]]
b[[]]
b[0,[]]
T.tensor(1)[0]
T.tensor(1)[...]
T.tensor(1)[None]
T.tensor(1)[:]
T.tensor(1)[True]
T.tensor(1)[T.tensor(True)]
c[5]
c[-4]
c[-1]
c[0,0]
c[1.5]
c["a"]
c[::-1]
c[::0]
c[::2]
c[...,...]
c[True]
c[False]
c[m1]
c[T.tensor([1.5])]
c[T.tensor([5])]
c[T.tensor([-4])]
c[[0,1]]
c[[True,False,True]]
b[[0,1],[1,2]]
b[[[0,1],[1,2]]]
b[([0,1],[1,2])]
b[[slice(0,1),2]]
b[[None,0]].shape
b[T.tensor(1)]
b[T.tensor(True)]
b[T.tensor(1,dtype=T.uint8)]
b[T.tensor([1,0],dtype=T.uint8)]
b[T.tensor([1,0],dtype=T.int32)]
b[range(2)]
b[[0,1],[0,1,2]]
b[{1}]
b[1.0:2]
b[T.tensor(1):]
b[2**70]
b[:2**70]
b[-100:100]
b[1:0]
x[m,0:2]
x[m,1]
x[m,:,None].shape
x[m,...,T.tensor([0,1,2,3])]
x[m,None].shape
x[:,i1]
x[i1,:,i1]
x[i1,:,i1].stride()
x[i2]
x[0,i1,1:3]
x[:,i2,0]
x[:,:,i2]
x[...,i1]
x[...,0]
x[0,...,0]
x[0][1][2]
x[:,1:,::2]
x[None,:,None,0]
x[i1,i1,i1]
x[:,0,i1]
x[0,:,i1]
x[i1,1]
x[:,-1]
[q.tolist() for q in b]
[q for q in T.tensor([1,2])]
1 in c
7 in c
"a" in c
T.tensor(2) in c
x.T.shape
b.to("meta")
b.to("meta").to("cpu")
T.zeros(2,device="meta")+1
T.zeros(2,3,device="meta")[0]
T.zeros(2,3,device="meta")[:,[0,1]]
T.zeros_like(b,device="meta")
""", env)
