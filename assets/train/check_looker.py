"""Compares, for an exported looker: the training forward pass with the reference's, and the program's answers with the reference's.

    python check_looker.py DATA LOOKER_FOLDER [PROGRAM]             # PROGRAM: the built atelier
"""
import json
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer

import looker as L
import looker_scenes as S
from export_looker import ask, read
from looker_talk import DEFAULT


def rows(model, processor, data, folder, grid):
    """Largest difference of the states of random conversations about random pixels, each also run alone by the reference."""
    writer = S.Writer(Tokenizer.from_file(f"{folder}/tokenizer.json"))
    x = torch.rand(2, 3, grid[0] * 16, grid[1] * 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    tokens = L.see(model, x, L.vision_places(model.model.visual, grid, "cpu"))
    batch = S.batch((f"{data}/names.json", f"{folder}/tokenizer.json", 2, 3, False, None))
    ids, segment, place, _ = (torch.from_numpy(t).long() for t in batch[1:5])
    h = L.answer(model, tokens, torch.tensor(writer.before), torch.tensor(writer.after), ids, segment, place, grid)
    worst = 0.0
    for r in range(2):
        for s in segment[r].unique().tolist():
            if s < 0: continue
            own = (segment[r] == s).nonzero()[:, 0]
            picture = [] if s >= S.BLIND else [*writer.before, *[writer.image] * (grid[0] * grid[1] // 4), *writer.after]
            whole, extra = torch.tensor([picture + ids[r, own].tolist()]), {}
            if picture: extra = dict(pixel_values=L.patches(x[r:r + 1]).flatten(0, 1), image_grid_thw=torch.tensor([[1, *grid]]), mm_token_type_ids=(whole == writer.image).int())
            model.model.rope_deltas = None
            alone = model.model(input_ids=whole, **extra).last_hidden_state[0, -len(own):]
            worst = max(worst, float((alone - h[r, own]).abs().max() / alone.abs().max()))
    return worst


def program(path, model, processor, data, folder):
    """How many of the program's answers are the reference's, on scenes of several shapes."""
    from looker_pictures import Sprites
    import captions as C
    concepts, rng = C.Concepts(json.load(open(f"{data}/names.json"))), random.Random(11)
    sprites, same, count = Sprites(f"{data}/pictures.pkl", "cpu"), 0, 24
    with tempfile.TemporaryDirectory() as t:
        for k in range(count):
            h, w = rng.choice([(256, 256), (256, 256), (300, 200), (200, 320), (512, 512), (128, 96)])
            x, _ = sprites.compose(np.array([S.facts(S.draw_scene(concepts, rng))], np.float32), h, w)
            picture = Image.fromarray((x[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())
            picture.save(f"{t}/p.png")
            question = rng.choice([DEFAULT, "What is this?", "这是什么？", "描述这张图片。", "What colour is the background?"])
            model.model.rope_deltas = None
            theirs = ask(model, processor, [picture], [question])[0]
            ours = subprocess.run([path, "describe", f"{t}/p.png", "-p", question, "--model", folder], capture_output=True, text=True).stdout.strip()
            same += ours == theirs.strip()
            if ours != theirs.strip(): print(question, "|", ours, "|", theirs)
    return same, count


def main():
    data, folder, *rest = sys.argv[1:]
    model, processor = read(folder)
    with torch.no_grad():
        for grid in ((16, 16), (12, 20)):
            worst = rows(model, processor, data, folder, grid)
            print(grid, f"largest difference {worst:.1e} of the largest state")
            assert worst < 1e-4
    if rest:
        same, count = program(rest[0], model, processor, data, folder)
        print(f"{same} of {count} answers of the program are the reference's")


if __name__ == "__main__":
    main()
