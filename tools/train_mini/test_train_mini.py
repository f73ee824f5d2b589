#!/usr/bin/env python3
"""Checks on a CPU (torch 1.13 or newer): python3 test_train_mini.py [folder of golden models]

Formats, gradients and export; and equality with the golden numbers of every text model in tests/data/golden,
which come from the published reference implementation.
"""
import json
import os
import sys
import tempfile

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import attention  # noqa: E402
import experts  # noqa: E402
import layout  # noqa: E402
import number_formats as nf  # noqa: E402
from config import Config  # noqa: E402
from engram import token_map  # noqa: E402
from layers import rope_table, sinkhorn  # noqa: E402
from losses import ce_loss  # noqa: E402
from model import MiniV41  # noqa: E402
from switches import Quant  # noqa: E402

GOLDEN = os.path.join(HERE, "..", "..", "tests", "data", "golden")
MINI = os.path.join(HERE, "..", "..", "models", "mini")
MINI_GOLDEN = os.path.join(HERE, "..", "..", "tests", "data", "mini", "golden.safetensors")
DRAFTING = ("mtp", "main", "mk_", "conf")      # parameters that the backbone's loss does not reach


def small(**changes):
    shape = dict(vocab_size=96, dim=64, n_layers=6, n_heads=4, head_dim=32, rope_dim=16, q_lora_rank=32,
                 o_groups=2, o_lora_rank=32, window=8, compress_ratios=(0, 2, 2, 1, 1, 1), kv_source=(1, 3),
                 index_source=(1, 2, 3, 5), candidate_source=3, candidate_block=4, candidate_topk=4,
                 index_heads=4, index_dim=32, index_topk=8, n_experts=6, n_active=2, inter=32, yarn_orig=32,
                 engram_layers=(1, 2), engram_bucket=40, engram_heads=2, engram_dim=32, dspark_stages=2,
                 dspark_block=3, dspark_experts=4, dspark_active=2, dspark_targets=(3, 5), dspark_rank=32,
                 dspark_noise=90, max_positions=256)
    shape.update(changes)
    return Config(**shape)


def build(seed=0, **changes):
    """-> model with random norms and biases, token map"""
    torch.manual_seed(seed)
    cfg = small(**changes)
    tokens = [i // 2 for i in range(cfg.vocab_size)]
    cfg.engram_vocab = max(tokens) + 1
    m = MiniV41(cfg, tokens)
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
        for L in list(m.layers) + list(m.mtp):
            L.gate_bias.normal_(0, 0.1)
    return m, tokens


def test_formats():
    ties = torch.tensor([.25, .75, 1.25, 1.75, 2.5, 3.5, 5., -.75, 7.])
    assert nf.round_e2m1(ties).tolist() == [0, 1, 1, 2, 2, 4, 4, -1, 6]
    assert nf.pow2_ceil(torch.tensor([1.0, 1.001, 0.75, 448 * nf.INV448])).tolist()[:3] == [1.0, 2.0, 1.0]
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 127) != 127]
    values = layout.decode("F8_E4M3", [254], codes.numpy().tobytes())
    assert bool((nf.e4m3_codes(values) == codes).all()) and bool((nf.round_e4m3(values) == values).all())
    middle = (values[1:126] + values[:125]) / 2
    assert bool(((nf.e4m3_codes(nf.round_e4m3(middle)) & 1) == 0).all())
    w = torch.randn(70, 96) * 0.1
    kinds = {"fp8": nf.q_fp8_tiles, "tbl": nf.q_fp8_rows, "fp4": nf.q_fp4_rows, "bf16": nf.q_bf16}
    for kind, quantise in kinds.items():
        x = quantise(w)
        assert torch.equal(quantise(x), x), kind
        with tempfile.TemporaryDirectory() as d:
            name = {"tbl": "layers.0.engram.embed", "bf16": "a.weight"}.get(kind, "a")
            items = [(name + s, dt, list(sh), b) for s, dt, sh, b in layout.encode(kind, w)]
            layout.write_safetensors(d + "/model.safetensors", items)
            assert torch.equal(list(layout.load_folder(d).values())[0], x), kind
    assert torch.equal(nf.q_fp4_e4m3(torch.zeros(1, 16)), torch.zeros(1, 16))
    # 0.75 / 6 = 0.125 is an e4m3 value, so every multiple of it on the e2m1 grid must survive
    row = 0.125 * torch.tensor([6, -4, 3, 2, 1.5, 1, .5, 0] * 2)
    assert torch.equal(nf.q_fp4_e4m3(row), row)


