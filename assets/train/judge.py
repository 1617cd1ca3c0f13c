"""Names a painted picture: the nearest of all concepts of a style.

The measure, simple enough to write again in another language (colours in [0, 1], rows downwards):
1. Lay the picture over white, and take the background's colour: one of the known ones, nearest to the median of the
   pixels at distance 4 to 7 from the border.
2. The object is every pixel, 3 or more from the border, with a channel further than 0.1 from the background.
3. The square around its bounding box (same centre, the longer side) is divided into SIDE x SIDE cells; a cell's colour
   is the mean over its area of picture minus background, where outside of the picture counts as background (0).
4. The distance to a concept is the sum of squared differences to the same cells of the concept's own picture (224 px on
   that background), as it is or mirrored left to right, whichever is nearer.
"""
import numpy as np
import torch

from captions import BACKGROUNDS

SIDE, LIMIT = 32, 0.1


def over_white(x):
    """(B, 4, H, W) in [-1, 1], straight alpha -> (B, 3, H, W) in [0, 1]."""
    x = (x.float().clamp(-1, 1) + 1) / 2
    return x[:, :3] * x[:, 3:] + 1 - x[:, 3:]


def cells(start, size, pixels, side):
    """(B, side, pixels): the share of each pixel in each of `side` equal cells from `start` on, `size` long in all."""
    at = torch.arange(side, device=start.device)
    low = start[:, None] + size[:, None] * at / side
    high = low + (size / side)[:, None]
    p = torch.arange(pixels, device=start.device)
    cover = torch.minimum(high[..., None], p + 1.0) - torch.maximum(low[..., None], p.float())
    return cover.clamp(0, 1) / (size / side)[:, None, None]


def thumbnail(x, background, side=SIDE):
    """Pictures (B, 3, H, W) in [0, 1] and their backgrounds (B, 3) -> (B, 3, side, side), relative to the background."""
    h, w = x.shape[-2:]
    d = x - background[:, :, None, None]
    far = d.abs().amax(1) > LIMIT
    far[:, :3] = far[:, -3:] = False; far[:, :, :3] = far[:, :, -3:] = False
    rows, cols = far.any(2).float(), far.any(1).float()
    y0, y1, x0, x1 = rows.argmax(1), h - rows.flip(1).argmax(1), cols.argmax(1), w - cols.flip(1).argmax(1)
    n = torch.maximum(y1 - y0, x1 - x0).float()
    wy, wx = cells((y0 + y1 - n) / 2, n, h, side), cells((x0 + x1 - n) / 2, n, w, side)
    return torch.einsum("bip,bcpq,bjq->bcij", wy, d, wx)


def border(x):
    """The median colour of the ring of pixels 4 to 7 away from the border, (B, 3)."""
    ring = torch.cat([x[..., 4:8, 4:-4].flatten(2), x[..., -8:-4, 4:-4].flatten(2), x[..., 4:-4, 4:8].flatten(2), x[..., 4:-4, -8:-4].flatten(2)], 2)
    return ring.median(2)[0]


class Judge:
    def __init__(self, pictures, style, device, side=SIDE):
        self.pictures, self.style, self.device, self.side, self.n = pictures, style, device, side, pictures.n
        self.colours = torch.tensor([b[2] for b in BACKGROUNDS[:-1]], device=device) / 255
        self.known = {}

    def real(self, background=0, size=0):
        """Every concept's own picture, alone in the middle."""
        rows = np.zeros((self.n, 20), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4], rows[:, 5:7] = size, self.style, background, 1, np.arange(self.n), 16
        return (self.pictures.compose(r) for r in np.array_split(rows, max(1, self.n // 128)))

    def references(self, background):
        if background not in self.known:
            colour = self.colours[background]
            self.known[background] = torch.cat([thumbnail(over_white(x), colour.expand(len(x), -1), self.side) for x in self.real(background)])
        return self.known[background]

    def distances(self, x, backgrounds=None):
        """(B, concepts) distances of pictures (B, 4, H, W) in [-1, 1]; backgrounds: their numbers, or None to find them."""
        x = over_white(x)
        if backgrounds is None:
            backgrounds = torch.cdist(border(x), self.colours).argmin(1)
        out = torch.empty(len(x), self.n, device=x.device)
        for b in backgrounds.unique().tolist():
            rows = (backgrounds == b).nonzero()[:, 0]
            q = thumbnail(x[rows], self.colours[b].expand(len(rows), -1), self.side)
            ref = self.references(b).flatten(1)
            out[rows] = torch.minimum(torch.cdist(q.flatten(1), ref), torch.cdist(q.flip(-1).flatten(1), ref))
        return out

    def ranks(self, x, answers, backgrounds=None):
        """Rank of the best of each picture's right concepts (a list of lists): 0 is first."""
        d = self.distances(x, backgrounds)
        best = torch.stack([row[list(a)].min() for row, a in zip(d, answers)])
        return (d < best[:, None]).sum(1)
