"""Engram: hash constants, row numbers of every position, the gated write, the token map of a tokenizer."""
import re
import unicodedata

import numpy as np
import torch
import torch.nn.functional as F

from number_formats import act8


def is_prime(n):
    if n < 2:
        return False
    i = 2
    while i * i <= n:
        if n % i == 0:
            return False
        i += 1
    return True


def engram_primes(cfg):
    """per layer: flat list of table sizes, n-gram order first, then head; a prime is never used twice"""
    seen, out = set(), []
    for _ in cfg.engram_layers:
        flat = []
        for _ in range(cfg.engram_ngram - 1):
            c = cfg.engram_bucket - 1
            for _ in range(cfg.engram_heads):
                c += 1
                while not is_prime(c) or c in seen:
                    c += 1
                seen.add(c)
                flat.append(c)
        out.append(flat)
    return out


def engram_multipliers(cfg):
    bound = max(1, (np.iinfo(np.int64).max // cfg.engram_vocab) // 2)
    rows = []
    for layer in cfg.engram_layers:
        rng = np.random.default_rng(10007 * layer)
        v = rng.integers(low=0, high=bound, size=(cfg.engram_ngram,), dtype=np.int64)
        rows.append(v * 2 + 1)
    return np.stack(rows)


class EngramHash:
    def __init__(self, cfg, token_map, device):
        self.n = cfg.engram_ngram
        self.heads = cfg.engram_heads
        self.map = torch.as_tensor(np.asarray(token_map, dtype=np.int64), device=device)
        assert int(self.map.max()) + 1 == cfg.engram_vocab, (int(self.map.max()) + 1, cfg.engram_vocab)
        self.pad = int(self.map[cfg.engram_pad])
        pr = engram_primes(cfg)
        self.primes = torch.tensor(pr, device=device)
        self.offsets = torch.tensor([[0] + list(np.cumsum(p[:-1])) for p in pr], device=device)
        self.mult = torch.as_tensor(engram_multipliers(cfg), device=device)

    @torch.no_grad()
    def __call__(self, ids):
        """ids [B,T] starting at position 0 -> [layers, B, T, columns] row ids"""
        c = self.map[ids]
        B, T = c.shape
        sh = [c]
        for k in range(1, self.n):
            p = torch.full_like(c, self.pad)
            p[:, k:] = c[:, :T - k]
            sh.append(p)
        out = []
        for li in range(self.mult.shape[0]):
            r = sh[0] * self.mult[li, 0]
            cols = []
            for k in range(1, self.n):
                r = torch.bitwise_xor(r, sh[k] * self.mult[li, k])
                a = (k - 1) * self.heads
                cols.append(r.unsqueeze(-1) % self.primes[li, a:a + self.heads])
            out.append(torch.cat(cols, -1) + self.offsets[li])
        return torch.stack(out)


def engram_write(X, e, wkv, qw, kw, eps):
    """streams X [N,S,d], looked-up rows e [N,columns*dim] -> streams with the gated value added"""
    N, S, d = X.shape
    kv = F.linear(act8(e), wkv)
    key, val = kv[:, :S * d].float().reshape(N, S, d), kv[:, S * d:].float()
    h = X.float()
    dot = (h * (qw.float() * kw.float()) * key).sum(-1)
    dot = dot * torch.rsqrt(h.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps) * d ** -0.5
    mag = dot.abs().clamp_min(1e-6).sqrt()
    gate = torch.sigmoid(torch.where(torch.signbit(dot), -mag, mag))
    return (h + gate.unsqueeze(-1) * val.unsqueeze(1)).to(X.dtype)


# Unicode White_Space
_WS = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
       0x3000}


def _norm_text(s):
    s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", s))
    s = "".join(c for c in s if unicodedata.category(c)[0] != "M")
    s = "".join(c.lower() for c in s)
    s = re.sub(r"[ \t\r\n]+", " ", s)
    if s == " ":
        s = "\ue000"
    a, b = 0, len(s)
    while a < b and ord(s[a]) in _WS:
        a += 1
    while b > a and ord(s[b - 1]) in _WS:
        b -= 1
    return s[a:b].replace("\ue000", " ")


def byte_letters():
    """letter of a byte-level BPE vocabulary -> byte"""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(b): b for b in printable}
    for n, b in enumerate(b for b in range(256) if b not in printable):
        letters[chr(256 + n)] = b
    return letters


def token_map(tok, vocab_size):
    """tok: parsed tokenizer.json (byte-level BPE) -> compressed id of every token id.
    Ids beyond the tokenizer get one of their own."""
    u2b = byte_letters()
    added = {a["id"]: a["content"] for a in tok.get("added_tokens", [])}
    names = {i: s for s, i in tok["model"]["vocab"].items()}
    names.update(added)
    keys, out = {}, []
    for i in range(vocab_size):
        raw = names.get(i)
        if raw is None:
            key = ("unused", i)
        else:
            text = raw if i in added else bytes(u2b[c] for c in raw).decode("utf-8", errors="replace")
            key = raw if "\ufffd" in text else (_norm_text(text) or text)
        out.append(keys.setdefault(key, len(keys)))
    return out