def test_expert_order():
    N, k, E, d = 23, 2, 5, 8
    chosen = torch.stack([torch.randperm(E)[:k] for _ in range(N)])
    x = torch.randn(N, d, requires_grad=True)
    w = torch.randn(E, 6, d, requires_grad=True)
    rw = torch.rand(N, k, requires_grad=True)
    rows = [sum(rw[n, j] * (w[chosen[n, j]] @ x[n]) for j in range(k)) for n in range(N)]
    expected, g = torch.stack(rows), torch.randn(N, 6)
    order, dest, ends, counts = experts.expert_order(chosen, E)
    y = experts.grouped(experts.Dispatch.apply(x, order, dest, k), w, ends)
    y = experts.Combine.apply(y * experts.Place.apply(rw.reshape(-1, 1), order, dest), order, dest, k)
    assert torch.allclose(y, expected, atol=1e-5)
    got = torch.autograd.grad((y * g).sum(), (x, w, rw))
    want = torch.autograd.grad((expected * g).sum(), (x, w, rw))
    assert all(torch.allclose(p, q, atol=1e-4) for p, q in zip(got, want))
    assert int(counts.sum()) == N * k and int(ends[-1]) == N * k


def test_sinkhorn_gradient():
    z = torch.randn(50, 4, 4) * 1.5
    results = []
    for tail in (100, 3):
        t = z.clone().requires_grad_(True)
        c = sinkhorn(torch.softmax(t, -1) + 1e-6, 20, 1e-6, tail)
        (c * torch.arange(16.).reshape(4, 4).sin()).sum().backward()
        results.append((c.detach(), t.grad))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    cosine = F.cosine_similarity(results[0][1].flatten(), results[1][1].flatten(), 0)
    assert cosine > 0.97, cosine


def test_attention_masks():
    """the masks of the fast path say the same as the dense mask; the sink may be applied afterwards"""
    B, H, T, D, W = 2, 4, 21, 16, 5
    for ratio in (0, 1, 2):
        R = T // ratio if ratio else 0
        q, keys, sink = torch.randn(B, H, T, D), torch.randn(B, T + R, D), torch.randn(H)
        base = attention.base_mask(T, R, ratio, W, "cpu")
        qi, ki = torch.arange(T)[:, None], torch.arange(T + R)[None]
        assert torch.equal(attention.mask_mod(T, ratio, W)(0, 0, qi, ki).expand(T, T + R), base)
        sel = (torch.rand(B, T, max(R, 1)) > 0.5).to(torch.uint8)
        allow = base[None].expand(B, -1, -1)
        if ratio:
            allow = allow & torch.cat([torch.ones(B, T, T, dtype=torch.bool), sel > 0], -1)
            pick = attention.pick_mod(sel, T)
            for b in range(B):
                s = pick(torch.zeros(T, T + R), torch.tensor(b), 0, qi.expand(T, T + R), ki.expand(T, T + R))
                assert torch.equal((s == 0) & base, allow[b])
        expected = attention.dense_attention(q, keys, sink, allow)
        s = (q @ keys[:, None].transpose(-1, -2) * D ** -0.5).masked_fill(~allow[:, None], float("-inf"))
        o, lse = torch.softmax(s, -1) @ keys[:, None], torch.logsumexp(s, -1)
        assert torch.allclose(expected, o * torch.sigmoid(lse - sink[None, :, None]).unsqueeze(-1), atol=1e-5)


def test_loss():
    class Head:
        head = torch.nn.Parameter(torch.randn(50, 16))
    z, y = torch.randn(3, 7, 16, requires_grad=True), torch.randint(0, 50, (3, 7))
    ce, _ = ce_loss(Head, z, y, 1e-2, chunk=5)
    (3 * ce).backward()
    got = z.grad.clone(), Head.head.grad.clone()
    z.grad = Head.head.grad = None
    logits = (z @ Head.head.t()).reshape(-1, 50)
    expected = F.cross_entropy(logits, y.reshape(-1))
    (3 * (expected + 1e-2 * torch.logsumexp(logits, -1).square().mean())).backward()
    assert abs(float(ce - expected)) < 1e-6
    assert torch.allclose(got[0], z.grad, atol=1e-6) and torch.allclose(got[1], Head.head.grad, atol=1e-6)


