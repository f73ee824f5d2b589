"""DSpark: the draft stages, their context rows and the Markov chain, over a frozen backbone."""
import torch
import torch.nn.functional as F

from layers import Context, hc_collapse, lin, rms, rope
from number_formats import act8, ste, storage
from switches import Quant


class DSpark:
    """what MiniV41 adds for drafting; the parameters belong to the model"""

    def draft_context(self, main):
        """main [B,T,3d] -> per stage context rows [B,T,D]"""
        cfg, dt = self.cfg, main.dtype
        T = main.shape[1]
        cos, sin = self.tables(T, main.device)[0]
        mx = rms(lin(act8(main), storage(self.main_proj, "fp8", dt)), self.main_norm, cfg.norm_eps)
        rows = []
        for L in self.mtp:
            kv = rms(lin(act8(mx), storage(L.wkv, "fp8", dt)), L.kv_norm, cfg.norm_eps)
            kv = rope(kv, cos[:T], sin[:T])
            rows.append(ste(kv, "fp8row") if Quant.kv else kv)
        return rows

    def draft(self, rows, tok, pos):
        """rows: per-stage context [B,T,D]; anchors: tok, pos [B,A].

        -> normalised states [B,A,blk,d], states before the norm, and the experts' loads of each stage
        """
        cfg = self.cfg
        B, A = tok.shape
        blk, W, D, S, d = cfg.dspark_block, cfg.window, cfg.head_dim, cfg.hc_mult, cfg.dim
        T = rows[0].shape[1]
        dev, dt = tok.device, rows[0].dtype
        cos_t, sin_t = self.tables(T, dev)[0]
        p = (pos.unsqueeze(-1) + torch.arange(blk, device=dev)).clamp_max(cos_t.shape[0] - 1)   # [B,A,blk]
        cos, sin = cos_t[p], sin_t[p]
        ids = torch.full((B, A, blk), cfg.dspark_noise, dtype=torch.long, device=dev)
        ids[..., 0] = tok
        N = B * A * blk
        embed = self.embed.detach()               # shared with the backbone, which is frozen
        X = F.embedding(ids, embed).to(dt).reshape(N, 1, d).expand(N, S, d)
        pre = torch.zeros(N, S, device=dev)
        pre[:, 0] = 1
        wi = pos.unsqueeze(-1) - W + torch.arange(W, device=dev)   # [B,A,W]
        ok = torch.cat([wi >= 0, torch.ones(B, A, blk, dtype=torch.bool, device=dev)], -1)
        wi = wi.clamp_min(0)
        ctx = Context()
        for L, row in zip(self.mtp, rows):
            def attn(u, L=L, row=row):
                a = act8(u)
                qr = rms(F.linear(a, storage(L.wq_a, "fp8", dt)), L.q_norm, cfg.norm_eps)
                q = F.linear(act8(qr), storage(L.wq_b, "fp8", dt)).reshape(B, A, blk, cfg.n_heads, D)
                q = rope(q, cos.unsqueeze(-2), sin.unsqueeze(-2))
                kv = rms(F.linear(a, storage(L.wkv, "fp8", dt)), L.kv_norm, cfg.norm_eps)
                kv = rope(kv.reshape(B, A, blk, D), cos, sin)
                if Quant.kv:
                    kv = ste(kv, "fp8row")
                win = row.gather(1, wi.reshape(B, A * W, 1).expand(-1, -1, D)).reshape(B, A, W, D)
                keys = torch.cat([win, kv], 2)
                s = torch.einsum("bakhd,bawd->bakhw", q, keys).float() * D ** -0.5
                s = s.masked_fill(~ok[:, :, None, None], float("-inf"))
                s = torch.cat([s, L.sink.view(1, 1, 1, -1, 1).expand(B, A, blk, -1, 1)], -1)
                pr = torch.softmax(s, -1)[..., :-1].to(dt)
                o = torch.einsum("bakhw,bawd->bakhd", pr, keys)
                o = rope(o, cos.unsqueeze(-2), sin.unsqueeze(-2), inverse=True)
                o = o.reshape(N, cfg.o_groups, -1).transpose(0, 1)
                wo = storage(L.wo_a, "fp8", dt).reshape(cfg.o_groups, -1, o.shape[-1])
                t = torch.bmm(o, wo.transpose(1, 2)).transpose(0, 1).reshape(N, -1)
                return F.linear(act8(t), storage(L.wo_b, "fp8", dt))
            X, pre = self.run_block(L, X, pre, attn, ctx)
        zn, h = hc_collapse(X, pre, self.mtp_norm, cfg.norm_eps)
        return zn.reshape(B, A, blk, d), h.reshape(B, A, blk, d), ctx.loads

    def markov(self, prev):
        """previous ids -> bias over the vocabulary, embedding of the ids"""
        e = F.embedding(prev, self.mk_embed).to(self.cdt)
        return F.linear(e, self.mk_head.to(e.dtype)).float(), e

    def confidence(self, h, e):
        """logit of the probability that a draft is accepted if those before it were"""
        return F.linear(torch.cat([h, e], -1).float(), self.conf).squeeze(-1)

    @torch.no_grad()
    def draft_greedy(self, rows, tok, pos):
        """greedy Markov chain -> ids [B,A,blk], logits, confidence logits"""
        zn, h, _ = self.draft(rows, tok, pos)
        lg = self.logits(zn)
        prev, ids, conf, all_l = tok, [], [], []
        for k in range(self.cfg.dspark_block):
            b, e = self.markov(prev)
            x = lg[:, :, k] + b
            conf.append(self.confidence(h[:, :, k], e))
            all_l.append(x)
            prev = x.argmax(-1)
            ids.append(prev)
        return torch.stack(ids, -1), torch.stack(all_l, 2), torch.stack(conf, -1)
