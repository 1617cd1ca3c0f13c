"""Paints a few prompts with the reference pipeline from an exported folder: the pictures that the tests compare with.

    python golden.py MODEL_FOLDER OUT_FOLDER

Writes OUT_FOLDER/NAME.png (RGBA, as the pipeline returns them) and golden.json. A seed that sits between two pictures
(a mirror image, say) would make the comparison meaningless, so each picture is painted twice, the second time with the
text states moved by 1e-4 of their own size, and a seed that moves the picture by more than half a level is refused.
"""
import json
import sys

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImage21Pipeline
from transformers import BatchFeature

from painter import Painter

ASKED = [("apple-and-pizza", "a red apple and a slice of pizza", 1), ("fox-flat", "a fox in flat style", 1),
         ("robot-black", "a robot on a black background", 2), ("strawberries", "three strawberries", 1),
         ("fox-zh", "蓝色背景上的一只狐狸", 1), ("sunflower-transparent", "a sunflower, transparent background", 2)]


class Processor:
    """As much of a processor as text needs: one prompt at a time, so no padding."""
    def __init__(self, tok):
        self.tok = tok
        self.tokenizer = type("Tokenizer", (), {"encode": staticmethod(lambda text: tok.encode(text).ids)})

    def apply_chat_template(self, messages, **_):
        return [self.tok.encode("".join(f"<|im_start|>{m['role']}\n{m['content'][0]['text']}<|im_end|>\n" for m in messages)).ids]

    def __call__(self, text, **_):
        ids = torch.tensor([self.tok.encode(t).ids for t in text])
        return BatchFeature(dict(input_ids=ids, attention_mask=torch.ones_like(ids)))


def main():
    folder, out = sys.argv[1:3]
    painter = Painter(folder)
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(FlowMatchEulerDiscreteScheduler.load_config(f"{folder}/scheduler"))
    pipe = QwenImage21Pipeline(scheduler, painter.vae, painter.text, Processor(painter.tok), painter.image, sample_sigmas=painter.sigmas)
    pipe.set_progress_bar_config(disable=True)
    rows = []
    for name, prompt, seed in ASKED:
        paint = lambda **what: pipe(height=256, width=256, generator=torch.Generator().manual_seed(seed), **what)
        picture = paint(prompt=prompt).images[0]
        states = pipe.encode_prompt(prompt)[0]
        moved = states + 1e-4 * states.abs().mean() * torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
        soft = [paint(prompt_embeds=s, output_type="pt").images for s in (states, moved)]
        change = float((soft[0] - soft[1]).abs().max()) * 255
        assert change < 0.5, f"{prompt}, seed {seed}: moved by {change:.2f} levels, take another seed"
        picture.save(f"{out}/{name}.png")
        rows.append(dict(file=f"{name}.png", prompt=prompt, seed=seed))
        print(name, picture.mode, f"largest change {change:.3f} levels", flush=True)
    json.dump(rows, open(f"{out}/golden.json", "w"), indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