def test_export_roundtrip():
    """training forward with weight fake quantisation == forward of the exported and reloaded model"""
    m, tokens = build(3)
    ids = torch.randint(3, 90, (2, 45))

    def plain(name):
        matrix = any(k in name for k in (".w1", ".w2", ".w3", "wq_", "wkv", "wo_", "proj"))
        return not matrix or name.endswith((".weight", "_fn"))
    with torch.no_grad():
        layout.snap_weights(m, plain)
        Quant.set(weights=True)
        fake = m.logits(m(ids)["z"])
        Quant.set()
    with tempfile.TemporaryDirectory() as d:
        files = layout.export(m, d, shard_limit=100_000)
        assert len(files) > 4 and all(os.path.getsize(os.path.join(d, f)) < 250_000 for f in files)
        with open(d + "/config.json") as f:
            reloaded = MiniV41(Config.from_hf(json.load(f)), tokens)
        assert layout.import_folder(reloaded, d) == []
    with torch.no_grad():
        stored = reloaded.logits(reloaded(ids)["z"])
        layout.snap_weights(m)
        assert torch.allclose(fake, stored, atol=2e-5), (fake - stored).abs().max()
        assert torch.allclose(m.logits(m(ids)["z"]), stored, atol=2e-5)


def test_causality_and_gradients():
    m, _ = build(4)
    ids = torch.randint(3, 90, (1, 40))
    with torch.no_grad():
        a = m.logits(m(ids)["z"])
        changed = ids.clone()
        changed[:, 30:] = torch.randint(3, 90, (1, 10))
        b = m.logits(m(changed)["z"])
    assert torch.allclose(a[:, :30], b[:, :30], atol=1e-5)
    for on in (False, True):
        Quant.set(on, on, on)
        m.zero_grad()
        out = m(ids, kl_pos=torch.arange(1, 40, 3))
        (ce_loss(m, out["z"], ids)[0] + sum(out["kl"])).backward()
        missing = [n for n, p in m.named_parameters() if p.grad is None and not n.startswith(DRAFTING)]
        assert missing == [], missing
        assert all(torch.isfinite(p.grad).all() for p in m.parameters() if p.grad is not None)
    Quant.set()
    m.zero_grad()
    ce_loss(m, m(ids, kl_pos=torch.arange(1, 40, 3))["z"], ids)[0].backward()
    # the indexer learns from its own loss only
    indexer = [p for n, p in m.named_parameters() if ".i_w" in n or ".i_k" in n]
    assert indexer and all(p.grad is None or float(p.grad.abs().max()) == 0 for p in indexer)


def test_numeric_gradient():
    """directional derivative of the backbone's loss in float64 (all rows: selection is not differentiable)"""
    m, _ = build(5)
    m.double()
    m.cdt = torch.float64
    m.sink_tail = 100
    to_float = torch.Tensor.float
    torch.Tensor.float = lambda t: t if t.dtype == torch.float64 else to_float(t)
    try:
        ids = torch.randint(3, 90, (1, 24))
        tables = [tuple(t.double() for t in rope_table(m.cfg, c, 32)) for c in (False, True)]
        m._tab[(24, "cpu")] = tables

        def loss():
            logits = m(ids, select=False)["z"] @ m.head.t()
            return F.cross_entropy(logits.reshape(-1, 96), ids.reshape(-1))
        ps = [p for n, p in m.named_parameters() if not n.startswith(DRAFTING) and ".i_" not in n]
        gradient = torch.autograd.grad(loss(), ps)
        direction = [torch.randn_like(p) * p.abs().mean().clamp_min(1e-2) for p in ps]
        values, eps = [], 1e-6
        with torch.no_grad():
            for move in (1, -2):
                for p, v in zip(ps, direction):
                    p.add_(move * eps * v)
                values.append(float(loss()))
        numeric = (values[0] - values[1]) / (2 * eps)
        analytic = float(sum((g * v).sum() for g, v in zip(gradient, direction)))
        assert abs(numeric - analytic) < 1e-4 * max(1.0, abs(numeric)), (numeric, analytic)
    finally:
        torch.Tensor.float = to_float


def test_draft_sees_the_past_only():
    m, _ = build(6)
    ids = torch.randint(3, 90, (1, 40))
    with torch.no_grad():
        rows = m.draft_context(m(ids, need_main=True)["main"])
        pos = torch.tensor([[10, 20]])
        a = m.draft_greedy(rows, ids.gather(1, pos), pos)[1]
        for r in rows:
            r[:, 20:] += 1.0
        b = m.draft_greedy(rows, ids.gather(1, pos), pos)[1]
    assert torch.equal(a, b)


