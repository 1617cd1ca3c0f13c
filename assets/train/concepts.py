"""Thumbnails of all concepts, for naming a painted picture elsewhere than here.

    python concepts.py DATA OUT_FOLDER

Writes OUT_FOLDER/concepts.bin: for each concept of the 3D style 16 x 16 pixels of RGB, rows downwards, one byte a channel; and
concepts.json: their English names in the same order. The measure is that of `judge.py` on white: lay the picture over
white; the object is every pixel at least 3 from the border with a channel more than 25.5 levels from 255; take the square
with the centre of its bounding box and the longer side; cut it into 16 x 16 equal cells; a cell is the mean colour of its
area (pixels cut by a cell's edge count by the share inside; outside of the picture is white). The distance is the sum of
squared differences, to the thumbnail or its mirror image, whichever is nearer.
"""
import json
import sys

import torch

from judge import Judge
from pictures import Pictures


def main():
    data, out = sys.argv[1:3]
    rows = json.load(open(f"{data}/names.json"))
    judge = Judge(Pictures(f"{data}/pictures.pkl", "cpu"), 0, "cpu", side=16)
    small = judge.references(0)
    packed = ((small + 1) * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    open(f"{out}/concepts.bin", "wb").write(packed.numpy().tobytes())
    json.dump([r["en"] for r in rows], open(f"{out}/concepts.json", "w"), ensure_ascii=False, indent=0)
    far = torch.cdist(small.flatten(1), small.flatten(1)).fill_diagonal_(9)
    a, b = divmod(int(far.argmin()), len(rows))
    print(packed.shape, "nearest two:", rows[a]["en"], "and", rows[b]["en"], float(far.min()))


if __name__ == "__main__":
    main()
