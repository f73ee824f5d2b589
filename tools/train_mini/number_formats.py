"""Number formats of the checkpoint: rounding, straight-through fake quantisation, codes.

Everything is exact and rounds ties to even.
"""
import numpy as np
import torch
import torch.nn.functional as F

from switches import Quant

INV448 = float(np.float32(1.0) / np.float32(448.0))
INV6 = float(np.float32(1.0) / np.float32(6.0))


def pow2_ceil(x):
    """2^ceil(log2 x) of positive normal float32"""
    b = x.contiguous().view(torch.int32)
    up = ((b & 0x7FFFFF) != 0).to(torch.int32)
    return (((b >> 23) + up) << 23).view(torch.float32)


def round_e4m3(x):
    """nearest e4m3fn value, saturating"""
    x = x.clamp(-448.0, 448.0)
    b = x.abs().clamp_min(2.0 ** -6).contiguous().view(torch.int32)
    q = (((b >> 23) - 3) << 23).view(torch.float32)
    return torch.round(x / q) * q


def round_e2m1(x):
    x = x.clamp(-6.0, 6.0)
    a = x.abs()
    q = 0.5 + 0.5 * (a >= 2.0).to(x.dtype) + (a >= 4.0).to(x.dtype)
    return torch.round(x / q) * q


def tiles(w):
    r, c = w.shape[-2:]
    pr, pc = -r % 32, -c % 32
    if pr or pc:
        w = F.pad(w, (0, pc, 0, pr))
    return w.reshape(*w.shape[:-2], (r + pr) // 32, 32, (c + pc) // 32, 32)


def fp8_tile_scale(w):
    return pow2_ceil(tiles(w).abs().amax(dim=(-3, -1)).clamp_min(1e-4) * INV448)


def q_fp8_tiles(w):
    """tiles of 32x32 with one power-of-two scale"""
    r, c = w.shape[-2:]
    t = tiles(w)
    s = pow2_ceil(t.abs().amax(dim=(-3, -1), keepdim=True).clamp_min(1e-4) * INV448)
    v = round_e4m3(t / s) * s
    return v.reshape(*w.shape[:-2], -(-r // 32) * 32, -(-c // 32) * 32)[..., :r, :c]


def groups(w, n):
    return w.reshape(*w.shape[:-1], w.shape[-1] // n, n)


def q_fp8_rows(w):
    """groups of 32 along the row with one power-of-two scale"""
    g = groups(w, 32)
    s = pow2_ceil(g.abs().amax(-1, keepdim=True).clamp_min(1e-4) * INV448)
    return (round_e4m3(g / s) * s).reshape(w.shape)


def q_fp4_rows(w):
    """groups of 32 along the row with one power-of-two scale"""
    g = groups(w, 32)
    s = pow2_ceil(g.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -126) * INV6)
    return (round_e2m1(g / s) * s).reshape(w.shape)


def q_fp4_e4m3(w):
    """groups of 16 with an e4m3 scale (compressed KV)"""
    g = groups(w, 16)
    s = round_e4m3(g.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -9) / 6.0)
    return (round_e2m1(g / s) * s).reshape(w.shape)


def q_bf16(w):
    return w.to(torch.bfloat16).to(w.dtype)


class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kind):
        return _QUANT[kind](x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        return g, None


_QUANT = {"fp8": q_fp8_tiles, "fp8row": q_fp8_rows, "fp4": q_fp4_rows, "fp4c": q_fp4_e4m3, "bf16": q_bf16}


def ste(x, kind):
    return STE.apply(x, kind)


def act8(x):
    """activation in front of an FP8 or FP4 matrix"""
    return ste(x, "fp8row") if Quant.act else x


def storage(w, kind, dtype):
    """a weight in the compute dtype, on its storage grid if that is switched on"""
    if Quant.weights:
        w = ste(w, kind)
    return w.to(dtype)


def e4m3_codes(v):
    """on-grid float32 -> uint8"""
    a = v.abs()
    b = a.clamp_min(2.0 ** -6).contiguous().view(torch.int32)
    e = (b >> 23) - 127
    m = torch.where(a >= 2.0 ** -6, ((e + 7) << 3) | ((b >> 20) & 7), torch.round(a * 512).to(torch.int32))
    return (m | (torch.signbit(v).to(torch.int32) << 7)).to(torch.uint8)


def e2m1_codes(v):
    a = v.abs()
    upper = torch.where(a <= 4.0, torch.round(a) + 2, torch.round(a / 2) + 4)
    c = torch.where(a <= 2.0, torch.round(a * 2), upper).to(torch.int32)
    return (c | (torch.signbit(v).to(torch.int32) << 3)).to(torch.uint8)


def e8m0(s):
    return ((s.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8)


def bf16_codes(t):
    b = t.float().contiguous().view(torch.int32)
    b = (b + 0x7FFF + ((b >> 16) & 1)) >> 16
    return b.to(torch.int16).numpy()
