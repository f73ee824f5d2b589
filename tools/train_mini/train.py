#!/usr/bin/env python3
"""Trains the embedded model on one GPU: backbone, then DSpark over the frozen backbone, then export.

Resumes from WORK/state.pt if that exists. README.md says what data it wants and what to expect.
"""
import argparse
import importlib
import json
import math
import os
import time

import torch

from config import Config
from data import Data, synthetic_tokens
from engram import token_map
from evaluate import finish, validate, validate_formats
from layout import snap_weights
from losses import ce_loss, dspark_losses
from model import MiniV41
from optim import Optim
from switches import Backend, Quant

START = time.time()


def log(*words):
    print(f"[{time.time() - START:7.1f}s]", *words, flush=True)


def cosine(fraction):
    return 0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))


class Trainer:
    def __init__(self, args, cfg, tok, data, device, dtype):
        self.a, self.cfg, self.tok, self.data, self.dev = args, cfg, tok, data, device
        torch.manual_seed(args.seed)
        self.token_map = token_map(tok, cfg.vocab_size)
        cfg.engram_vocab = max(self.token_map) + 1
        self.model = MiniV41(cfg, self.token_map, device, dtype)
        self.optim = {"backbone": Optim(self.model, "backbone", args.lr, args.decay),
                      "dspark": Optim(self.model, "dspark", args.lr, args.decay)}
        self.state = {"phase": "backbone", "step": 0, "dspark_step": 0, "tokens": 0, "backbone_eval": None}
        self.checkpoint = os.path.join(args.work, "state.pt")
        self.metrics = os.path.join(args.work, "metrics.jsonl")

    def save(self):
        torch.save({"model": self.model.state_dict(), "optim": {k: o.state() for k, o in self.optim.items()},
                    "state": self.state, "rng": self.data.rng.get_state()}, self.checkpoint + ".tmp")
        os.replace(self.checkpoint + ".tmp", self.checkpoint)
        log(f"checkpoint at step {self.state['step']}, DSpark step {self.state['dspark_step']}")

    def load(self):
        # a file this script wrote: it holds optimiser state and numbers beside the tensors
        saved = torch.load(self.checkpoint, map_location=self.dev)
        self.model.load_state_dict(saved["model"])
        for k, o in self.optim.items():
            o.load(saved["optim"][k])
        self.state = saved["state"]
        self.data.rng.set_state(saved["rng"].cpu())
        log("resumed at", {k: v for k, v in self.state.items() if k != "backbone_eval"})

    def record(self, **values):
        with open(self.metrics, "a") as f:
            f.write(json.dumps(values) + "\n")

    def balance(self, blocks, loads, step):
        """moves every expert's selection bias by the sign of its load error"""
        speed = 1e-3 * (1 + 9 * math.exp(-step / 200))
        with torch.no_grad():
            for L, count in zip(blocks, loads):
                count = count.float()
                L.gate_bias.add_(speed * torch.sign(count.mean() - count))

    def backbone_loss(self, x, y, select):
        """-> loss, cross entropy, divergence of the indexer from the attention, experts' loads"""
        n = min(self.a.kl_queries, self.data.T)
        stride = self.data.T // n
        shift = int(torch.randint(0, stride, (1,), generator=self.data.rng))
        out = self.model(x, select=select, kl_pos=torch.arange(n, device=self.dev) * stride + shift)
        ce, _ = ce_loss(self.model, out["z"], y, 1e-5)
        kl = sum(out["kl"]) / len(out["kl"])
        return ce + self.a.kl_weight * kl, ce.detach(), kl.detach(), out["loads"]

    def backbone_step(self):
        step, a = self.state["step"], self.a
        fraction = step / a.steps
        quantised = fraction >= a.quantise_from
        Quant.set(weights=quantised, kv=quantised)
        tired = self.state["tokens"] > a.dropout_after * self.data.total
        self.model.drop, self.model.drop_rows = (a.dropout, a.engram_dropout) if tired else (0.0, 0.0)
        self.model.train()
        x, y = self.data.batch(a.batch)
        loss, ce, kl, loads = self.backbone_loss(x, y, fraction >= a.select_from)
        loss.backward()
        scale = min(1.0, (step + 1) / a.warmup) * cosine(fraction)
        norm = self.optim["backbone"].step(scale)
        self.balance(self.model.layers, loads, step)
        self.state["step"] += 1
        self.state["tokens"] += x.numel()
        load = torch.stack([c.max() / c.float().mean() for c in loads]).max()
        return {"ce": ce, "kl": kl, "norm": norm, "lr": scale, "load": load}

    def dspark_loss(self, x, y, anchors):
        """drafts at sampled anchors against the frozen backbone -> loss, parts, acceptance, loads"""
        cfg, m, block = self.cfg, self.model, self.cfg.dspark_block
        B, T = x.shape
        weights = Quant.weights
        Quant.weights = False                     # the backbone's weights already lie on their storage grids
        with torch.no_grad():
            out = m(x, select=True, need_main=True)
            Quant.weights = weights
            pos = torch.randint(1, T - block, (B, anchors), generator=self.data.rng).to(self.dev)
            p = pos.unsqueeze(-1) + torch.arange(block, device=self.dev)
            tokens = torch.cat([x, y[:, -1:]], 1)
            prev, target = (tokens.gather(1, i.reshape(B, -1)).reshape(i.shape) for i in (p, p + 1))
            z = out["z"].gather(1, p.reshape(B, -1, 1).expand(-1, -1, cfg.dim))
            teacher = m.logits(z.reshape(B, anchors, block, cfg.dim))
        zn, h, loads = m.draft(m.draft_context(out["main"]), prev[..., 0], pos)
        bias, e = m.markov(prev)
        conf = m.confidence(h.detach(), e.detach())
        wk = torch.exp(-torch.arange(block, device=self.dev).float() / block)
        ce, tv, bce, acc = dspark_losses(m.logits(zn, frozen=True) + bias, teacher, target, conf, wk)
        return 0.1 * ce + 0.9 * tv + bce, (ce.detach(), tv.detach(), bce.detach()), acc, loads

    def dspark_step(self):
        step, a = self.state["dspark_step"], self.a
        fraction = step / a.dspark_steps
        Quant.set(weights=fraction > 0.4, kv=True)
        self.model.eval()
        x, y = self.data.batch(a.batch)
        loss, (ce, tv, bce), acc, loads = self.dspark_loss(x, y, a.anchors)
        loss.backward()
        scale = min(1.0, (step + 1) / 50) * cosine(fraction)
        self.optim["dspark"].step(scale)
        self.balance(self.model.mtp, loads, step)
        self.state["dspark_step"] += 1
        drafts = torch.cumprod(acc.reshape(-1, self.cfg.dspark_block), -1).sum(-1).mean()
        return {"ce": ce, "tv": tv, "conf": bce, "drafts": drafts, "lr": scale}

    def check_fast_paths(self):
        """compares states and gradients of the chosen paths with the dense ones; stops if they differ"""
        chosen = Backend.attention, Backend.experts
        x, y = self.data.batch(2)
        self.model.eval()
        results = []
        for paths in (chosen, ("dense", "loop")):
            Backend.attention, Backend.experts = paths
            z = self.model(x, select=False)["z"]
            ce_loss(self.model, z, y)[0].backward()
            gradients = [p.grad.float().flatten() for p in self.model.layers[0].parameters() if p.dim() >= 2]
            results.append((z.detach().float(), torch.cat(gradients)))
            for p in self.model.parameters():
                p.grad = None
        Backend.attention, Backend.experts = chosen
        (z1, g1), (z2, g2) = results
        difference = float(((z1 - z2).norm(dim=-1) / z2.norm(dim=-1)).median())
        cosine_of_gradients = float((g1 * g2).sum() / (g1.norm() * g2.norm()))
        log(f"fast against dense paths: states differ by {difference:.4f} (median), "
            f"cosine of the first layer's gradients {cosine_of_gradients:.4f}")
        if not (difference < 0.1 and cosine_of_gradients > 0.8):
            raise SystemExit("the fast paths do not agree with the dense ones: "
                             "try --attention dense or --experts loop")

    def phase(self, name, counter, steps, step):
        """runs one phase to its end; logs, validates and saves on the way"""
        a, began, first = self.a, time.time(), self.state[counter]
        while self.state[counter] < steps:
            values = step()
            n = self.state[counter]
            if n % a.log_every == 0:            # only here does the host wait for the GPU
                values = {k: float(v) for k, v in values.items()}
                values["rate"] = round((n - first) / (time.time() - began), 3)
                log(name, n, {k: round(v, 4) for k, v in values.items()})
                self.record(**{counter: n, "tokens": self.state["tokens"], **values})
                if not math.isfinite(values["ce"]):
                    raise SystemExit(f"the loss is not finite; resume {self.checkpoint} with a smaller --lr")
            if name == "backbone" and n % a.val_every == 0:
                selected = n / a.steps >= a.select_from
                val = validate(self.model, self.data, a.batch, 1, select=selected)
                log("validation", round(val, 4), "epochs", round(self.state["tokens"] / self.data.total, 2))
                self.record(**{counter: n, "val": val})
            if n % a.save_every == 0:
                self.save()
                began, first = time.time(), n

    def run(self):
        if os.path.exists(self.checkpoint):
            self.load()
        if Backend.attention != "dense" or Backend.experts != "loop":
            self.check_fast_paths()
        if self.state["phase"] == "backbone":
            self.phase("backbone", "step", self.a.steps, self.backbone_step)
            self.state["backbone_eval"] = validate_formats(
                self.model, self.data, self.a.batch, self.a.val_batches,
                snap=lambda: snap_weights(self.model, lambda name: not name.startswith("mtp.")))
            log("validation", self.state["backbone_eval"])
            self.state["phase"] = "dspark"
            self.save()
        if self.state["phase"] == "dspark":
            self.phase("dspark", "dspark_step", self.a.dspark_steps, self.dspark_step)
            snap_weights(self.model, lambda name: name.startswith("mtp."))
            self.state["phase"] = "export"
            self.save()
        finish(self, os.path.join(self.a.work, "export"))
        log("the model is in", os.path.join(self.a.work, "export"))


