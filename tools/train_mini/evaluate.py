"""Validation, generation, acceptance of drafts, and the final export with eval.json."""
import json
import os
import shutil

import torch

from engram import byte_letters
from layout import export, import_folder
from losses import ce_loss
from switches import Backend, Quant

CHATS = ("Tell me a short story about a little fox.", "Who are you?", "What is 7 plus 5?",
         "고양이에 대한 짧은 이야기를 들려줘.", "What is the capital of France?",
         "Write a C function that adds two numbers.")


@torch.no_grad()
def validate(model, data, batch, n, select=True):
    """mean loss of n validation batches, nats per token"""
    model.eval()
    losses = [ce_loss(model, model(x, select=select)["z"], y)[0] for x, y in data.val_batches(batch, n)]
    return float(sum(losses)) / len(losses)


def validate_formats(model, data, batch, n, snap):
    """validation loss with more and more quantisation; calls snap() to put the weights on their grids"""
    losses = {}

    def measure(name, **quant):
        Quant.set(**quant)
        losses[name] = validate(model, data, batch, n)

    measure("unquantised")
    measure("weights_fake_quantised", weights=True)
    snap()
    measure("weights_stored")
    if data.tags is not None:
        losses["weights_stored_by_group"] = validate_groups(model, data, batch)
    measure("weights_stored_kv_fp4", kv=True)
    measure("weights_stored_kv_fp4_act_fp8", kv=True, act=True)
    Quant.set()
    return losses


@torch.no_grad()
def validate_groups(model, data, batch):
    """mean loss per document group over the whole validation stream"""
    model.eval()
    names, ids = data.tags
    T = data.T
    total, count = (torch.zeros(len(names), device=data.dev) for _ in range(2))
    offsets = torch.arange(0, data.val.numel() - T, T, device=data.dev)
    for part in offsets.split(batch):
        x, y = data.crop(data.val, part)
        z = model(x)["z"]
        for b in range(0, len(part), 8):        # a full matrix of logits at a time would be large
            lp = torch.log_softmax(model.logits(z[b:b + 8]), -1)
            lp = lp.gather(-1, y[b:b + 8].unsqueeze(-1)).squeeze(-1)
            group = ids[part[b:b + 8, None] + torch.arange(T, device=data.dev)].long().reshape(-1)
            total.scatter_add_(0, group, -lp.reshape(-1))
            count.scatter_add_(0, group, torch.ones_like(group, dtype=torch.float32))
    return {n: round(float(t / c), 4) for n, t, c in zip(names, total, count.tolist()) if c > 0}


@torch.no_grad()
def generate(model, prompts, n, temperature=0.0, pad_to=64):
    """prompts: lists of ids without BOS -> ids [prompts, ..], lengths. Every token costs a whole forward."""
    model.eval()
    dev = model.embed.device
    rows = torch.arange(len(prompts), device=dev)
    lens = torch.tensor([len(p) + 1 for p in prompts], device=dev)
    longest = int(lens.max()) + n
    shape = (len(prompts), longest + -longest % pad_to)
    ids = torch.full(shape, model.cfg.pad, dtype=torch.long, device=dev)
    for i, p in enumerate(prompts):
        ids[i, 0] = model.cfg.bos
        ids[i, 1:len(p) + 1] = torch.as_tensor(p, device=dev)
    for _ in range(n):
        T = int(lens.max())
        z = model(ids[:, :T + -T % pad_to])["z"]
        logits = model.logits(z[rows, lens - 1])
        if temperature > 0:
            uniform = torch.rand_like(logits).clamp(1e-9, 1 - 1e-9)
            logits = logits / temperature - torch.log(-torch.log(uniform))
        ids[rows, lens] = logits.argmax(-1)
        lens = lens + 1
    return ids, lens


@torch.no_grad()
def greedy_acceptance(model, ids, lens, start):
    """drafts against the model's own greedy continuation; every position from `start` on is an anchor once"""
    block = model.cfg.dspark_block
    x = ids[:, :int(lens.min())]
    rows = model.draft_context(model(x, need_main=True)["main"])
    pos = torch.arange(start, x.shape[1] - block - 1, device=x.device)
    pos = pos[None].expand(x.shape[0], -1).contiguous()
    if pos.numel() == 0:
        return None
    drafts, _, conf = model.draft_greedy(rows, x.gather(1, pos), pos)
    target = torch.stack([x.gather(1, pos + 1 + k) for k in range(block)], -1)
    good = torch.cumprod((drafts == target).long(), -1)
    gated = good * (torch.cumprod(torch.sigmoid(conf), -1) >= 0.1).long()
    return {"mean_accepted": float(good.sum(-1).float().mean()),
            "per_position": [round(float(v), 4) for v in good.float().mean((0, 1))],
            "mean_accepted_conf0.1": float(gated.sum(-1).float().mean()), "rounds": int(pos.numel())}


