"""The official layout: tensor names, storage formats, safetensors, reading back."""
import json
import os
import shutil
import struct

import numpy as np
import torch

from number_formats import (INV448, INV6, bf16_codes, e2m1_codes, e4m3_codes, e8m0, fp8_tile_scale, groups,
                            pow2_ceil, q_bf16, q_fp4_rows, q_fp8_rows, q_fp8_tiles, round_e2m1, round_e4m3,
                            tiles)


def named_tensors(model):
    """-> list of (official name, storage kind, view of the parameter).

    Kinds: fp8 and fp4 matrices, tbl (Engram table), bf16, f32, f32r (float32 with bf16 values).
    """
    cfg = model.cfg
    out = []

    def add(name, kind, t):
        out.append((name, kind, t))

    def block(p, L):
        a = p + "attn."
        add(p + "attn_norm.weight", "bf16", L.attn_norm)
        add(p + "ffn_norm.weight", "bf16", L.ffn_norm)
        for n in ("attn", "ffn"):
            for q in ("fn", "base", "scale"):
                # fn is stored as F32 like the others but with bf16 values: half of its bytes compress away
                add(p + f"hc_{n}_{q}", "f32r" if q == "fn" else "f32", getattr(L, f"hc_{n}_{q}"))
        add(a + "attn_sink", "f32", L.sink)
        add(a + "wq_a", "fp8", L.wq_a)
        add(a + "q_norm.weight", "bf16", L.q_norm)
        add(a + "wq_b", "fp8", L.wq_b)
        add(a + "wkv", "fp8", L.wkv)
        add(a + "kv_norm.weight", "bf16", L.kv_norm)
        add(a + "wo_a", "fp8", L.wo_a)
        add(a + "wo_b", "fp8", L.wo_b)
        if L.kv_src:
            add(a + "compressor.wkv.weight", "bf16", L.c_wkv)
            if L.ratio > 1:
                add(a + "compressor.wgate.weight", "bf16", L.c_wgate)
            add(a + "compressor.norm.weight", "bf16", L.c_norm)
            add(a + "indexer.wk.weight", "bf16", L.i_wk)
            add(a + "indexer.k_norm.weight", "bf16", L.i_knorm)
        if L.ix_src:
            add(a + "indexer.wq_b", "fp8", L.i_wq)
            add(a + "indexer.weights_proj.weight", "bf16", L.i_wp)
        f = p + "ffn."
        add(f + "gate.weight", "bf16", L.gate)
        add(f + "gate.bias", "f32", L.gate_bias)
        n = cfg.inter
        for e in range(L.E):
            add(f + f"experts.{e}.w1", "fp4", L.w13[e, :n])
            add(f + f"experts.{e}.w3", "fp4", L.w13[e, n:])
            add(f + f"experts.{e}.w2", "fp4", L.w2[e])
        add(f + "shared_experts.w1", "fp8", L.s13[:n])
        add(f + "shared_experts.w3", "fp8", L.s13[n:])
        add(f + "shared_experts.w2", "fp8", L.s2)
        if L.has_engram:
            add(p + "engram.embed", "tbl", L.e_table)
            add(p + "engram.wkv", "fp8", L.e_wkv)
            add(p + "engram.q_weight", "bf16", L.e_q)
            add(p + "engram.k_weight", "bf16", L.e_k)

    add("embed.weight", "bf16", model.embed)
    for i, L in enumerate(model.layers):
        block(f"layers.{i}.", L)
    add("norm.weight", "bf16", model.norm)
    add("head.weight", "bf16", model.head)
    for i, L in enumerate(model.mtp):
        block(f"mtp.{i}.", L)
    if len(model.mtp):
        z = f"mtp.{len(model.mtp) - 1}."
        add("mtp.0.main_proj", "fp8", model.main_proj)
        add("mtp.0.main_norm.weight", "bf16", model.main_norm)
        add(z + "norm.weight", "bf16", model.mtp_norm)
        add(z + "markov_head.embed.weight", "bf16", model.mk_embed)
        add(z + "markov_head.head.weight", "bf16", model.mk_head)
        add(z + "confidence_head.proj.weight", "bf16", model.conf)
    return out


def scaled(dtype, codes, scales):
    codes = codes.contiguous()
    return [(".weight", dtype, codes.shape, codes.numpy().tobytes()),
            (".scale", "F8_E8M0", scales.shape, e8m0(scales).numpy().tobytes())]


