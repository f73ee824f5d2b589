"""Muon for matrices, AdamW for the rest."""
import math

import torch


def newton_schulz(G, steps=5):
    """approximate orthogonalisation of a batch [n,r,c], r <= c"""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G / (G.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.transpose(-2, -1)
        X = a * X + (b * A + c * (A @ A)) @ X
    return X


class Muon:
    """Orthogonalised momentum, batched by shape. The RMS of an update is 0.2*lr, as AdamW's usually is."""

    def __init__(self, items, beta=0.95, decay=0.1):
        # items: (parameter, view) with view(tensor) -> [n,r,c]
        self.items, self.beta, self.decay = items, beta, decay
        self.buf = [torch.zeros_like(p) for p, _ in items]

    @torch.no_grad()
    def step(self, lr):
        live = [(p, view, m) for (p, view), m in zip(self.items, self.buf) if p.grad is not None]
        if not live:
            return
        bufs, grads = [m for _, _, m in live], [p.grad for p, _, _ in live]
        torch._foreach_mul_(bufs, self.beta)
        torch._foreach_add_(bufs, grads)
        torch._foreach_add_(grads, bufs, alpha=self.beta)     # Nesterov; the gradients are done with
        shapes = {}
        for p, view, _ in live:
            u = view(p.grad)
            flip = u.shape[1] > u.shape[2]
            if flip:
                u = u.transpose(1, 2)
            shapes.setdefault(tuple(u.shape[1:]), []).append((p, view, u, flip))
        for (r, c), items in shapes.items():
            G = torch.cat([u for _, _, u, _ in items])
            if G.is_cuda:
                G = G.to(torch.bfloat16)
            updates = newton_schulz(G).float().split([u.shape[0] for _, _, u, _ in items])
            for (p, view, _, flip), o in zip(items, updates):
                p.mul_(1 - lr * self.decay)
                view(p).add_(o.transpose(1, 2) if flip else o, alpha=-0.2 * math.sqrt(max(r, c)) * lr)

    def state(self):
        return self.buf

    def load(self, bufs):
        for a, b in zip(self.buf, bufs):
            a.copy_(b)


def split_params(model, which):
    """-> Muon's items, AdamW's groups. which: 'backbone' or 'dspark'"""
    cfg = model.cfg
    muon, adam, tables = [], [], []

    def matrix(p, n=1):
        muon.append((p, lambda t, n=n: t.reshape(n, -1, t.shape[-1])))

    def block(L):
        parts = {"wq_a": 1, "wq_b": 1, "wkv": 1, "wo_b": 1, "c_wkv": 1, "c_wgate": 1, "i_wk": 1, "i_wq": 1,
                 "s2": 1, "wo_a": cfg.o_groups, "s13": 2, "w13": 2 * L.E, "w2": L.E, "e_wkv": cfg.hc_mult + 1}
        for name, n in parts.items():
            if hasattr(L, name):
                matrix(getattr(L, name), n)
        for name, p in L.named_parameters():
            if name not in parts:
                (tables if name == "e_table" else adam).append(p)

    if which == "backbone":
        for L in model.layers:
            block(L)
        adam += [model.embed, model.norm, model.head]
    else:
        for L in model.mtp:
            block(L)
        matrix(model.main_proj)
        adam += [model.main_norm, model.mtp_norm, model.mk_embed, model.mk_head, model.conf]
    groups = [{"params": adam, "mult": 1.0}]
    if tables:
        groups.append({"params": tables, "mult": 3.0})     # a table row sees few gradients
    return muon, groups


class Optim:
    def __init__(self, model, which, lr, decay=0.1):
        muon, groups = split_params(model, which)
        self.lr = lr
        self.muon = Muon(muon, decay=decay)
        fused = {"fused": True} if next(model.parameters()).is_cuda else {}
        self.adam = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, **fused)
        self.params = [p for g in groups for p in g["params"]] + [p for p, _ in muon]

    def step(self, scale):
        """one update at lr * scale; clears the gradients and returns their norm before clipping to 1"""
        lr = self.lr * scale
        norm = torch.nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], 1.0)
        for g in self.adam.param_groups:
            g["lr"] = lr * g["mult"]
        self.adam.step()
        self.muon.step(lr)
        for p in self.params:
            p.grad = None
        return norm

    def state(self):
        return {"adam": self.adam.state_dict(), "muon": self.muon.state()}

    def load(self, s):
        self.adam.load_state_dict(s["adam"])
        self.muon.load(s["muon"])