def read_golden(path):
    kinds = {"I32": torch.int32, "I64": torch.int64, "U8": torch.uint8}
    return {name: layout.decode(dt, shape, raw) if dt in ("F32", "BF16")
            else torch.frombuffer(bytearray(raw), dtype=kinds[dt]).reshape(shape)
            for name, (dt, shape, raw) in layout.read_safetensors(path).items() if len(raw)}


def golden(folder):
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    if c.get("vision_config"):
        return "skipped: it has an image span"
    ts = read_golden(os.path.join(folder, "golden.safetensors"))
    cfg = Config.from_hf(c)
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokens = token_map(json.load(f), cfg.vocab_size)
    assert torch.equal(torch.tensor(tokens, dtype=torch.int32), ts["inputs/engram_token_map"])
    m = MiniV41(cfg, tokens)
    assert layout.import_folder(m, folder) == []
    n = ts["inputs/ids_prefill"].numel()
    ids = torch.cat([ts["inputs/ids_prefill"], ts["inputs/ids_decode"]]).long()[None]
    record = {}
    with torch.no_grad():
        out = m(ids, record=record, need_main=bool(cfg.dspark_stages))
        logits = m.logits(out["z"])[0]
    expected = torch.cat([ts["exact/prefill_logits"], ts["exact/decode_logits"]])
    error = float((logits - expected).abs().max())
    assert error < 2e-4, error
    for layer in cfg.index_source:
        chosen = record[f"sel.{layer}"][0, :n]
        rows = chosen.shape[-1]
        top = ts[f"exact/prefill_topk.{layer}"].long()
        top = torch.where(top < 0, torch.full_like(top, rows), top)      # absent: a column of its own
        want = torch.zeros(n, rows + 1, dtype=torch.uint8).scatter_(1, top, 1)[:, :-1]
        assert torch.equal(want, chosen), layer
    if not cfg.dspark_stages:
        return f"largest logit difference {error:.1e}"
    rows = [F.pad(r, (0, 0, 0, 8)) for r in m.draft_context(out["main"])]
    pos = torch.arange(n + 1, ids.shape[1] + 1)[None]
    drafts, draft_logits, conf = m.draft_greedy(rows, ts["exact/spec_input_ids"].long()[None], pos)
    assert torch.equal(drafts[0].int(), ts["exact/spec_output_ids"][:, 1:])
    assert torch.allclose(draft_logits[0], ts["exact/spec_logits"], atol=2e-4)
    assert torch.allclose(conf[0], ts["exact/spec_confidence"], atol=2e-4)
    return f"largest logit difference {error:.1e}, drafts equal"


def embedded(folder, golden_file, documents=2):
    """negative log-likelihoods of validation documents under the committed model"""
    with open(os.path.join(folder, "config.json")) as f:
        cfg = Config.from_hf(json.load(f))
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokens = token_map(json.load(f), cfg.vocab_size)
    m = MiniV41(cfg, tokens)
    assert layout.import_folder(m, folder) == []
    ts = read_golden(golden_file)
    at, error = 0, 0.0
    for k in range(documents):
        ids = ts["doc_ids"][ts["doc_offsets"][k]:ts["doc_offsets"][k + 1]].long()
        with torch.no_grad():
            lp = torch.log_softmax(m.logits(m(ids[None])["z"])[0, :-1], -1)
        nll = -lp.gather(-1, ids[1:, None])[:, 0]
        error = max(error, float((nll - ts["exact/nll"][at:at + len(nll)]).abs().max()))
        at += len(nll)
    assert error < 1e-3, error
    return f"largest difference of {at} log-likelihoods {error:.1e}"


def main():
    torch.manual_seed(0)
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name, flush=True)
    root = sys.argv[1] if len(sys.argv) > 1 else GOLDEN
    folders = [os.path.join(root, d) for d in sorted(os.listdir(root))]
    folders = [d for d in folders if os.path.exists(os.path.join(d, "golden.safetensors"))]
    assert folders, f"{root}: no golden model"
    for d in folders:
        print("ok golden", os.path.basename(d), golden(d), flush=True)
    print("ok embedded model", embedded(MINI, MINI_GOLDEN), flush=True)


if __name__ == "__main__":
    main()