def tiny(args, cpu):
    """sizes for a trial of every phase: about a minute on a GPU, a few on a CPU"""
    args.lr, args.kl_queries = 5e-3, 16
    if cpu:
        args.seq, args.batch, args.anchors, args.generate, args.samples = 96, 4, 4, 12, 2
        args.steps, args.dspark_steps, args.warmup = 20, 8, 5
        args.log_every, args.val_every, args.save_every = 5, 10, 10
        return Config(dim=64, n_heads=2, head_dim=32, rope_dim=16, q_lora_rank=32, o_lora_rank=32, inter=32,
                      n_experts=4, engram_bucket=100, engram_heads=2, window=16, index_topk=12, index_heads=2,
                      candidate_topk=5, candidate_block=4, dspark_experts=4, dspark_rank=16, yarn_orig=64)
    args.seq, args.batch, args.anchors, args.generate, args.samples = 256, 8, 8, 24, 4
    args.steps, args.dspark_steps, args.warmup = 200, 100, 10
    args.log_every, args.val_every, args.save_every = 20, 50, 100
    return Config(dim=128, n_heads=4, q_lora_rank=64, o_lora_rank=64, inter=64, n_experts=8,
                  engram_bucket=500, window=32, index_topk=16, candidate_topk=6, candidate_block=8,
                  dspark_experts=4, dspark_rank=32, yarn_orig=256)


