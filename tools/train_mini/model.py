"""The model: parameters of a layer, and the vectorised training forward. Nothing here keeps a KV cache.

The equations are those of docs/model/; everything works on [batch, tokens] at once from position 0.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from attention import (attn_finish, attn_qkv, base_mask, dense_attention, flex_attend, index_kl, index_scores,
                       topk_rows)
from dspark import DSpark
from engram import EngramHash, engram_primes, engram_write
from experts import Combine, Dispatch, Place, expert_order, grouped, route, shared_expert, swiglu
from layers import Context, hc_collapse, hc_in, hc_out, lin, rms, rope, rope_table
from number_formats import act8, ste, storage
from switches import Backend, Quant

def P(*shape, std=None, fill=None):
    t = torch.empty(*shape)
    if fill is not None:
        t.fill_(fill)
    else:
        t.normal_(0, std if std is not None else shape[-1] ** -0.5)
    return nn.Parameter(t)


class Block(nn.Module):
    """parameters of one layer (backbone or DSpark stage)"""

    def __init__(self, cfg, layer, backbone=True, depth=8):
        super().__init__()
        d, D, H = cfg.dim, cfg.head_dim, cfg.n_heads
        self.layer, self.backbone = layer, backbone
        self.ratio = cfg.compress_ratios[layer] if backbone else 0
        self.kv_src = backbone and layer in cfg.kv_source
        self.ix_src = backbone and layer in cfg.index_source
        S = cfg.hc_mult
        out = (2 * depth) ** -0.5
        self.attn_norm, self.ffn_norm = P(d, fill=1.0), P(d, fill=1.0)
        for n in ("attn", "ffn"):
            self.register_parameter(f"hc_{n}_fn", P((2 + S) * S, S * d, std=0.1 * (S * d) ** -0.5))
            b = torch.zeros((2 + S) * S)
            b[:S] = -math.log(S - 1.0) if S > 1 else 0.0
            b[:S] += 0.5 * torch.randn(S)
            b[S:2 * S] = 0.3 * torch.randn(S)
            b[2 * S:] = (3.0 * torch.eye(S) + 0.3 * torch.randn(S, S)).reshape(-1)
            self.register_parameter(f"hc_{n}_base", nn.Parameter(b))
            self.register_parameter(f"hc_{n}_scale", P(3, fill=1.0))
        self.sink = P(H, fill=0.0)
        self.wq_a, self.q_norm = P(cfg.q_lora_rank, d), P(cfg.q_lora_rank, fill=1.0)
        self.wq_b = P(H * D, cfg.q_lora_rank)
        self.wkv, self.kv_norm = P(D, d), P(D, fill=1.0)
        self.wo_a = P(cfg.o_groups * cfg.o_lora_rank, H * D // cfg.o_groups)
        self.wo_b = P(d, cfg.o_groups * cfg.o_lora_rank, std=out * (cfg.o_groups * cfg.o_lora_rank) ** -0.5)
        if self.kv_src:
            self.c_wkv, self.c_norm = P(D, d), P(D, fill=1.0)
            if self.ratio > 1:
                self.c_wgate = P(D, d, std=0.3 * d ** -0.5)
            self.i_wk, self.i_knorm = P(cfg.index_dim, D), P(cfg.index_dim, fill=1.0)
        if self.ix_src:
            self.i_wq = P(cfg.index_heads * cfg.index_dim, cfg.q_lora_rank)
            self.i_wp = P(cfg.index_heads, d)
        E = cfg.n_experts if backbone else cfg.dspark_experts
        self.E, self.k = E, (cfg.n_active if backbone else cfg.dspark_active)
        f = cfg.inter
        self.gate = P(E, d)
        self.register_buffer("gate_bias", torch.zeros(E))
        self.w13 = P(E, 2 * f, d)
        self.w2 = P(E, d, f, std=out * f ** -0.5)
        self.s13 = P(2 * f, d)
        self.s2 = P(d, f, std=out * f ** -0.5)
        self.has_engram = backbone and layer in cfg.engram_layers
        if self.has_engram:
            rows = sum(engram_primes(cfg)[cfg.engram_layers.index(layer)])
            cols = (cfg.engram_ngram - 1) * cfg.engram_heads
            self.e_table = P(rows, cfg.engram_dim, std=0.5)
            w = torch.randn(d * (S + 1), cols * cfg.engram_dim) * (cols * cfg.engram_dim) ** -0.5
            w[S * d:] *= 0.05
            self.e_wkv = nn.Parameter(w)
            self.e_q, self.e_k = P(S, d, fill=1.0), P(S, d, fill=1.0)


class MiniV41(DSpark, nn.Module):
    def __init__(self, cfg, token_map=None, device="cpu", dtype=torch.float32):
        super().__init__()
        self.cfg, self.cdt = cfg, dtype
        d = cfg.dim
        self.embed = P(cfg.vocab_size, d, std=0.3)
        self.layers = nn.ModuleList([Block(cfg, i, True, cfg.n_layers) for i in range(cfg.n_layers)])
        self.norm = P(d, fill=1.0)
        self.head = P(cfg.vocab_size, d, std=0.02)
        self.mtp = nn.ModuleList([Block(cfg, cfg.n_layers + i, False, cfg.dspark_stages)
                                  for i in range(cfg.dspark_stages)])
        if cfg.dspark_stages:
            self.main_proj, self.main_norm = P(d, d * len(cfg.dspark_targets)), P(d, fill=1.0)
            self.mtp_norm = P(d, fill=1.0)
            self.mk_embed = P(cfg.vocab_size, cfg.dspark_rank, std=0.1)
            self.mk_head = P(cfg.vocab_size, cfg.dspark_rank, std=0.02)
            self.conf = P(1, d + cfg.dspark_rank, std=0.02)
        self.sink_tail = 3
        self.drop = self.drop_rows = 0.0    # dropout on sub-layer outputs, on whole Engram rows
        self.to(device)
        self.hash = EngramHash(cfg, token_map, device) if cfg.engram_layers else None
        self._tab = {}

    def tables(self, T, dev):
        k = (T, str(dev))
        if k not in self._tab:
            n = T + 8
            self._tab[k] = [tuple(t.to(dev) for t in rope_table(self.cfg, c, n)) for c in (False, True)]
        return self._tab[k]

    def attention(self, L, u, ctx, opt):
        cfg, dt = self.cfg, u.dtype
        B, T, _ = u.shape
        H, G, eps = cfg.n_heads, cfg.o_groups, cfg.norm_eps
        tab = self.tables(T, u.device)
        cos, sin = tab[1 if L.ratio else 0]
        qr, q, kv = attn_qkv(u, storage(L.wq_a, "fp8", dt), L.q_norm, storage(L.wq_b, "fp8", dt),
                             storage(L.wkv, "fp8", dt), L.kv_norm, cos, sin, H, eps)
        keys, sel = kv, None
        if L.ratio:
            if L.kv_src:
                lat = self.compress(L, u)
                row_cos, row_sin = (t[:T - T % L.ratio:L.ratio] for t in (cos, sin))
                if opt.get("index", True):
                    ld = lat.detach()
                    ik = rms(lin(ld, L.i_wk), L.i_knorm, eps)
                    ik = rope(ik, row_cos, row_sin)
                    ctx.ik = ste(ik, "fp4") if Quant.kv else ik
                row = rope(lat, row_cos, row_sin)
                ctx.ckv = ste(row, "fp4c") if Quant.kv else row
            if L.ix_src and opt.get("index", True):
                self.index(L, u, qr, ctx, opt, cos, sin)
            keys = torch.cat([kv, ctx.ckv], 1)
            sel = ctx.sel if opt["select"] else None
        R = keys.shape[1] - T
        if Backend.attention == "flex" and u.is_cuda:
            o, lse = flex_attend(q, keys, sel, L.ratio, cfg.window)
        else:
            allow = base_mask(T, R, L.ratio, cfg.window, u.device)[None]
            if sel is not None:
                window = torch.ones(B, T, T, dtype=torch.bool, device=u.device)
                allow = allow & torch.cat([window, sel > 0], -1)
            o, lse = dense_attention(q, keys, L.sink, allow), None
        if L.ratio and opt.get("kl_pos") is not None:
            ctx.kl.append(self.index_loss(L, q, keys, ctx, opt["kl_pos"]))
        wo_a, wo_b = storage(L.wo_a, "fp8", dt), storage(L.wo_b, "fp8", dt)
        return attn_finish(o, lse, L.sink, cos, sin, wo_a, wo_b, G)

    def compress(self, L, u):
        r, eps = L.ratio, self.cfg.norm_eps
        if r == 1:
            return rms(lin(u, L.c_wkv), L.c_norm, eps)
        B, T, _ = u.shape
        n = T // r
        x = u[:, :n * r]
        kv, g = lin(x, L.c_wkv).float(), lin(x, L.c_wgate).float()
        kv, g = kv.reshape(B, n, r, -1), g.reshape(B, n, r, -1)
        return rms((kv * torch.softmax(g, 2)).sum(2).to(u.dtype), L.c_norm, eps)

    def index_query(self, L, u, qr, cos, sin):
        cfg = self.cfg
        B, T, _ = u.shape
        iq = F.linear(act8(qr), storage(L.i_wq, "fp8", qr.dtype))
        iq = iq.reshape(B, T, cfg.index_heads, cfg.index_dim)
        iq = rope(iq, cos.unsqueeze(-2), sin.unsqueeze(-2))
        if Quant.kv:
            iq = ste(iq, "fp4")
        hw = lin(u, L.i_wp) * (cfg.index_dim ** -0.5 * cfg.index_heads ** -0.5)
        return iq, hw

    def index(self, L, u, qr, ctx, opt, cos, sin):
        """selects rows for all queries, without gradient; scores the sampled queries, with gradient"""
        cfg = self.cfg
        B, T, _ = u.shape
        u, qr = u.detach(), qr.detach()
        ik = ctx.ik
        R = ik.shape[1]
        kl = opt.get("kl_pos")
        if kl is not None:
            iq, hw = self.index_query(L, u[:, kl], qr[:, kl], cos[kl], sin[kl])
            ctx.score_s = index_scores(iq, ik, hw)
        if not opt["select"]:
            return
        with torch.no_grad():
            iq, hw = self.index_query(L, u, qr, cos[:T], sin[:T])
            s = index_scores(iq, ik.detach(), hw)
            lens = torch.div(torch.arange(1, T + 1, device=u.device), L.ratio, rounding_mode="floor")[:, None]
            rows = torch.arange(R, device=u.device)
            s = s.masked_fill(rows >= lens, float("-inf"))
            if L.layer == cfg.candidate_source:
                bs = cfg.candidate_block
                b = F.pad(s, (0, -R % bs), value=float("-inf")).reshape(B, T, -1, bs).amax(-1)
                nb = b.shape[-1]
                last = torch.div(lens - 1, bs, rounding_mode="floor")
                b = b.masked_fill(torch.arange(nb, device=u.device) == last, float("inf"))
                ti = topk_rows(b, min(cfg.candidate_topk, nb))
                keep = torch.zeros(B, T, nb, dtype=torch.bool, device=u.device)
                keep = keep.scatter_(-1, ti, b.gather(-1, ti) > float("-inf"))
                ctx.cand = keep.repeat_interleave(bs, -1)[..., :R]
            elif cfg.candidate_source >= 0 and L.layer > cfg.candidate_source:
                s = s.masked_fill(~ctx.cand, float("-inf"))
            k = min(cfg.index_topk, R)
            ti = topk_rows(s, k)
            sel = torch.zeros(B, T, R, dtype=torch.uint8, device=u.device).scatter_(-1, ti, 1)
            ctx.sel = sel * (rows < lens).to(torch.uint8)
            if opt.get("record") is not None:
                opt["record"][f"sel.{L.layer}"] = ctx.sel

    def index_loss(self, L, q, keys, ctx, pos):
        T = q.shape[2]
        ok = base_mask(T, keys.shape[1] - T, L.ratio, self.cfg.window, q.device)[pos]
        return index_kl(q[:, :, pos].detach(), keys.detach(), L.sink.detach(), ok, ctx.score_s)

    def moe(self, L, v, ctx):
        cfg = self.cfg
        dt = v.dtype
        w, chosen = route(v, L.gate, L.gate_bias, L.k, cfg.route_scale)
        order, dest, ends, counts = expert_order(chosen, L.E)
        ctx.loads.append(counts)
        a = act8(v)
        x = Dispatch.apply(a, order, dest, L.k)
        w = Place.apply(w.reshape(-1, 1), order, dest)
        h = grouped(x, storage(L.w13, "fp4", dt), ends)
        h = act8((swiglu(h, cfg.swiglu_limit) * w).to(dt))     # the routing weight stands before w2
        y = Combine.apply(grouped(h, storage(L.w2, "fp4", dt), ends), order, dest, L.k)
        s13, s2 = storage(L.s13, "fp8", dt), storage(L.s2, "fp8", dt)
        return y + shared_expert(a, s13, s2, cfg.swiglu_limit)

    def hc(self, L, n):
        return getattr(L, f"hc_{n}_fn"), getattr(L, f"hc_{n}_base"), getattr(L, f"hc_{n}_scale")

    def run_block(self, L, X, pre, attn, ctx):
        """X [N,S,d], pre [N,S]; attn: callable u [N,d] -> [N,d]"""
        cfg = self.cfg
        A = (cfg.hc_iters, cfg.hc_eps, cfg.norm_eps, self.sink_tail)
        u, p, post, comb = hc_in(X, pre, *self.hc(L, "attn"), L.attn_norm, *A)
        X = hc_out(self.dropped(attn(u)), X, post, comb)
        v, f, post, comb = hc_in(X, p, *self.hc(L, "ffn"), L.ffn_norm, *A)
        X = hc_out(self.dropped(self.moe(L, v, ctx)), X, post, comb)
        return X, f

    def dropped(self, y):
        return F.dropout(y, self.drop) if self.training and self.drop > 0 else y

    def forward(self, ids, select=True, kl_pos=None, record=None, need_main=False):
        """ids [B,T] from position 0 -> dict: z [B,T,d] normalised final state, loads, kl, main (DSpark taps).

        select: attention uses the indexer's rows only, else all visible ones. kl_pos: queries at which the
        indexer is compared with the attention. record: dict that receives selections and layer outputs.
        """
        cfg = self.cfg
        B, T = ids.shape
        S, d = cfg.hc_mult, cfg.dim
        ctx = Context()
        opt = {"select": select, "kl_pos": kl_pos, "record": record, "index": select or kl_pos is not None}
        rows = self.hash(ids) if self.hash is not None else None
        h = F.embedding(ids, self.embed).to(self.cdt).reshape(B * T, 1, d)
        X = h.expand(B * T, S, d).contiguous()
        pre = torch.zeros(B * T, S, device=ids.device)
        pre[:, 0] = 1
        mains = []
        for i, L in enumerate(self.layers):
            if L.has_engram:
                e = F.embedding(rows[cfg.engram_layers.index(i)], L.e_table)
                if Quant.weights:
                    e = ste(e, "fp8row")
                if self.training and self.drop_rows > 0:
                    keep = torch.rand(e.shape[:-1], device=e.device) >= self.drop_rows
                    e = e * keep.to(e.dtype).unsqueeze(-1) / (1 - self.drop_rows)
                e = e.to(self.cdt).reshape(B * T, -1)
                X = engram_write(X, e, storage(L.e_wkv, "fp8", self.cdt), L.e_q, L.e_k, cfg.norm_eps)
            if need_main and i in cfg.dspark_targets:
                mains.append(X.float().mean(1).to(X.dtype))

            def attention(u, L=L):
                return self.attention(L, u.reshape(B, T, d), ctx, opt).reshape(B * T, d)
            X, pre = self.run_block(L, X, pre, attention, ctx)
            if record is not None:
                record[f"layer_out.{i}"] = X.reshape(B, T, S, d)
        z, _ = hc_collapse(X, pre, self.norm, cfg.norm_eps)
        out = {"z": z.reshape(B, T, d), "loads": ctx.loads, "kl": ctx.kl}
        if need_main:
            out["main"] = torch.cat(mains, -1).reshape(B, T, -1)
        return out

    def logits(self, z, frozen=False):
        h = self.head.detach() if frozen else self.head
        return F.linear(z, h.to(z.dtype)).float()
