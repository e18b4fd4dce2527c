
import torch, torch.autograd.forward_ad as fwAD
def go(k,a):
    q,kk,v=a(2,5,7)
    with fwAD.dual_level():
        return k(fwAD.make_dual(q,torch.randn_like(q)),kk,v)
def fake(k,a):
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as m:
        return k(*[m.from_tensor(t) if 0 else torch.empty(t.shape) for t in a(2,5,7)])
