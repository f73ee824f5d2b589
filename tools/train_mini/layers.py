"""Parts that every layer shares: RMS norm, rotary embedding, hyper-connections."""
import math

import torch
import torch.nn.functional as F


def rms(x, w, eps):
    h = x.float()
    h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return (h * w.float()).to(x.dtype)


def rope(x, cos, sin, inverse=False):
    """rotate the last n = 2*cos.shape[-1] features; cos and sin broadcast against x[..., :n/2].
    Adjacent elements form a pair."""
    n = 2 * cos.shape[-1]
    keep, r = x[..., :-n], x[..., -n:].float()
    r = r.reshape(*r.shape[:-1], n // 2, 2)
    a, b = r[..., 0], r[..., 1]
    if inverse:
        sin = -sin
    out = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([keep, out.to(x.dtype)], -1)


def rope_table(cfg, compressed, n):
    """cos and sin [n, rope_dim/2]; layers that read compressed rows use their own base and YaRN"""
    d = cfg.rope_dim
    base = cfg.compress_theta if compressed else cfg.rope_theta
    f = 1.0 / (base ** (torch.arange(0, d, 2, dtype=torch.float32) / d))
    if compressed and cfg.yarn_orig > 0:
        def cd(rot):
            return d * math.log(cfg.yarn_orig / (rot * 2 * math.pi)) / (2 * math.log(base))
        lo, hi = max(math.floor(cd(cfg.yarn_fast)), 0), min(math.ceil(cd(cfg.yarn_slow)), d - 1)
        ramp = ((torch.arange(d // 2, dtype=torch.float32) - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
        f = f / cfg.yarn_factor * ramp + f * (1 - ramp)
    a = torch.outer(torch.arange(n, dtype=torch.float32), f)
    return a.cos(), a.sin()


def lin(x, w):
    """product with a weight that is kept in float32"""
    return F.linear(x, w.to(x.dtype))


def _sink_step(c, eps):
    c = c / (c.sum(-1, keepdim=True) + eps)
    return c / (c.sum(-2, keepdim=True) + eps)


def sinkhorn(c0, iters, eps, tail=3):
    """c0: softmaxed logits + eps, [N,4,4]. The gradient runs through the last `tail` iterations only; the
    earlier ones are folded into constant row and column factors. tail >= iters gives the full gradient."""
    first = c0 / (c0.sum(-2, keepdim=True) + eps)
    n = iters - 1
    if n <= tail:
        c = first
        for _ in range(n):
            c = _sink_step(c, eps)
        return c
    with torch.no_grad():
        c = first.detach()
        for _ in range(n - tail):
            c = _sink_step(c, eps)
        ratio = c / c0.detach()
    c = c0 * ratio
    for _ in range(tail):
        c = _sink_step(c, eps)
    return c


def hc_in(X, pre, fn, base, scale, w, iters, heps, eps, tail):
    """X [N,S,d], pre [N,S] of the sub-layer before -> input u [N,d], and this sub-layer's pre, post, comb"""
    N, S, d = X.shape
    Xf = X.float()
    rs = torch.rsqrt(Xf.square().mean(dim=(1, 2)) + eps)
    if X.dtype == torch.float32:
        m = Xf.reshape(N, S * d) @ fn.float().t()
    else:
        m = (X.reshape(N, S * d) @ fn.to(X.dtype).t()).float()
    m = m * rs[:, None]
    p = torch.sigmoid(m[:, :S] * scale[0] + base[:S]) + heps
    post = 2 * torch.sigmoid(m[:, S:2 * S] * scale[1] + base[S:2 * S])
    c = (m[:, 2 * S:] * scale[2] + base[2 * S:]).reshape(N, S, S)
    c0 = torch.softmax(c, -1) + heps
    comb = sinkhorn(c0, iters, heps, tail)
    u = (pre.unsqueeze(-1) * Xf).sum(1).to(X.dtype)
    return rms(u, w, eps), p, post, comb


def hc_out(y, X, post, comb):
    """X_new[k] = post[k]*y + sum_j comb[j,k]*X[j]"""
    S = X.shape[1]
    yf, Xf = y.float(), X.float()
    out = []
    for k in range(S):
        o = post[:, k, None] * yf
        for j in range(S):
            o = o + comb[:, j, k, None] * Xf[:, j]
        out.append(o)
    return torch.stack(out, 1).to(X.dtype)


def hc_collapse(X, pre, w, eps):
    h = (pre.unsqueeze(-1) * X.float()).sum(1).to(X.dtype)
    return rms(h, w, eps), h


class Context:
    """what layers hand down within one forward"""

    def __init__(self):
        self.ckv = None         # compressed rows of the newest kv source
        self.ik = None          # its index keys
        self.sel = None         # selected rows of the newest index source
        self.cand = None        # candidate rows
        self.score_s = None     # scores of the sampled queries (with gradient), for the indexer loss
        self.loads, self.kl = [], []
