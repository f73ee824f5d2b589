"""Token files on the device, and batches of crops."""
import json
import lzma
import os

import numpy as np
import torch


def read_bytes(path):
    """contents of `path`, or of `path`.xz"""
    if os.path.exists(path):
        with open(path, "rb") as f:
            return f.read()
    with lzma.open(path + ".xz") as f:
        return f.read()


def present(path):
    return os.path.exists(path) or os.path.exists(path + ".xz")


class Data:
    """train.bin and val.bin of a folder (README.md describes them).

    Documents are BOS ... EOS. A sample is a crop of the stream behind a BOS at position 0; `doc_share` of the
    samples start at the beginning of a document. `mix` moves the groups' shares from their sizes (0) to the
    weights of train.groups.json (1), geometrically.
    """

    def __init__(self, folder, T, bos, device, seed, doc_share=0.3, mix=0.6, synthetic=None):
        self.T, self.bos, self.dev, self.doc_share = T, bos, device, doc_share
        self.rng = torch.Generator(device="cpu").manual_seed(seed)
        self.tags = None
        if synthetic is not None:
            cut = len(synthetic) * 7 // 8
            groups, val = [("synthetic", synthetic[:cut], 1.0)], synthetic[cut:]
        else:
            groups, val = self.read_folder(folder)
        total = sum(len(t) for _, t, _ in groups)
        weight_sum = sum(w for _, _, w in groups)
        groups = [g for g in groups if len(g[1]) > T + 8]
        shares = [(len(t) / total) ** (1 - mix) * (w / weight_sum) ** mix for _, t, w in groups]
        self.names = [name for name, _, _ in groups]
        self.sizes = [len(t) for _, t, _ in groups]
        self.weights = torch.tensor(shares, dtype=torch.double)
        self.weights = self.weights / self.weights.sum()
        self.train = [self.put(t) for _, t, _ in groups]
        self.val = self.put(val)
        self.starts = [torch.as_tensor(np.flatnonzero(t[:len(t) - T - 2] == bos) + 1) for _, t, _ in groups]
        self.total = sum(self.sizes)

    def read_folder(self, folder):
        """-> [(group, tokens, weight)], validation tokens"""
        train = np.frombuffer(read_bytes(os.path.join(folder, "train.bin")), "<u2")
        val = np.frombuffer(read_bytes(os.path.join(folder, "val.bin")), "<u2")
        path = os.path.join(folder, "train.groups.json")
        groups = [("train", train, 1.0)]
        if present(path):
            table = json.loads(read_bytes(path))
            groups = [(name, train[g["start"]:g["end"]], float(g["weight"])) for name, g in table.items()]
        path = os.path.join(folder, "val.idx")
        if present(path):
            names, ids = [], np.zeros(len(val), np.int16)
            for line in read_bytes(path).decode().splitlines():
                offset, length, name = line.split()[:3]
                if name not in names:
                    names.append(name)
                ids[int(offset):int(offset) + int(length)] = names.index(name)
            self.tags = names, torch.as_tensor(ids, device=self.dev)
        return groups, val

    def put(self, tokens):
        # int16 holds the ids' 16 bits: torch 1.x has no uint16. crop() undoes the sign.
        return torch.as_tensor(np.ascontiguousarray(tokens).astype(np.int16), device=self.dev)

    def crop(self, stream, offsets):
        """-> inputs, targets [len(offsets), T]"""
        i = offsets[:, None] + torch.arange(self.T, device=self.dev)
        y = stream[i].long() & 0xFFFF
        x = torch.cat([torch.full_like(y[:, :1], self.bos), y[:, :-1]], 1)
        return x, y

    def batch(self, B):
        pick = torch.multinomial(self.weights, B, replacement=True, generator=self.rng)
        xs, ys = [], []
        for group in range(len(self.train)):
            n = int((pick == group).sum())
            if not n:
                continue
            offsets = torch.randint(0, max(1, self.sizes[group] - self.T), (n,), generator=self.rng)
            starts = self.starts[group]
            if starts.numel():
                at_start = torch.rand(n, generator=self.rng) < self.doc_share
                chosen = starts[torch.randint(0, starts.numel(), (n,), generator=self.rng)]
                offsets = torch.where(at_start, chosen, offsets)
            x, y = self.crop(self.train[group], offsets.to(self.dev))
            xs.append(x)
            ys.append(y)
        return torch.cat(xs), torch.cat(ys)

    def val_batches(self, B, n):
        """always the same n batches, evenly spread over the validation stream"""
        last = self.val.numel() - self.T - 1
        offsets = torch.linspace(0, last, B * n, dtype=torch.double).long().to(self.dev)
        for i in range(n):
            yield self.crop(self.val, offsets[i * B:(i + 1) * B])


def synthetic_tokens(vocab, n, seed):
    """a random walk with repeated phrases, for trial runs without data"""
    rng = np.random.default_rng(seed)
    states = min(vocab, 2000)
    following = rng.integers(3, states, size=(states, 4))
    choice = rng.choice(4, size=n, p=[0.6, 0.2, 0.15, 0.05])
    out = np.empty(n, np.uint16)
    token = 5
    for i in range(n):
        token = int(following[token, choice[i]]) if rng.random() > 0.03 else int(rng.integers(3, states))
        out[i] = token
    return out
