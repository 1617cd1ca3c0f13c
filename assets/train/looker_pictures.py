"""Composes the looker's training pictures on the device and wears them as pictures are worn: soft, noisy, re-encoded."""
import io
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from looker_scenes import KINDS
from looker_talk import COLOURS

STRANGE = KINDS.index("strange")


class Sprites:
    def __init__(self, file, device, limit=None):
        """Banks of (2 styles x concepts, 4, side, side) bytes, colours premultiplied."""
        pairs = pickle.load(open(file, "rb"))[:limit]
        self.n, self.device, self.bank = len(pairs), device, {}

        def load(data):
            im = Image.open(io.BytesIO(data)).convert("RGBA")
            return np.asarray(im if im.size == (256, 256) else im.resize((256, 256), Image.LANCZOS))

        with ThreadPoolExecutor(8) as pool:
            raw = np.stack(list(pool.map(load, [p[0] for p in pairs] + [p[1] for p in pairs])))
        for side in (256, 160, 112):
            parts = []
            for chunk in torch.from_numpy(raw).split(128):
                x = chunk.to(device).permute(0, 3, 1, 2).float() / 255
                x = torch.cat([x[:, :3] * x[:, 3:], x[:, 3:]], 1)
                if side < 256: x = F.interpolate(x, size=(side, side), mode="bicubic", antialias=True).clamp(0, 1)
                parts.append((x * 255).round().to(torch.uint8))
            self.bank[side] = torch.cat(parts)
        self.colour = torch.tensor([c[2] for c in COLOURS], device=device).float() / 255
        self.strange = (nonsense(1200 if limit is None else 8, 256, 256, device) * 255).to(torch.uint8)

    def nonsense(self, n, h, w):
        x = self.strange[torch.randint(len(self.strange), (n,)).to(self.device)]
        x = torch.roll(x, [int(torch.randint(256, ())) for _ in range(2)], (2, 3))[:, torch.randperm(3)]
        return F.interpolate(x.float() / 255, size=(h, w))

    def paste(self, canvas, rows, side, sprite, x, y, size, flip, unit, dx, dy):
        """Lays one sprite on each of `rows`; places and sizes in pixels of the canvas."""
        h, w = canvas.shape[2:]
        dtype = canvas.dtype
        px = self.bank[side][sprite].to(dtype) / 255
        cx, cy, half = dx + x * unit, dy + y * unit, size * unit / 2
        gx = (torch.arange(w, device=self.device) + 0.5 - cx[:, None]) / half[:, None] * torch.where(flip > 0, -1.0, 1.0)[:, None]
        gy = (torch.arange(h, device=self.device) + 0.5 - cy[:, None]) / half[:, None]
        grid = torch.stack([gx[:, None].expand(-1, h, -1), gy[:, :, None].expand(-1, -1, w)], -1).to(dtype)
        p = F.grid_sample(px, grid, align_corners=False)
        canvas[rows] = p[:, :3] + (1 - p[:, 3:]) * canvas[rows]

    @torch.no_grad()
    def compose(self, facts, h=256, w=256, jitter=True):
        """facts (B, 24) on the host -> pictures (B, 3, h, w) in [0, 1], and the boxes in pixels (B, 4, 4): concept, x, y, side."""
        b, dev = len(facts), self.device
        f = torch.from_numpy(np.asarray(facts, np.float32)).to(dev)
        colour = self.colour[f[:, 2].long()]
        if jitter:                                               # backgrounds that are nearly the named colour
            near = torch.randn(b, 3, device=dev) * 0.03 * (torch.rand(b, 1, device=dev) < 0.4)
            colour = (colour + near).clamp(0, 1)
        canvas = colour[:, :, None, None].expand(-1, -1, h, w).to(torch.float32).clone()
        unit, slack = min(h, w), max(h, w) - min(h, w)
        shift = torch.rand(b, device=dev) * slack if jitter else torch.full((b,), slack / 2, device=dev)
        dx, dy = (shift, torch.zeros_like(shift)) if w > h else (torch.zeros_like(shift), shift)
        boxes = torch.full((b, 4, 4), -1.0, device=dev)
        count = np.asarray(facts)[:, 3]
        for k in range(4):
            o = f[:, 4 + 5 * k:9 + 5 * k]
            sizes = np.asarray(facts)[:, 4 + 5 * k + 3] * unit
            for side, low, high in ((256, 170, 9999), (160, 118, 170), (112, 0, 118)):
                rows = np.flatnonzero((count > k) & (sizes >= low) & (sizes < high))
                if len(rows):
                    r = torch.from_numpy(rows).to(dev)
                    c, x, y, size, flip = o[r].unbind(1)
                    self.paste(canvas, r, side, f[r, 1].long() * self.n + c.long(), x, y, size, flip, unit, dx[r], dy[r])
            boxes[:, k] = torch.stack([o[:, 0], dx + o[:, 1] * unit, dy + o[:, 2] * unit, o[:, 3] * unit], 1)
            boxes[:, k, 0] = torch.where(f[:, 3] > k, boxes[:, k, 0], -1.0)
        strange = np.flatnonzero(np.asarray(facts)[:, 0] == STRANGE)
        if len(strange): canvas[torch.from_numpy(strange).to(dev)] = self.nonsense(len(strange), h, w)
        return canvas.clamp(0, 1), boxes


