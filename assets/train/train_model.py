"""Trains transformer and text encoder together, from scratch or from a checkpoint, for a given time (flow matching).

A large pool of encoded pictures with tokenised captions lives on the device. Worker processes keep drawing new pictures
and captions; every step encodes a few of them over the oldest entries of the pool, so that the encoder's cost is paid
once for several uses of a picture.
"""
import argparse
import copy
import json
import math
import multiprocessing as mp
import os
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def orthogonalise(g):
    """Newton-Schulz iteration on a stack of matrices (n, a, b)."""
    import torch
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall: x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    return (x.mT if tall else x).float()


def make_optimizer(nets, lr, muon, fused):
    import torch

    class Both:
        """Muon for the matrices inside blocks, AdamW for everything else."""
        def __init__(self):
            hidden, other = [], []
            for name, q in nets.named_parameters():
                inside = ".layers." in name or "transformer_blocks" in name or "txt_in" in name
                (hidden if muon and q.ndim == 2 and inside else other).append(q)
            self.adam = torch.optim.AdamW(other, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, fused=fused)
            self.groups = {}
            for q in hidden: self.groups.setdefault(tuple(q.shape), []).append(q)
            self.momentum = {s: torch.zeros(len(v), *s, device=v[0].device) for s, v in self.groups.items()}
            self.ortho = torch.compile(orthogonalise) if fused else orthogonalise

        @torch.no_grad()
        def step(self, lr):
            for g in self.adam.param_groups: g["lr"] = lr * (2 / 3 if muon else 1)
            self.adam.step()
            for shape, qs in self.groups.items():
                grad, m = torch.stack([q.grad for q in qs]), self.momentum[shape]
                m.lerp_(grad, 0.05)
                update = self.ortho(grad.lerp(m, 0.95)) * (0.2 * max(shape) ** 0.5)
                torch._foreach_add_(qs, list((-lr * update).unbind(0)))
    return Both()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="."); p.add_argument("--vae", default="vae.pt"); p.add_argument("--init", nargs="*")
    p.add_argument("--out", default="."); p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--deadline", type=float, help="absolute time at which training ends, instead of --seconds")
    p.add_argument("--batch", type=int, default=512); p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--pool", type=int, default=131072); p.add_argument("--refresh", type=int, default=32)
    p.add_argument("--decay-from", type=float, default=1.0, help="fraction of the time after which the rate falls to zero")
    p.add_argument("--adamw", action="store_true"); p.add_argument("--ema", type=float, default=0.999)
    p.add_argument("--sigmas", type=float, nargs="*", help="late in training, half of the batch at exactly these noise levels")
    p.add_argument("--guidance", type=float, default=0.0,
                   help="late in training, aim at v + g (v_caption - v_blank), the difference taken from frozen average weights")
    p.add_argument("--teacher", nargs="*", help="unguided weights for that difference, instead of this run's average")
    p.add_argument("--blank", type=float, default=0.1, help="share of blank captions")
    p.add_argument("--save-every", type=float, help="seconds between saved averages (last_[ab].pt)")
    p.add_argument("--late-from", type=float, default=0.7, help="fraction of the time after which guidance and --sigmas apply")
    p.add_argument("--limit", type=int); p.add_argument("--compile", action="store_true"); p.add_argument("--workers", type=int, default=10)
    p.add_argument("--log-every", type=int, default=200); p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    start = time.time()
    import captions as C
    names_file = f"{a.data}/names.json"
    width, views, chunk = 40, 3, 4096
    pool_workers = mp.get_context("fork").Pool(a.workers)
    jobs = ((names_file, f"{a.data}/tokenizer.json", chunk if not a.limit else 256, views, a.seed * 1000003 + k, width, a.limit) for k in range(10**6))
    feed = []                                                    # results that wait to be used
    pending = []
    def pump():
        while len(pending) < 2 * a.workers and len(feed) < 64: pending.append(pool_workers.apply_async(C.batch_specs, (next(jobs),)))
        while pending and pending[0].ready(): feed.append(pending.pop(0).get())
    pump()
    import numpy as np
    import torch
    import torch.nn.functional as F
    from tokenizers import Tokenizer
    import models as M
    from pictures import Pictures
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = dev == "cuda"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(a.seed)
    tok = Tokenizer.from_file(f"{a.data}/tokenizer.json")
    prefix_ids = M.prefix(tok, dev)
    nets = torch.nn.ModuleDict(dict(text=M.build_text_encoder(tok), image=M.build_transformer())).to(dev)
    if a.init:
        for f in a.init: nets.load_state_dict(torch.load(f, map_location=dev), strict=False)
    average = torch.nn.ModuleDict(dict(text=M.build_text_encoder(tok), image=M.build_transformer())).to(dev)
    average.load_state_dict(nets.state_dict())
    average.requires_grad_(False)
    teacher = copy.deepcopy(average)
    for q in nets["text"].model.visual.parameters(): q.requires_grad_(False)
    opt = make_optimizer(torch.nn.ModuleDict(dict(
        text=nets["text"].model.language_model, image=nets["image"])), a.lr, not a.adamw, gpu)
    live = [q for q in nets.parameters() if q.requires_grad]
    mean_live = [dict(average.named_parameters())[k] for k, q in nets.named_parameters() if q.requires_grad]
    trained = list(nets["text"].model.language_model.parameters()) + list(nets["image"].parameters())

    def velocity(net, ids, n, x, t):
        return M.transform(net["image"], x, M.encode_text(net["text"], prefix_ids, ids), n, t)

    def loss_fn(x0, ids, n, t, noise, target_shift):
        x = (1 - t[:, None, None]) * x0 + t[:, None, None] * noise
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            v = velocity(nets, ids, n, x, t)
        return ((v.float() - (noise - x0) - target_shift) ** 2).mean((1, 2))

    @torch.no_grad()
    def guide(x0, ids, n, t, noise, blank_ids, blank_n):
        x = (1 - t[:, None, None]) * x0 + t[:, None, None] * noise
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            return velocity(teacher, ids, n, x, t).float() - velocity(teacher, blank_ids, blank_n, x, t).float()

    vae = M.build_vae().to(dev).eval().requires_grad_(False)
    vae_encode = lambda x: M.vae_encode(vae, x)
    if a.compile:
        import torch._inductor.config as inductor
        inductor.force_layout_optimization = True
        M.compile_parts()
        vae_encode = torch.compile(vae_encode)
    blank_ids, blank_n = M.tokenize(tok, [" "], dev)

    def draw_t(b, late):
        t = torch.sigmoid(torch.randn(b, device=dev) * 1.1 + 0.3)
        if a.sigmas and late:
            s = torch.tensor(a.sigmas, device=dev)[torch.randint(len(a.sigmas), (b,), device=dev)]
            t = torch.where(torch.rand(b, device=dev) < 0.5, s, t)
        return t.clamp(1e-3, 1.0)

    def one_step(x0, ids, n, lr, late):
        b = x0.shape[0]
        blank = torch.rand(b, device=dev) < a.blank
        ids = torch.where(blank[:, None], blank_ids, ids); n = torch.where(blank, blank_n, n)
        t, noise = draw_t(b, late), torch.randn_like(x0)
        shift = torch.zeros((), device=dev)
        if late and a.guidance:
            shift = a.guidance * guide(x0, ids, n, t, noise, blank_ids.expand(b, -1), blank_n.expand(b))
        per = loss_fn(x0, ids, n, t, noise, shift)
        per.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(live, 1.0)
        opt.step(lr)
        for q in trained: q.grad = None
        return per.detach(), t, norm

    # compile and warm up on noise while the VAE is still being trained elsewhere
    if a.compile:
        before = {k: v.clone() for k, v in nets.state_dict().items()}
        fake = torch.randn(a.batch, M.SIDE ** 2, M.Z, device=dev)
        ids, n = blank_ids.expand(a.batch, -1).contiguous(), blank_n.expand(a.batch).contiguous()
        for k in range(8):
            if k == 3: torch.cuda.synchronize(); t0 = time.time()
            per, _, norm = one_step(fake, ids, n, 0.0, k < 2)
        torch.cuda.synchronize()
        print(f"compiled at {time.time() - start:.1f} s; {(time.time() - t0) / 5 * 1e3:.1f} ms a step; loss {float(per.mean()):.3f} grad {float(norm):.3f}; "
              f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
        nets.load_state_dict(before)
        for m in opt.momentum.values(): m.zero_()
        opt.adam.state.clear()
        torch.cuda.empty_cache()
    pump()
    pictures = Pictures(f"{a.data}/pictures.pkl", dev, a.limit)
    bite = min(128, a.pool)                                      # pictures are always encoded this many at a time
    with torch.no_grad(), torch.autocast(dev, torch.bfloat16, enabled=gpu): vae_encode(torch.zeros(bite, 4, 256, 256, device=dev))
    print(f"ready at {time.time() - start:.1f} s", flush=True)
    waited = time.time()
    while not os.path.exists(a.vae):
        time.sleep(0.2); pump()
        if os.path.exists(a.vae + ".failed") or a.deadline and time.time() > a.deadline: raise SystemExit("no VAE came")
    time.sleep(0.5)
    print(f"waited {time.time() - waited:.1f} s for the VAE", flush=True)
    saved = torch.load(a.vae, map_location=dev)
    vae.load_state_dict(saved["vae"])
    mean, std = saved["mean"].to(dev)[:, None, None], saved["std"].to(dev)[:, None, None]

    @torch.no_grad()
    def encode(spec):
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            z = vae_encode(pictures.compose(spec).contiguous())
        return ((z.float() - mean) / std).flatten(2).transpose(1, 2)

    n_pool = a.pool
    lat = torch.empty(n_pool, M.SIDE ** 2, M.Z, dtype=torch.bfloat16 if gpu else torch.float32, device=dev)
    cap = torch.empty(n_pool, views, width, dtype=torch.int16, device=dev)
    cap_n = torch.empty(n_pool, views, dtype=torch.int16, device=dev)
    cursor, part, part_at = 0, None, 0
    def take(k):
        """Next `k` drawn pictures into the pool."""
        nonlocal cursor, part, part_at
        while part is None or part_at + k > len(part[0]):
            pump()
            if not feed: time.sleep(0.01); continue
            part, part_at = feed.pop(0), 0
        s = slice(part_at, part_at + k); part_at += k
        where = slice(cursor, cursor + k); cursor = (cursor + k) % n_pool
        lat[where] = encode(part[0][s]).to(lat.dtype)
        cap[where], cap_n[where] = torch.from_numpy(part[1][s]).to(dev), torch.from_numpy(part[2][s]).to(dev)
    t0 = time.time()
    for _ in range(n_pool // bite): take(bite)
    if gpu: torch.cuda.synchronize()
    print(f"pool of {n_pool} encoded in {time.time() - t0:.1f} s; latents mean {float(lat[:4096].float().mean()):.3f} std {float(lat[:4096].float().std()):.3f}", flush=True)

    def save(name):
        state = {k: v.half().cpu() for k, v in average.state_dict().items() if k != "text.lm_head.weight"}
        first, size, half = {}, 0, sum(v.numel() for v in state.values()) / 2
        for k in list(state):                                    # two files of about equal size
            if size < half: size += state[k].numel(); first[k] = state.pop(k)
        for part, tensors in (("a", first), ("b", state)):
            torch.save(tensors, f"{a.out}/{name}_{part}.tmp"); os.replace(f"{a.out}/{name}_{part}.tmp", f"{a.out}/{name}_{part}.pt")
        json.dump(log, open(f"{a.out}/model_log.json", "w"))

    late, saved_at = False, time.time()
    begin, step, window, log, last = time.time(), 0, [], [], time.time()
    end = a.deadline or begin + a.seconds
    while True:
        done = min(1.0, (time.time() - begin) / max(1e-3, end - begin))
        lr = a.lr * min(1.0, (step + 1) / 200)
        if done > a.decay_from: lr *= max(0.0, (1 - done) / (1 - a.decay_from))
        if a.refresh and step % (bite // a.refresh) == 1: take(bite)
        if done >= a.late_from and not late:
            late = True
            if a.teacher:
                for f in a.teacher: teacher.load_state_dict(torch.load(f, map_location=dev), strict=False)
            else:
                teacher.load_state_dict(average.state_dict()); save("teacher")
            print("late phase from here", flush=True)
        i = torch.randint(n_pool, (a.batch,), device=dev)
        j = torch.randint(views, (a.batch,), device=dev)
        per, t, norm = one_step(lat[i].float(), cap[i, j].long(), cap_n[i, j].long(), lr, late)
        torch._foreach_lerp_(mean_live, live, 1 - min(a.ema, (1 + step) / (10 + step)))
        step += 1
        window.append((per.mean(), norm))
        if step % a.log_every == 0 or done >= 1:
            w = [float(torch.stack(c).mean()) for c in zip(*window)]; window = []
            bands = [float(per[(t >= lo) & (t < hi)].mean()) for lo, hi in ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01))]
            now = time.time()
            log.append(dict(step=step, seconds=round(now - begin, 1), loss=round(w[0], 4), grad=round(w[1], 3), lr=lr, bands=[round(b, 3) for b in bands],
                            steps_per_s=round(a.log_every / (now - last), 2)))
            last = now
            print(json.dumps(log[-1]), flush=True)
            if not math.isfinite(w[0]): raise SystemExit("diverged")
        if a.save_every and time.time() - saved_at > a.save_every: saved_at = time.time(); save("last")
        if done >= 1: break
    pool_workers.terminate()
    save("model")
    print(f"saved after {step} steps, {time.time() - start:.1f} s in all", flush=True)


if __name__ == "__main__":
    main()
