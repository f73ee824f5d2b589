"""Attention over the sliding window and the selected compressed rows; scores and loss of the indexer."""
import torch
import torch.nn.functional as F

from layers import rms, rope
from number_formats import act8, ste
from switches import Backend, Quant


def attn_qkv(u, wq_a, q_norm, wq_b, wkv, kv_norm, cos, sin, H, eps):
    """u [B,T,d] -> qr [B,T,r], q [B,H,T,D], kv [B,T,D]"""
    B, T, _ = u.shape
    a = act8(u)
    qr = rms(F.linear(a, wq_a), q_norm, eps)
    q = F.linear(act8(qr), wq_b).reshape(B, T, H, -1)
    q = rope(q, cos[:T, None], sin[:T, None]).transpose(1, 2)
    kv = rope(rms(F.linear(a, wkv), kv_norm, eps), cos[:T], sin[:T])
    if Quant.kv:
        kv = ste(kv, "fp8row")
    return qr, q, kv


def attn_finish(o, lse, sink, cos, sin, wo_a, wo_b, G):
    """o [B,H,T,D] normalised without the sink, lse [B,H,T] or None (sink already inside)"""
    B, H, T, D = o.shape
    if lse is not None:
        o = (o.float() * torch.sigmoid(lse - sink[None, :, None]).unsqueeze(-1)).to(o.dtype)
    o = rope(o.transpose(1, 2), cos[:T, None], sin[:T, None], inverse=True)
    o = o.reshape(B * T, G, -1).transpose(0, 1)                     # [G, BT, H/G*D]
    t = torch.bmm(o, wo_a.reshape(G, -1, o.shape[-1]).transpose(1, 2))
    t = t.transpose(0, 1).reshape(B, T, -1)
    return F.linear(act8(t), wo_b)


def dense_attention(q, keys, sink, allow):
    """q [B,H,T,D], keys [B,S,D], allow [B or 1,T,S] bool -> o with the sink inside the softmax"""
    B, H, T, D = q.shape
    outs = []
    step = B if (q.is_cuda is False) else max(1, Backend.dense_chunk)
    for b in range(0, B, step):
        k = keys[b:b + step]
        s = torch.einsum("bhtd,bsd->bhts", q[b:b + step].float(), k.float()) * D ** -0.5
        al = allow if allow.shape[0] == 1 else allow[b:b + step]
        s = s.masked_fill(~al[:, None], float("-inf"))
        s = torch.cat([s, sink.float().view(1, H, 1, 1).expand(s.shape[0], H, T, 1)], -1)
        p = torch.softmax(s, -1)[..., :-1]
        outs.append(torch.einsum("bhts,bsd->bhtd", p.to(q.dtype), k))
    return torch.cat(outs, 0)


_FLEX = {}


def _flex_functions():
    if "functions" not in _FLEX:
        from torch.nn.attention.flex_attention import flex_attention

        def call(q, k, block_mask, score_mod, scale):
            try:
                return flex_attention(q, k, k, score_mod=score_mod, block_mask=block_mask, scale=scale,
                                      enable_gqa=True, return_lse=True)
            except TypeError:             # newer versions of torch return the log-sum-exp differently
                from torch.nn.attention.flex_attention import AuxRequest
                o, aux = flex_attention(q, k, k, score_mod=score_mod, block_mask=block_mask, scale=scale,
                                        enable_gqa=True, return_aux=AuxRequest(lse=True))
                return o, aux.lse

        def all_rows(q, keys, block_mask, scale):
            return call(q, keys.unsqueeze(1), block_mask, None, scale)

        def picked_rows(q, keys, block_mask, sel, T, scale):
            return call(q, keys.unsqueeze(1), block_mask, pick_mod(sel, T), scale)

        _FLEX["functions"] = tuple(torch.compile(f, dynamic=False) for f in (all_rows, picked_rows))
    return _FLEX["functions"]


