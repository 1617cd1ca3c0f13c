"""Contact sheets: `python sheet.py MODEL_FOLDER OUT.png "prompt" ...` (a seed may follow a prompt after `#`)."""
import sys

import torch
from PIL import Image, ImageDraw

from pictures import to_image


def sheet(x, labels, file, cols=8, px=160):
    im = Image.new("RGB", (cols * px, -(-len(labels) // cols) * (px + 14)), "white")
    draw = ImageDraw.Draw(im)
    for i, label in enumerate(labels):
        tile, at = to_image(x[i]).resize((px, px), Image.LANCZOS), (i % cols * px, i // cols * (px + 14))
        ground = Image.new("RGB", (px, px), (232, 232, 232) if "transparent" in label or "透明" in label else (255, 255, 255))
        ground.paste(tile, (0, 0), tile)
        im.paste(ground, at)
        draw.text((at[0] + 2, at[1] + px + 1), label.encode("ascii", "replace").decode()[:px // 6], fill="black")
    im.save(file)


def main():
    from painter import Painter
    painter = Painter(sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu")
    asked = [p.split("#") for p in sys.argv[3:]]
    seeds = [int(p[1]) if len(p) > 1 else i for i, p in enumerate(asked)]
    sheet(painter.paint([p[0] for p in asked], seeds), [p[0] for p in asked], sys.argv[2])


if __name__ == "__main__":
    main()
