"""Trains the VAE on composed pictures for a given time and saves it in half precision with its latent statistics.

Losses: L1 on RGBA at three scales plus L1 on pixel differences (edges). The latents are noised in proportion to their own
spread before decoding, so that small errors of the transformer stay invisible, and half of every batch is flipped or
turned in latent space with the target flipped or turned alike, which keeps the latent map plain.
"""
import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import models as M
from captions import Concepts, make_spec, spec_row
from pictures import Pictures


def spec_rows(concepts, rng, n):
    out = np.zeros((n, 20), np.int64)
    for row in out:
        s = make_spec(concepts, rng)
        row[:] = spec_row(s)
        shift = np.array([rng.randrange(-8, 9), rng.randrange(-8, 9)])      # any phase against the 16-pixel grid
        for k in range(len(s["sprites"])):
            row[5 + 4 * k:7 + 4 * k] += shift
    return out


TURNS = [lambda a: a.flip(-1), lambda a: a.flip(-2), lambda a: a.transpose(-1, -2), lambda a: a.flip(-1).transpose(-1, -2)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="."); p.add_argument("--out", default="vae.pt"); p.add_argument("--init")
    p.add_argument("--seconds", type=float, default=180); p.add_argument("--deadline", type=float, help="absolute end time"); p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-3); p.add_argument("--noise", type=float, default=0.2)
    p.add_argument("--limit", type=int); p.add_argument("--compile", action="store_true")
    p.add_argument("--decoder-only", action="store_true"); p.add_argument("--threads", type=int)
    p.add_argument("--log-every", type=int, default=200); p.add_argument("--seed", type=int, default=1)
    p.add_argument("--mse", type=float, default=0.0, help="weight of the squared error beside the absolute one")
    a = p.parse_args()
    start = time.time()
    torch.manual_seed(a.seed)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    if a.threads: torch.set_num_threads(a.threads)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    concepts = Concepts(json.load(open(f"{a.data}/names.json"))[:a.limit])
    pictures = Pictures(f"{a.data}/pictures.pkl", dev, a.limit)
    print(f"pictures ready {time.time() - start:.1f} s", flush=True)
    vae = M.build_vae().to(dev)
    half = vae.quant_conv                                            # the posterior's log-variance: a fixed constant
    with torch.no_grad():
        half.weight[M.Z:] = 0; half.bias[M.Z:] = 2 * math.log(a.noise)
    init = torch.load(a.init, map_location=dev) if a.init else None
    if init: vae.load_state_dict(init["vae"])
    if a.decoder_only:
        for q in list(vae.encoder.parameters()) + list(vae.quant_conv.parameters()): q.requires_grad_(False)
    params = [q for q in vae.parameters() if q.requires_grad]
    ema = {k: v.detach().clone() for k, v in vae.state_dict().items()}
    live = vae.state_dict()
    opt = torch.optim.AdamW(params, lr=a.lr, betas=(0.9, 0.99), weight_decay=1e-4, fused=dev == "cuda")
    if a.compile:
        import torch._inductor.config as inductor
        inductor.force_layout_optimization = True            # channels last, in spite of the small channel counts
    # the turn is applied outside the compiled graph: the encoder and the decoder are compiled apart
    enc = torch.compile(lambda x: M.vae_encode(vae, x)) if a.compile else (lambda x: M.vae_encode(vae, x))
    dec = torch.compile(lambda z: M.vae_decode(vae, z)) if a.compile else (lambda z: M.vae_decode(vae, z))

    border = torch.ones(256, 256, device=dev)                        # the outermost pixels count four times
    border[:2] = border[-2:] = border[:, :2] = border[:, -2:] = 4.0

    def compare(y, x):
        d = (y.float() - x) * border
        l1 = d.abs().mean()
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
        coarse = F.avg_pool2d(d, 2).abs().mean() + F.avg_pool2d(d, 4).abs().mean()
        return l1 + 0.5 * edges + 0.5 * coarse + a.mse * (d ** 2).mean(), ((y.float() - x).detach() ** 2).mean()
    compare = torch.compile(compare) if a.compile else compare
    rng, step, log, window = random.Random(a.seed), 0, [], []
    begin = None
    while True:
        x = pictures.compose(spec_rows(concepts, rng, a.batch))
        used = time.time() - (begin or time.time())
        done = min(1.0, used / a.seconds)
        lr = a.lr * min(1, (step + 1) / 100) * (1 if done < 0.4 else max(0.02, 0.5 + 0.5 * math.cos(math.pi * (done - 0.4) / 0.6)))
        for g in opt.param_groups: g["lr"] = lr
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            with torch.set_grad_enabled(not a.decoder_only): z = enc(x).float()
            spread = z.detach().std((0, 2, 3), keepdim=True)
            small = (z ** 2).mean()
            level = torch.rand(a.batch, 1, 1, 1, device=dev) * 2 * a.noise
            zn = z + level * spread * torch.randn_like(z)
            turn, h = rng.choice(TURNS), a.batch // 2
            if a.decoder_only: turn = lambda v: v
            zn, xt = torch.cat([zn[:h], turn(zn[h:])]).contiguous(), torch.cat([x[:h], turn(x[h:])]).contiguous()
            y = dec(zn)
            loss, mse = compare(y, xt)
            loss = loss + 1e-4 * small
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        decay = min(0.998, (1 + step) / (10 + step))
        torch._foreach_lerp_([ema[k] for k in ema], [live[k] for k in ema], 1 - decay)
        step += 1
        window.append((loss.detach(), mse, small.detach(), norm))
        if begin is None:
            begin = time.time()
            if a.deadline: a.seconds = max(5.0, a.deadline - begin)
            print(f"first step done {begin - start:.1f} s", flush=True)
        if step % a.log_every == 0 or done >= 1:
            w = torch.tensor([[float(v) for v in r] for r in window]).mean(0); window = []
            log.append(dict(step=step, seconds=round(used, 1), loss=float(w[0]), psnr=float(10 * torch.log10(4 / w[1])), size=float(w[2])))
            print(json.dumps(log[-1]), f"grad {float(w[3]):.3f} lr {lr:.1e}", flush=True)
        if done >= 1: break
    vae.load_state_dict(ema)
    vae.eval()
    # clean evaluation and latent statistics
    zs, errs = [], []
    with torch.no_grad(), torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
        rng = random.Random(0)
        for _ in range(64 if dev == "cuda" else 8):
            x = pictures.compose(spec_rows(concepts, rng, 32 if dev == "cuda" else 8))
            z = M.vae_encode(vae, x); zs.append(z.float())
            errs.append(((M.vae_decode(vae, z).float().clamp(-1, 1) - x)[:, :3] ** 2).mean((1, 2, 3)))
        single = np.zeros((concepts.n, 20), np.int64)            # every 3D picture alone, 224 px, in the middle of white
        single[:, 3], single[:, 4], single[:, 5:7] = 1, np.arange(concepts.n), 16
        one = torch.cat([((M.vae_decode(vae, M.vae_encode(vae, x)).float().clamp(-1, 1) - x)[:, :3] ** 2).mean((1, 2, 3))
                         for x in (pictures.compose(r) for r in np.array_split(single, max(1, concepts.n // 32)))])
    z, mse = torch.cat(zs), torch.cat(errs)
    mean, std = (init["mean"], init["std"]) if a.decoder_only else (z.mean((0, 2, 3)), z.std((0, 2, 3)))
    psnr = 10 * torch.log10(4 / mse)
    report = dict(steps=step, psnr_mean=float(psnr.mean()), psnr_p10=float(psnr.quantile(0.1)), psnr_3d=float((10 * torch.log10(4 / one)).mean()), std=[round(float(v), 3) for v in std])
    print(json.dumps(report), flush=True)
    torch.save(dict(vae={k: v.half().cpu() for k, v in vae.state_dict().items()}, mean=mean.cpu(), std=std.cpu(),
                    report=report, log=log), a.out + ".tmp")
    os.replace(a.out + ".tmp", a.out)


if __name__ == "__main__":
    main()