def pick_mod(sel, T):
    """score modification: compressed rows that were not selected drop out"""
    def mod(score, b, h, qi, ki):
        j = torch.where(ki < T, 0, ki - T)
        return torch.where((ki < T) | (sel[b, qi, j] > 0), score, -float("inf"))
    return mod


def mask_mod(T, ratio, window):
    """static visibility: sliding window over keys 0..T-1, finished compressed rows behind them"""
    def mod(b, h, qi, ki):
        win = (ki <= qi) & (ki > qi - window)
        if ratio == 0:
            return win
        done = (qi + 1) // 2 if ratio == 2 else qi + 1
        return ((ki < T) & win) | ((ki >= T) & ((ki - T) < done))
    assert ratio in (0, 1, 2)
    return mod


def _flex_mask(T, R, ratio, window, dev):
    key = (T, R, ratio, window, str(dev))
    if key not in _FLEX:
        from torch.nn.attention.flex_attention import create_block_mask
        _FLEX[key] = create_block_mask(mask_mod(T, ratio, window), None, None, T, T + R, device=dev)
    return _FLEX[key]


def flex_attend(q, keys, sel, ratio, window):
    """-> o (without sink), lse [B,H,T]"""
    T, R = q.shape[2], keys.shape[1] - q.shape[2]
    all_rows, picked_rows = _flex_functions()
    block_mask = _flex_mask(T, R, ratio, window, q.device)
    scale = q.shape[-1] ** -0.5
    if sel is None:
        return all_rows(q, keys, block_mask, scale)
    return picked_rows(q, keys, block_mask, sel, T, scale)


def topk_rows(s, k):
    """indices of the k largest; on the CPU exact ties go to the lower index (torch.topk leaves ties open)"""
    if s.is_cuda:
        return s.topk(k, -1, sorted=False)[1]
    return torch.sort(s, dim=-1, descending=True, stable=True)[1][..., :k]


def base_mask(T, R, ratio, window, dev):
    """[T, T+R] bool: window part and visible compressed rows"""
    qi = torch.arange(T, device=dev)[:, None]
    ki = torch.arange(T, device=dev)[None]
    m = (ki <= qi) & (ki > qi - window)
    if ratio:
        rows = torch.arange(R, device=dev)[None]
        m = torch.cat([m, rows < torch.div(qi + 1, ratio, rounding_mode="floor")], 1)
    return m


def index_scores(iq, ik, hw):
    """iq [B,T,h,d], ik [B,R,d], hw [B,T,h] -> [B,T,R] float32"""
    B, T, h, d = iq.shape
    s = torch.bmm(iq.reshape(B, T * h, d), ik.transpose(1, 2)).reshape(B, T, h, -1)
    return (F.relu(s).float() * hw.float().unsqueeze(-1)).sum(2)


def index_kl(q, keys, sink, ok, score):
    """KL(attention mass on the compressed rows || softmax of the index scores) at sampled queries.

    q [B,H,n,D], keys [B,S,D], ok [n,S] visibility, score [B,n,R]. The target sums the heads' true attention
    probabilities (window, all visible rows and sink in the denominator) and carries no gradient.
    """
    R = score.shape[-1]
    with torch.no_grad():
        B, H, n, D = q.shape
        a = torch.bmm(q.reshape(B, H * n, D), keys.transpose(1, 2)).reshape(B, H, n, -1).float() * D ** -0.5
        a = a.masked_fill(~ok, float("-inf"))
        den = torch.logaddexp(torch.logsumexp(a, -1), sink[None, :, None])
        p = torch.exp(a[..., -R:] - den.unsqueeze(-1)).sum(1)
        mass = p.sum(-1)
        p = p / mass.clamp_min(1e-20).unsqueeze(-1)
        vis = ok[:, -R:]
        w = vis.any(-1).float() * (mass > 1e-10).float()
        ent = -(p * torch.log(p.clamp_min(1e-30))).sum(-1)
    logp = torch.log_softmax(score.masked_fill(~vis, -1e30), -1)
    ce = -(p * logp.masked_fill(~vis, 0.0)).sum(-1)
    return ((ce - ent) * w).sum() / w.sum().clamp_min(1.0)