@torch.no_grad()
def sampling_acceptance(trainer):
    """probability that a draft survives sampling, on validation text"""
    acc = []
    for x, y in trainer.data.val_batches(trainer.a.batch, 1):
        acc.append(trainer.dspark_loss(x, y, trainer.a.anchors)[2].reshape(-1, trainer.cfg.dspark_block))
    acc = torch.cat(acc)
    return {"per_position": [round(float(v), 4) for v in acc.mean(0)],
            "expected_drafts": float(torch.cumprod(acc, -1).sum(-1).mean())}


def decoder(tok):
    """-> function from ids to text"""
    letters = byte_letters()
    names = {i: s for s, i in tok["model"]["vocab"].items()}
    added = {t["id"]: t["content"] for t in tok["added_tokens"]}

    def decode(ids):
        out, pending = "", b""
        for i in ids:
            if i in added:
                out += pending.decode("utf-8", "replace") + added[i]
                pending = b""
            elif i in names:
                pending += bytes(letters[c] for c in names[i])
        return out + pending.decode("utf-8", "replace")
    return decode


def encode_chats(path):
    """[(question, prompt ids)]; empty without the tokenizers package"""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return []
    t = Tokenizer.from_file(path)
    return [(c, t.encode(f"<｜User｜>{c}<｜Assistant｜></think>", add_special_tokens=False).ids) for c in CHATS]


def val_prompts(data, bos, n, length=24):
    """beginnings of n validation documents"""
    heads = torch.nonzero(data.val[:-64] == bos).flatten().tolist()
    heads = heads or list(range(0, data.val.numel() - 64, 997))
    begins = [heads[i * len(heads) // n] + 1 for i in range(n)]
    return [(data.val[b:b + length].long() & 0xFFFF).tolist() for b in begins]


def samples(trainer, result):
    """sample texts; also measures DSpark on the greedy ones"""
    model, a = trainer.model, trainer.a
    text = decoder(trainer.tok)
    prompts = val_prompts(trainer.data, trainer.cfg.bos, a.samples)
    begin = len(prompts[0]) + 1
    greedy, lens = generate(model, prompts, a.generate)
    result["dspark_greedy"] = greedy_acceptance(model, greedy, lens, begin + 1)
    result["dspark_sampling_acceptance"] = sampling_acceptance(trainer)
    sampled, _ = generate(model, prompts, a.generate, 0.8)
    out = [{"prompt": text(p), "greedy": text(g[begin:n].tolist()), "t0.8": text(s[begin:n].tolist())}
           for p, g, s, n in zip(prompts, greedy, sampled, lens.tolist())]
    chats = encode_chats(a.tokenizer)
    if chats:
        ids, lens = generate(model, [prompt for _, prompt in chats], a.generate, 0.7)
        for (question, prompt), row, n in zip(chats, ids, lens.tolist()):
            answer = text(row[len(prompt) + 1:n].tolist()).split("<｜end▁of▁sentence｜>")[0]
            out.append({"prompt": question, "t0.7": answer})
    return out


def finish(trainer, folder):
    """exports the model, reads the export back, and writes eval.json and metrics.jsonl beside it"""
    a, model, state = trainer.a, trainer.model, trainer.state
    shutil.rmtree(folder, ignore_errors=True)
    Quant.set()
    Backend.attention, Backend.experts = "dense", "loop"      # a handful of batches needs no compilation
    export(model, folder, tokenizer=a.tokenizer)
    result = {"backbone": state["backbone_eval"], "steps": state["step"],
              "dspark_steps": state["dspark_step"], "tokens": state["tokens"],
              "train_tokens_available": trainer.data.total,
              "parameters": sum(p.numel() for p in model.parameters())}
    result["unused_tensors"] = import_folder(model, folder)
    result["val_exported_reloaded"] = validate(model, trainer.data, a.batch, a.val_batches)
    result["samples"] = samples(trainer, result)
    with open(os.path.join(folder, "eval.json"), "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1, ensure_ascii=False)
    shutil.copyfile(trainer.metrics, os.path.join(folder, "metrics.jsonl"))
