"""Times torch eager f32 on the model of `make_looking_models.py`, in turns with `look.rs`, and prints both with their ratio.

    python benches/torch_looking.py FOLDER [--threads 2] [--turns 3] [--runs 3] [--only STAGE] -- COMMAND

With one thread (and `RAYON_NUM_THREADS=1` for COMMAND) the time is processor time, which other programs disturb less; else wall time.
COMMAND is the benchmark's own program with its arguments, which prints JSON: `cargo bench --bench look -- FOLDER 3`, or the file that
`cargo bench --bench look --no-run` names. In every turn torch runs first, then COMMAND; what counts is the best of all turns.

    vit 1024x1024   4,096 patches through the vision tower
    prefill N       N tokens through the decoder into an empty cache, without the output layer
    decode token    one of 32 tokens after 512, without the output layer
    output layer    one state to 151,936 logits
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--only", default="")
end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
options, command = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch  # noqa: E402
from transformers import DynamicCache, Qwen3VLForConditionalGeneration  # noqa: E402

torch.set_num_threads(options.threads)
torch.set_grad_enabled(False)
CONTEXT, DECODED = 512, 32

model = Qwen3VLForConditionalGeneration.from_pretrained(options.folder / "f32", dtype=torch.float32).eval()
visual, language = model.model.visual, model.model.language_model


def ids(count):
    return (torch.arange(count) * 7 % 400)[None]


def vit():
    pixels, grid = torch.randn(4096, 3 * 2 * 16 * 16), torch.tensor([[1, 64, 64]])
    return lambda: visual(pixels, grid_thw=grid)


def prefill(tokens):
    return lambda: language(input_ids=ids(tokens), past_key_values=DynamicCache(config=model.config.text_config))


def decode():
    tokens = ids(CONTEXT + DECODED)
    cache = DynamicCache(config=model.config.text_config)
    language(input_ids=tokens[:, :CONTEXT], past_key_values=cache)

    def work():
        cache.crop(CONTEXT)
        for i in range(CONTEXT, CONTEXT + DECODED):
            position = torch.full((3, 1, 1), i)
            language(input_ids=tokens[:, i : i + 1], past_key_values=cache, position_ids=position)

    return work


def output():
    states = torch.randn(1, 1, 2048)
    return lambda: model.lm_head(states)


CLOCK = time.process_time if options.threads == 1 else time.perf_counter
STAGES = {
    "vit 1024x1024": (vit(), 1),
    "prefill 512": (prefill(512), 1),
    "prefill 1024": (prefill(1024), 1),
    "decode token": (decode(), DECODED),
    "output layer": (output(), 1),
}


def measure(work, count):
    work()
    best = float("inf")
    for _ in range(options.runs):
        start = CLOCK()
        work()
        best = min(best, CLOCK() - start)
    return best / count


theirs, ours = {}, {}
for turn in range(options.turns):
    for stage, (work, count) in STAGES.items():
        if options.only not in stage:
            continue
        theirs[stage] = min(theirs.get(stage, float("inf")), measure(work, count))
    if command:
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["best_s"]
        for name, seconds in found.items():
            ours[name] = min(ours.get(name, float("inf")), seconds)
    print(f"turn {turn + 1} of {options.turns}, torch {torch.__version__}, {options.threads} threads")
    for stage, seconds in theirs.items():
        print(f"{stage:<16} torch f32 {seconds * 1e3:>9.2f} ms", end="")
        for name, mine in ours.items():
            if name.startswith(stage):
                print(f"   {name.removeprefix(stage)} {mine * 1e3:.2f} ms, {seconds / mine:.2f}x", end="")
        print(flush=True)
