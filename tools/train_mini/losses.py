"""Cross entropy without a full matrix of logits, and the losses of DSpark."""
import torch
import torch.nn.functional as F


def ce_rows(lg, y):
    """sums over rows of the cross entropy and of the squared log-partition"""
    lg = lg.float()
    lse = torch.logsumexp(lg, -1)
    return (lse - lg.gather(-1, y[:, None]).squeeze(-1)).sum(), lse.square().sum()


def ce_rows_grad(lg, y, n, zc):
    """the same sums, and d(mean ce + zc * mean lse^2)/d logits"""
    f = lg.float()
    lse = torch.logsumexp(f, -1)
    g = torch.exp(f - lse[:, None]) * ((1.0 + 2.0 * zc * lse) / n)[:, None]
    hit = torch.arange(f.shape[-1], device=f.device)[None] == y[:, None]
    g = g - hit.to(f.dtype) / n
    picked = (f * hit.to(f.dtype)).sum(-1)
    return (lse - picked).sum(), lse.square().sum(), g.to(lg.dtype)


class FusedCE(torch.autograd.Function):
    """Head projection and cross entropy in chunks of rows. Gradients are formed in the forward pass, so that
    no more than one chunk of logits exists at a time."""

    @staticmethod
    def forward(ctx, z, head, y, zc, chunk):
        n = z.shape[0]
        w = head.to(z.dtype)
        ce = torch.zeros((), device=z.device)
        lse2 = torch.zeros((), device=z.device)
        dz = torch.empty_like(z)
        dw = torch.zeros(head.shape, device=z.device, dtype=torch.float32)
        for a in range(0, n, chunk):
            b = min(n, a + chunk)
            c, q, g = ce_rows_grad(z[a:b] @ w.t(), y[a:b], float(n), zc)
            ce += c
            lse2 += q
            dz[a:b] = g @ w
            dw += (g.t() @ z[a:b]).float()
        ctx.save_for_backward(dz, dw)
        return ce / n, lse2 / n

    @staticmethod
    def backward(ctx, g, _):
        dz, dw = ctx.saved_tensors
        return dz * g.to(dz.dtype), dw * g, None, None, None


def ce_loss(model, z, y, zc=0.0, chunk=16384):
    """mean cross entropy, mean squared log-partition; the gradient of the first includes zc * the second"""
    z, y = z.reshape(-1, z.shape[-1]), y.reshape(-1)
    if torch.is_grad_enabled() and (z.requires_grad or model.head.requires_grad):
        return FusedCE.apply(z, model.head, y, zc, chunk)
    ce, lse2 = 0.0, 0.0
    w = model.head.to(z.dtype)
    for a in range(0, z.shape[0], chunk):
        c, q = ce_rows(z[a:a + chunk] @ w.t(), y[a:a + chunk])
        ce, lse2 = ce + c, lse2 + q
    return ce / z.shape[0], lse2 / z.shape[0]


def dspark_losses(lg, teacher, y, conf, wk):
    """lg, teacher [..,block,V]; y, conf [..,block]; wk [block] position weights

    -> cross entropy, total variation, confidence loss, acceptance of every position
    """
    lp = torch.log_softmax(lg, -1)
    ce = -lp.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    tv = 0.5 * (lp.exp() - torch.softmax(teacher, -1)).abs().sum(-1)
    acc = (1 - tv).detach()
    bce = F.binary_cross_entropy_with_logits(conf, acc, reduction="none")
    ce, tv, bce = ((t * wk).mean() / wk.mean() for t in (ce, tv, bce))
    return ce, tv, bce, acc
