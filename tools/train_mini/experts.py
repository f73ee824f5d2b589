"""Mixture of experts: router, dispatch in expert order without atomics, SwiGLU.

The k choices of N tokens are N*k slots. `order` lists the slots expert by expert, `dest` is its inverse.
"""
import torch
import torch.nn.functional as F

from number_formats import act8
from switches import Backend


class Dispatch(torch.autograd.Function):
    """[N,d] -> [N*k,d] in expert order; backward sums the k copies of a token"""

    @staticmethod
    def forward(ctx, x, order, dest, k):
        ctx.save_for_backward(dest)
        ctx.k = k
        return x.index_select(0, torch.div(order, k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx, g):
        (dest,) = ctx.saved_tensors
        dx = g.index_select(0, dest).reshape(-1, ctx.k, g.shape[-1]).float().sum(1).to(g.dtype)
        return dx, None, None, None


class Combine(torch.autograd.Function):
    """[N*k,d] in expert order -> [N,d], the sum over k"""

    @staticmethod
    def forward(ctx, y, order, dest, k):
        ctx.save_for_backward(order)
        ctx.k = k
        return y.index_select(0, dest).reshape(-1, k, y.shape[-1]).float().sum(1).to(y.dtype)

    @staticmethod
    def backward(ctx, g):
        (order,) = ctx.saved_tensors
        return g.index_select(0, torch.div(order, ctx.k, rounding_mode="floor")), None, None, None


class Place(torch.autograd.Function):
    """routing weights [N*k,1] -> expert order"""

    @staticmethod
    def forward(ctx, x, order, dest):
        ctx.save_for_backward(dest)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, g):
        (dest,) = ctx.saved_tensors
        return g.index_select(0, dest), None, None


def route(v, gate, bias, k, scale):
    """-> weights [N,k], experts [N,k]; the bias takes part in the choice only"""
    s = F.softplus(v.float() @ gate.float().t()).sqrt()
    chosen = (s.detach() + bias).topk(k, -1)[1]
    w = s.gather(1, chosen)
    if k > 1:
        w = w / (w.sum(-1, keepdim=True) + 1e-20)
    return w * scale, chosen


@torch.no_grad()
def expert_order(chosen, n_experts):
    """-> order, dest, ends of the experts' row ranges, rows of each expert"""
    flat = chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)
    if flat.is_cuda:
        counts = torch.zeros(n_experts, device=flat.device, dtype=torch.long)
        counts = counts.scatter_add_(0, flat, torch.ones_like(flat))
    else:
        counts = torch.bincount(flat, minlength=n_experts)
    dest = torch.empty_like(order)
    dest[order] = torch.arange(order.numel(), device=order.device)
    return order, dest, counts.cumsum(0).to(torch.int32), counts


def grouped(x, w, ends):
    """x [M,K] sorted by expert, w [E,N,K] -> [M,N]"""
    if Backend.experts == "grouped" and x.is_cuda and x.dtype == torch.bfloat16:
        grouped_mm = getattr(torch, "_grouped_mm", None) or F.grouped_mm
        return grouped_mm(x, w.transpose(-2, -1), offs=ends)
    out, begin = [], 0
    for expert, end in enumerate(ends.tolist()):
        if end > begin:
            out.append(x[begin:end] @ w[expert].t())
        begin = end
    return torch.cat(out, 0)


def swiglu(h, limit):
    """[.., 2n] -> [.., n] float32; the clamp is one-sided for the gate"""
    g, u = h.float().chunk(2, -1)
    if limit > 0:
        u = u.clamp(-limit, limit)
        g = g.clamp(max=limit)
    return F.silu(g) * u


def shared_expert(v, w13, w2, limit):
    return F.linear(act8(swiglu(F.linear(v, w13), limit).to(v.dtype)), w2)
