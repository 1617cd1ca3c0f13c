"""Trains the looker, from scratch or from a checkpoint, until a deadline.

Every step composes new pictures on the device. Some rows come from a pool instead: pictures through the painter's VAE and
back, and pictures that the painter painted. Of the latter only those are kept in which the looker, by then half trained,
finds the object asked for among its first few guesses: the painter errs, too.
"""
import argparse
import json
import math
import multiprocessing as mp
import os
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
GRIDS = [(16, 18), (18, 16), (14, 20), (20, 14), (12, 20), (20, 12), (10, 24), (24, 10), (14, 16), (16, 14), (8, 32), (32, 8)]
SYSTEMS = ["You are a helpful assistant.", "You are a helpful assistant.", "Answer briefly.", "You look at pictures.", "你是一个有用的助手。", "Be precise and short."]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True); p.add_argument("--tokenizer", required=True); p.add_argument("--out", required=True)
    p.add_argument("--painter", help="folder of the exported painter"); p.add_argument("--init")
    p.add_argument("--deadline", type=float, required=True)
    p.add_argument("--batch", type=int, default=512); p.add_argument("--lr", type=float, default=2.7e-3)
    p.add_argument("--pooled", type=int, default=96, help="rows of a batch that come from the pools, half of each")
    p.add_argument("--pool", type=int, default=8192); p.add_argument("--decay-from", type=float, default=0.4)
    p.add_argument("--paint-from", type=float, default=0.2); p.add_argument("--paint", type=int, default=96, help="pictures painted every 16 steps")
    p.add_argument("--odd", type=int, default=8, help="every so many steps another shape of picture")
    p.add_argument("--ema", type=float, default=0.999); p.add_argument("--limit", type=int); p.add_argument("--compile", action="store_true")
    p.add_argument("--workers", type=int, default=6); p.add_argument("--log-every", type=int, default=100); p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=10**9); p.add_argument("--save-every", type=float, default=90)
    a = p.parse_args()
    start = time.time()
    import looker_scenes as S
    names = f"{a.data}/names.json"
    workers = mp.get_context("fork").Pool(a.workers)
    chunk = 2048 if not a.limit else 64
    feeds = {False: [], True: []}
    waiting = {False: [], True: []}
    seeds = iter(range(a.seed * 1000003, 10**12))
    def pump():
        for painted, ahead in ((False, 2 * a.workers), (True, 1)):
            feed, wait = feeds[painted], waiting[painted]
            while len(wait) < ahead and len(feed) < (24 if not painted else 2):
                wait.append(workers.apply_async(S.batch, ((names, a.tokenizer, chunk, next(seeds), painted, a.limit),)))
            while wait and wait[0].ready(): feed.append(wait.pop(0).get())
    pump()
    import numpy as np
    import torch
    import torch.nn.functional as F
    from tokenizers import Tokenizer
    import looker as L
    import looker_pictures as P
    from train_model import orthogonalise
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = dev == "cuda"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(a.seed)
    tok = Tokenizer.from_file(a.tokenizer)
    writer = S.Writer(tok)
    model = L.build(tok).to(dev)
    concepts = len(json.load(open(names))[:a.limit])
    guess = torch.nn.Linear(192, concepts + 1).to(dev)           # names what lies at each visual token; for training only
    if a.init:
        saved = torch.load(a.init, map_location=dev)
        guess.load_state_dict({k: v.float() for k, v in saved["guess"].items()})
        missing, strange = model.load_state_dict({k: v.float() for k, v in saved["model"].items()}, strict=False)
        assert not strange and set(missing) <= {"lm_head.weight"}, (missing, strange)
    params = {k: q for k, q in model.named_parameters() if k != "lm_head.weight"}
    params |= {"guess." + k: q for k, q in guess.named_parameters()}
    average = {k: q.detach().clone() for k, q in params.items()}
    live, mean_live = list(params.values()), list(average.values())
    matrices = [q for k, q in params.items() if q.ndim == 2 and (".blocks." in k or ".layers." in k or ".merger." in k)]
    inside = {id(q) for q in matrices}
    adam = torch.optim.AdamW([q for q in live if id(q) not in inside], lr=a.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=gpu)
    groups = {}
    for q in matrices: groups.setdefault(tuple(q.shape), []).append(q)
    momentum = {s: torch.zeros(len(v), *s, device=dev) for s, v in groups.items()}
    ortho = torch.compile(orthogonalise) if a.compile else orthogonalise

    @torch.no_grad()
    def update(lr):
        for g in adam.param_groups: g["lr"] = lr * 0.6
        adam.step()
        for shape, qs in groups.items():
            grad, m = torch.stack([q.grad for q in qs]), momentum[shape]
            m.lerp_(grad, 0.05)
            torch._foreach_add_(qs, list((-lr * 0.2 * max(shape) ** 0.5 * ortho(grad.lerp(m, 0.95))).unbind(0)))

    places = {}
    def places_of(grid):
        if grid not in places: places[grid] = L.vision_places(model.model.visual, grid, dev)
        return places[grid]
    plain = torch.tensor(writer.before, device=dev)
    after = torch.tensor(writer.after, device=dev)
    prefixes = [plain] * 2 + [torch.tensor([writer.start, *writer.plain("system\n" + s), writer.end, *writer.line, *writer.before], device=dev) for s in SYSTEMS]

    def losses(x, boxes, ids, segment, place, learnt, grid, prefix):
        wanted = torch.nonzero(torch.cat([learnt[:, 1:], torch.zeros_like(learnt[:, :1])], 1).flatten())[:, 0]
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            tokens = L.see(model, x, places_of(grid))
            named = guess(tokens)
            h = L.answer(model, tokens, prefix, after, ids, segment, place, grid)
            target = torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], 1)
            logits = F.linear(h.flatten(0, 1)[wanted], model.model.language_model.embed_tokens.weight)
        target = target.flatten()[wanted]
        said = F.cross_entropy(logits.float(), target)
        lies = P.labels(boxes, *x.shape[2:], concepts)
        seen = F.cross_entropy(named.float().flatten(0, 1), lies.flatten())
        with torch.no_grad(): right = (logits.argmax(-1) == target).float().mean()
        return said, seen, right, named, lies

    parts = {False: None, True: None}
    at = {False: 0, True: 0}
    def take(k, painted=False):
        """Next `k` drawn scenes."""
        while parts[painted] is None or at[painted] + k > len(parts[painted][0]):
            pump()
            if not feeds[painted]: time.sleep(0.005); continue
            parts[painted], at[painted] = feeds[painted].pop(0), 0
        s = slice(at[painted], at[painted] + k); at[painted] += k
        facts, *text, prompts = parts[painted]
        return facts[s], [torch.from_numpy(t[s]).to(dev, non_blocking=True).long() for t in text], prompts[s]

    class Ring:
        """Pictures that cost much to make, kept for several uses."""
        def __init__(self):
            self.x = torch.empty(a.pool, 3, 256, 256, dtype=torch.uint8, device=dev)
            self.boxes = torch.empty(a.pool, 4, 4, device=dev)
            self.text = [torch.empty(a.pool, S.WIDTH, dtype=torch.long, device=dev) for _ in range(4)]
            self.at = self.filled = 0
        def put(self, x, boxes, text):
            i = (torch.arange(len(x), device=dev) + self.at) % a.pool
            self.x[i] = (x * 255).round().to(torch.uint8); self.boxes[i] = boxes
            for t, n in zip(self.text, text): t[i] = n
            self.at = (self.at + len(x)) % a.pool; self.filled = min(a.pool, self.filled + len(x))
        def draw(self, k):
            i = torch.randint(self.filled, (k,), device=dev)
            return self.x[i].float() / 255, self.boxes[i], [t[i] for t in self.text]

    sprites = P.Sprites(f"{a.data}/pictures.pkl", dev, a.limit)
    painter = None
    if a.painter:
        import models as M
        from painter import Painter
        painter = Painter(a.painter, dev)
        blank = M.prefix(painter.tok, dev)
    rebuilt, painted = Ring(), Ring()
    kept = [0, 0]

    def over_white(x):
        """(B, 4, H, W) in [-1, 1] -> RGB in [0, 1] over white."""
        x = (x.float().clamp(-1, 1) + 1) / 2
        return x[:, :3] * x[:, 3:] + 1 - x[:, 3:]

    @torch.no_grad()
    def rebuild(x, boxes, text):
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            y = M.vae_decode(painter.vae, M.vae_encode(painter.vae, torch.cat([x, torch.ones_like(x[:, :1])], 1) * 2 - 1))
        rebuilt.put(over_white(y), boxes, text)

    @torch.no_grad()
    def paint(k):
        facts, text, prompts = take(k, True)
        with torch.autocast(dev, torch.bfloat16, enabled=gpu):
            ids, n = M.tokenize(painter.tok, prompts, dev)
            states = M.encode_text(painter.text, blank, ids)
            z = torch.randn(k, M.SIDE ** 2, M.Z, device=dev)
            for s, e in zip(painter.sigmas, [*painter.sigmas[1:], 0.0]):
                z = z + (e - s) * M.transform(painter.image, z, states, n, torch.full((k,), s, device=dev)).float()
            z = z.transpose(1, 2).unflatten(-1, (M.SIDE, M.SIDE))
            x = over_white(M.vae_decode(painter.vae, z * painter.std + painter.mean))
            _, boxes = sprites.compose(facts, jitter=False)
            named = guess(L.see(model, x * 2 - 1, places_of((16, 16)))).float().softmax(-1)
        lies = P.labels(boxes, 256, 256, concepts)
        good = torch.ones(k, dtype=torch.bool, device=dev)
        for j in range(4):
            c = boxes[:, j, 0].long()
            here = ((lies == c[:, None]) & (c >= 0)[:, None]).float()
            mean = torch.einsum("bn,bnc->bc", here, named)[:, :concepts]
            mine = mean.gather(1, c.clamp(min=0)[:, None])
            good &= ((mean > mine).sum(1) < 4) | (c < 0)
        kept[0] += int(good.sum()); kept[1] += k
        if good.any(): painted.put(x[good], boxes[good], [t[good] for t in text])

    def draw(odd):
        k = a.batch if not odd else a.batch // 2
        grid = (16, 16) if not odd else GRIDS[np.random.randint(len(GRIDS))]
        prefix = plain if not odd else prefixes[np.random.randint(len(prefixes))]
        facts, text, _ = take(k)
        x, boxes = sprites.compose(facts, grid[0] * 16, grid[1] * 16)
        if not odd and painter:
            if step % 4 == 0 or rebuilt.filled < 1024: rebuild(x[:48], boxes[:48], [t[:48] for t in text])
            first = 0
            for ring in (rebuilt, painted):
                if ring.filled < 256: continue
                rows = slice(first, first + a.pooled // 2); first = rows.stop
                x[rows], boxes[rows], old = ring.draw(a.pooled // 2)
                for t, n in zip(text, old): t[rows] = n
        return P.wear(x) * 2 - 1, boxes, *text, grid, prefix

    def save():
        state = {k: v for k, v in average.items()}
        out = dict(model={k: v.half().cpu() for k, v in state.items() if not k.startswith("guess.")},
                   guess={k[6:]: v.half().cpu() for k, v in state.items() if k.startswith("guess.")}, step=step)
        torch.save(out, f"{a.out}/looker.pt.tmp"); os.replace(f"{a.out}/looker.pt.tmp", f"{a.out}/looker.pt")
        json.dump(log, open(f"{a.out}/looker_log.json.tmp", "w")); os.replace(f"{a.out}/looker_log.json.tmp", f"{a.out}/looker_log.json")

    if a.compile: L.compile_parts()
    print(f"ready to begin at {time.time() - start:.1f} s", flush=True)
    begin, step, window, log, last, saved_at = time.time(), 0, [], [], time.time(), time.time()
    clock = begin                                                # the schedule begins when compiling is done
    while True:
        now = time.time()
        done = min(1.0, (now - clock) / max(1.0, a.deadline - clock))
        lr = a.lr * min(1.0, (step + 1) / 300)
        if done > a.decay_from: lr *= max(0.0, (1 - done) / (1 - a.decay_from))
        odd = step > 20 and step % a.odd == 3
        if painter and done > a.paint_from and step % 16 == 5: paint(a.paint)
        x, boxes, ids, segment, place, learnt, grid, prefix = draw(odd)
        compiled = (L.vision_block, L.text_layer)
        if odd and a.compile: L.vision_block, L.text_layer = L.plain_parts
        said, seen, right, _, _ = losses(x, boxes, ids, segment, place, learnt, grid, prefix)
        (said + (0.3 if done < 0.7 else 0.1) * seen).backward()
        L.vision_block, L.text_layer = compiled
        norm = torch.nn.utils.clip_grad_norm_(live, 1.0)
        update(lr)
        for q in live: q.grad = None
        torch._foreach_lerp_(mean_live, [q.detach() for q in live], 1 - min(a.ema, (1 + step) / (10 + step)))
        step += 1
        if step == 4:
            if gpu: torch.cuda.synchronize()
            clock = time.time()
            print(f"compiled after {clock - start:.1f} s", flush=True)
        window.append((said.detach(), seen.detach(), right, norm))
        if step % a.log_every == 0 or done >= 1 or step >= a.steps:
            w = [float(torch.stack(c).mean()) for c in zip(*window)]; window = []
            now = time.time()
            log.append(dict(step=step, seconds=round(now - begin, 1), said=round(w[0], 4), seen=round(w[1], 4), tokens_right=round(w[2], 4), grad=round(w[3], 3),
                            lr=round(lr, 6), steps_per_s=round(a.log_every / (now - last), 2), painted=list(kept)))
            last = now
            if step % (5 * a.log_every) == 0 or step <= 500 or done >= 1: print(json.dumps(log[-1]), flush=True)
            if not math.isfinite(w[0]): raise SystemExit("diverged")
        if time.time() - saved_at > a.save_every: save(); saved_at = time.time()
        if done >= 1 or step >= a.steps: break
    workers.terminate()
    save()
    print(f"saved after {step} steps, {time.time() - start:.1f} s in all; painted kept {kept}; "
          + (f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if gpu else ""), flush=True)


if __name__ == "__main__":
    main()
