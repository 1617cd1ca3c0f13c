"""Times torch eager f32 on the models of `make_models.py`; prints one JSON object.

    python benches/torch_peer.py FOLDER [--threads 2] [--runs 7] [--only transformer_step,vae_decode,text_encoder]

    transformer_step   1,024 target tokens (512x512 pixels), 64 text tokens, prefix cache warm
    vae_decode         one 256x256 picture
    text_encoder       256 tokens through the language model
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--runs", type=int, default=7)
parser.add_argument("--only", default="transformer_step,vae_decode,text_encoder")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch  # noqa: E402
from diffusers import AutoencoderKLQwenImage21, QwenImage21Transformer2DModel  # noqa: E402
from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21KVCache  # noqa: E402
from transformers import Qwen3VLForConditionalGeneration  # noqa: E402

torch.set_num_threads(options.threads)
torch.set_grad_enabled(False)


def transformer_step():
    model = QwenImage21Transformer2DModel.from_pretrained(options.folder / "transformer").eval()
    side, text = 32, 64
    cache = QwenImage21KVCache(len(model.transformer_blocks))
    inputs = dict(
        hidden_states=torch.randn(1, side * side, model.config.in_channels),
        encoder_hidden_states=torch.randn(1, text, model.config.context_in_dim),
        timestep=torch.tensor([0.5]),
        img_shapes=[[(1, side, side)]],
        img_mask=torch.tensor([[False] * text + [True] * (side * side // 4)]),
        kv_cache=cache,
    )
    model(**inputs, kv_cache_mode="extract")
    c = model.config
    width, layers = c.num_attention_heads * c.attention_head_dim, c.num_layers
    linear = layers * (4 + 3 * c.mlp_ratio) * width * width * 2 * side * side
    attention = layers * 4 * side * side * (side * side + text) * width
    return lambda: model(**inputs, kv_cache_mode="cached"), linear + attention


def vae_decode():
    model = AutoencoderKLQwenImage21.from_pretrained(options.folder / "vae").eval()
    latents = torch.randn(1, model.config.z_dim, 1, 16, 16)
    flops = 0

    def count(module, args, output):
        nonlocal flops
        flops += 2 * module.weight[0].numel() * output.numel()

    hooks = [m.register_forward_hook(count) for m in model.decoder.modules() if isinstance(m, torch.nn.Conv2d)]
    model.decode(latents)
    for hook in hooks:
        hook.remove()
    return lambda: model.decode(latents), flops


def text_encoder():
    model = Qwen3VLForConditionalGeneration.from_pretrained(options.folder / "text_encoder", dtype=torch.float32).eval()
    language, c = model.model.language_model, model.config.text_config
    tokens = 256
    ids = (torch.arange(tokens) * 7 % c.vocab_size)[None]
    heads = c.num_attention_heads * c.head_dim
    linear = c.hidden_size * (2 * heads + 2 * c.num_key_value_heads * c.head_dim + 3 * c.intermediate_size)
    flops = c.num_hidden_layers * (2 * tokens * linear + 2 * tokens * tokens * heads)
    return lambda: language(input_ids=ids, use_cache=False), flops


def measure(work):
    for _ in range(2):
        work()
    seconds = []
    for _ in range(options.runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


results = {}
for name in options.only.split(","):
    work, flops = globals()[name]()
    seconds = measure(work)
    del work
    results[name] = {
        "median_s": round(statistics.median(seconds), 5),
        "best_s": round(min(seconds), 5),
        "runs": len(seconds),
        "gflop": round(flops / 1e9, 2),
        "best_gflops": round(flops / 1e9 / min(seconds), 1),
    }
print(json.dumps({"torch": torch.__version__, "threads": options.threads, "dtype": "float32", "results": results}, indent=2))