def encode(kind, t):
    """-> list of (suffix, dtype string, shape, bytes)"""
    t = t.detach().float().cpu()
    if kind == "bf16":
        return [("", "BF16", t.shape, bf16_codes(t).tobytes())]
    if kind in ("f32", "f32r"):
        t = q_bf16(t) if kind == "f32r" else t
        return [("", "F32", t.shape, t.contiguous().numpy().tobytes())]
    if kind == "fp8":
        r, c = t.shape
        s = fp8_tile_scale(t)
        x = (tiles(t) / s[:, None, :, None]).reshape(-(-r // 32) * 32, -(-c // 32) * 32)[:r, :c]
        return scaled("F8_E4M3", e4m3_codes(round_e4m3(x)), s)
    g = groups(t, 32)
    if kind == "tbl":
        s = pow2_ceil(g.abs().amax(-1).clamp_min(1e-4) * INV448)
        return scaled("F8_E4M3", e4m3_codes(round_e4m3(g / s[..., None])).reshape(t.shape), s)
    if kind == "fp4":
        s = pow2_ceil(g.abs().amax(-1).clamp_min(6 * 2.0 ** -126) * INV6)
        c = e2m1_codes(round_e2m1(g / s[..., None])).reshape(t.shape)
        return scaled("I8", c[:, 0::2] | (c[:, 1::2] << 4), s)
    raise ValueError(kind)


def write_safetensors(path, items):
    """items: list of (name, dtype, shape, bytes)"""
    hdr, off = {"__metadata__": {"format": "pt"}}, 0
    for n, dt, sh, b in items:
        hdr[n] = {"dtype": dt, "shape": list(sh), "data_offsets": [off, off + len(b)]}
        off += len(b)
    h = json.dumps(hdr, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)))
        f.write(h)
        for _, _, _, b in items:
            f.write(b)


def read_safetensors(path):
    """-> dict name -> (dtype, shape, bytes)"""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        hdr = json.loads(f.read(n))
        data = f.read()
    return {name: (v["dtype"], v["shape"], data[v["data_offsets"][0]:v["data_offsets"][1]])
            for name, v in hdr.items() if name != "__metadata__"}


def decode(dt, shape, raw):
    """codes of one tensor -> float32; scales are applied by load_folder"""
    if dt == "F32":
        t = torch.from_numpy(np.frombuffer(raw, np.float32).copy())
    elif dt == "BF16":
        t = (torch.from_numpy(np.frombuffer(raw, np.int16).copy()).to(torch.int32) << 16)
        t = t.view(torch.float32)
    elif dt == "F8_E8M0":
        b = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).to(torch.int32)
        t = (b << 23).view(torch.float32)
    elif dt == "F8_E4M3":
        c = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).to(torch.int32)
        e, m = (c >> 3) & 15, (c & 7).float()
        pw = ((e - 7 + 127) << 23).view(torch.float32)
        t = torch.where(e > 0, (1 + m / 8) * pw, m * 2.0 ** -9)
        t = torch.where(c >= 128, -t, t)
    elif dt == "I8":
        p = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).to(torch.int64)
        tab = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
        t = torch.stack([tab[p & 15], tab[p >> 4]], -1).reshape(*shape[:-1], shape[-1] * 2)
        return t
    else:
        raise ValueError(dt)
    return t.reshape(shape)


def export(model, folder, shard_limit=14 * 2 ** 20, tokenizer=None):
    """writes a folder with the official names and formats; returns the list of files"""
    os.makedirs(folder, exist_ok=True)
    items = []
    for name, kind, t in named_tensors(model):
        for suf, dt, sh, b in encode(kind, t):
            items.append((name + suf, dt, list(sh), b))
    shards, cur, size = [], [], 0
    for it in items:
        if cur and size + len(it[3]) > shard_limit:
            shards.append(cur)
            cur, size = [], 0
        cur.append(it)
        size += len(it[3]) + 160
    shards.append(cur)
    files, wmap, total = [], {}, 0
    for i, s in enumerate(shards):
        fn = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        write_safetensors(os.path.join(folder, fn), s)
        files.append(fn)
        for n, _, _, b in s:
            wmap[n] = fn
            total += len(b)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": wmap}, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(model.cfg.hf(), f, indent=1)
    if tokenizer:
        shutil.copyfile(tokenizer, os.path.join(folder, "tokenizer.json"))
    return files + ["model.safetensors.index.json", "config.json"]


def load_folder(folder):
    """all tensors of a folder -> dict name -> float32 tensor with scales applied"""
    raw = {}
    for fn in sorted(os.listdir(folder)):
        if fn.startswith("model") and fn.endswith(".safetensors"):
            raw.update(read_safetensors(os.path.join(folder, fn)))
    out = {}
    for n, (dt, sh, b) in raw.items():
        if n.endswith(".scale") and n[:-6] + ".weight" in raw:
            continue
        t = decode(dt, sh, b)
        sn = n[:-7] + ".scale" if n.endswith(".weight") else None
        if sn in raw:
            s = decode(*raw[sn])
            if dt == "I8" or ".engram.embed." in n:
                t = t * s.repeat_interleave(32, -1)
            else:
                s = s.repeat_interleave(32, 0)[:t.shape[0]].repeat_interleave(32, 1)[:, :t.shape[1]]
                t = t * s
        out[n] = t
    return out


@torch.no_grad()
def import_folder(model, folder):
    """fill the model with the dequantised values of a folder -> names that were not used"""
    ts = load_folder(folder)
    used = set()
    for name, kind, t in named_tensors(model):
        n = name + ".weight" if kind in ("fp8", "fp4", "tbl") else name
        t.copy_(ts[n].to(t.device))
        used.add(n)
    return sorted(set(ts) - used)


@torch.no_grad()
def snap_weights(model, only=None):
    """replace master weights by their storage-format values, in place"""
    f = {"fp8": q_fp8_tiles, "fp4": q_fp4_rows, "tbl": q_fp8_rows, "bf16": q_bf16, "f32r": q_bf16}
    for name, kind, t in named_tensors(model):
        if kind in f and (only is None or only(name)):
            t.copy_(f[kind](t.float()))