def nonsense(n, h, w, device):
    """Noise of several scales, gradients, stripes and blots."""
    out = torch.rand(n, 3, 1, 1, device=device).expand(-1, -1, h, w).clone()
    for k in range(n):
        for _ in range(1 + int(torch.randint(3, ()))):
            cells = 2 ** int(torch.randint(1, 8, ()))
            noise = F.interpolate(torch.rand(1, 3, max(2, h * cells // 256), max(2, w * cells // 256), device=device), size=(h, w),
                                  mode=("nearest", "bilinear")[int(torch.randint(2, ()))])[0]
            kind, angle = int(torch.randint(4, ())), float(torch.rand(())) * math.pi
            y, x = torch.linspace(-1, 1, h, device=device)[:, None], torch.linspace(-1, 1, w, device=device)[None]
            along = x * math.cos(angle) + y * math.sin(angle)
            colour = torch.rand(3, 1, 1, device=device)
            if kind == 0: m = torch.full((h, w), float(torch.rand(())), device=device)
            elif kind == 1: m = (along + 1.4) / 2.8
            elif kind == 2: m = (torch.sin(along * (3 + 40 * float(torch.rand(())))) > 0).float()
            else: m = (F.interpolate(torch.rand(1, 1, 4, 4, device=device), size=(h, w), mode="bicubic")[0, 0] > 0.6).float()
            out[k] = out[k] * (1 - m) + m * (noise if kind in (0, 1) else colour.expand(-1, h, w))
    return out


def dct_matrix(device):
    k, n = torch.arange(8, device=device)[:, None], torch.arange(8, device=device)[None]
    m = torch.cos(math.pi * (2 * n + 1) * k / 16) * 0.5
    m[0] /= math.sqrt(2)
    return m


@torch.no_grad()
def jpeg(x, strength):
    """Roughly what JPEG does: 8 x 8 blocks rounded in frequency, more for high ones. strength (B,)."""
    b, c, h, w = x.shape
    d = dct_matrix(x.device)
    y = (x * 255 - 128).reshape(b, c, h // 8, 8, w // 8, 8)
    f = torch.einsum("ui,bcxiyj,vj->bcxuyv", d, y, d)
    k = torch.arange(8, device=x.device)
    step = (4 + 3 * (k[:, None] + k[None])).float()[:, None] * strength[:, None, None, None, None, None]
    f = (f / step).round() * step
    y = torch.einsum("ui,bcxuyv,vj->bcxiyj", d, f, d)
    return ((y.reshape(b, c, h, w) + 128) / 255).clamp(0, 1)


def some(b, share, device):
    """Rows drawn on the host, so that nobody waits for the device."""
    return torch.nonzero(torch.rand(b) < share)[:, 0].to(device, non_blocking=True)


@torch.no_grad()
def wear(x):
    """Pictures in [0, 1] -> the same a little changed, each in its own way."""
    b, _, h, w = x.shape
    dev = x.device
    uniform = lambda n, lo, hi: lo + (hi - lo) * torch.rand(n, 1, 1, 1, device=dev)
    r = some(b, 0.25, dev)                                       # softness
    for rows, sigma in zip(r.chunk(3), (0.6, 1.0, 1.6)):
        if len(rows):
            g = torch.exp(-torch.arange(-4, 5, device=dev) ** 2 / (2 * sigma ** 2)); g = g / g.sum()
            y = F.pad(x[rows], (4, 4, 4, 4), mode="replicate").flatten(0, 1)[:, None]
            y = F.conv2d(F.conv2d(y, g[None, None, None]), g[None, None, :, None])
            x[rows] = y.view(len(rows), 3, h, w)
    for factor in (0.5, 0.7):                                    # pictures that were small
        r = some(b, 0.06, dev)
        if len(r):
            y = F.interpolate(x[r], size=(int(h * factor), int(w * factor)), mode="bilinear", antialias=True)
            x[r] = F.interpolate(y, size=(h, w), mode="bicubic").clamp(0, 1)
    r = some(b, 0.3, dev)                                        # light and colour
    if len(r):
        y = x[r] * uniform(len(r), 0.93, 1.06) + uniform(len(r), -0.03, 0.03)
        grey = y.mean(1, keepdim=True)
        x[r] = (grey + (y - grey) * uniform(len(r), 0.85, 1.15)).clamp(0, 1)
    r = some(b, 0.15, dev)
    if len(r): x[r] = jpeg(x[r], torch.rand(len(r), device=dev) * 2.5 + 0.3)
    r = some(b, 0.25, dev)
    if len(r): x[r] = (x[r] + torch.randn_like(x[r]) * uniform(len(r), 0.0, 0.04)).clamp(0, 1)
    return x


def labels(boxes, h, w, nothing):
    """What lies at each visual token (B, h/32 x w/32): a concept, or `nothing`."""
    dev = boxes.device
    cy, cx = torch.arange(h // 32, device=dev) * 32 + 16, torch.arange(w // 32, device=dev) * 32 + 16
    out = torch.full((len(boxes), h // 32, w // 32), nothing, device=dev)
    for k in range(4):
        c, x, y, side = (t[:, None, None] for t in boxes[:, k].unbind(1))
        inside = ((cx[None, None] - x).abs() < side * 0.42) & ((cy[None, :, None] - y).abs() < side * 0.42) & (c >= 0)
        out = torch.where(inside, c.long(), out)
    return out.flatten(1)