def arguments():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--data", default="data", help="folder with train.bin and val.bin")
    p.add_argument("--tokenizer", default=os.path.join(here, "..", "..", "models", "mini", "tokenizer.json"))
    p.add_argument("--work", default="work", help="checkpoint, metrics and export")
    p.add_argument("--tiny", action="store_true", help="trial of every phase at a tiny size")
    p.add_argument("--synthetic", action="store_true", help="made-up tokens instead of --data")
    p.add_argument("--steps", type=int, default=3000, help="backbone steps")
    p.add_argument("--dspark-steps", type=int, default=500)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--decay", type=float, default=0.1, help="weight decay of matrices")
    p.add_argument("--warmup", type=int, default=100, help="steps")
    p.add_argument("--select-from", type=float, default=0.19, help="fraction of steps that attend all rows")
    p.add_argument("--quantise-from", type=float, default=0.85, help="fraction of the steps left unquantised")
    p.add_argument("--mix", type=float, default=0.6, help="0: natural shares of the groups, 1: their weights")
    p.add_argument("--dropout", type=float, default=0.1, help="on sub-layer outputs")
    p.add_argument("--engram-dropout", type=float, default=0.15, help="on whole Engram rows")
    p.add_argument("--dropout-after", type=float, default=2.0, help="epochs without dropout")
    p.add_argument("--kl-weight", type=float, default=1.0, help="weight of the indexer's loss")
    p.add_argument("--kl-queries", type=int, default=32, help="queries a sequence that train the indexer")
    p.add_argument("--anchors", type=int, default=48, help="drafts a sequence that train DSpark")
    p.add_argument("--val-batches", type=int, default=2)
    p.add_argument("--val-every", type=int, default=250)
    p.add_argument("--save-every", type=int, default=500)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--samples", type=int, default=8, help="sample texts in eval.json")
    p.add_argument("--generate", type=int, default=96, help="tokens of a sample text")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--attention", choices=("flex", "dense"), help="default: flex on CUDA")
    p.add_argument("--experts", choices=("grouped", "loop"), help="default: grouped on CUDA")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main():
    args = arguments()
    cpu = args.device == "cpu"
    torch.set_float32_matmul_precision("high")
    if not cpu:
        # attention compiles once a layer kind, batch shape and mode; the default limits are lower than that
        dynamo = importlib.import_module("torch._dynamo").config
        for name in ("recompile_limit", "cache_size_limit"):
            if hasattr(dynamo, name):
                setattr(dynamo, name, 64)
    Backend.attention = args.attention or ("dense" if cpu else "flex")
    Backend.experts = args.experts or ("loop" if cpu else "grouped")
    cfg = tiny(args, cpu) if args.tiny else Config()
    with open(args.tokenizer, encoding="utf-8") as f:
        tok = json.load(f)
    special = {t["content"]: t["id"] for t in tok["added_tokens"]}
    cfg.dspark_noise = special["<｜System｜>"]           # as in the release
    cfg.image_token_id = special["<｜deepseek_image｜>"]
    synthetic = synthetic_tokens(cfg.vocab_size, 400_000, args.seed) if args.synthetic else None
    data = Data(args.data, args.seq, cfg.bos, args.device, args.seed, mix=args.mix, synthetic=synthetic)
    os.makedirs(args.work, exist_ok=True)
    log("device", args.device, "torch", torch.__version__, "tokens", f"{data.total:,}",
        "shares", {n: round(float(w), 3) for n, w in zip(data.names, data.weights)})
    trainer = Trainer(args, cfg, tok, data, args.device, torch.float32 if cpu else torch.bfloat16)
    log(f"parameters {sum(p.numel() for p in trainer.model.parameters()) / 1e6:.1f} M")
    trainer.run()


if __name__ == "__main__":
    main()
