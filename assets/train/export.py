"""Writes a trained model as a diffusers folder with GGUF weights.

    python export.py RUN_FOLDER TOKENIZER_JSON OUT_FOLDER [MODEL_NAME]      # RUN_FOLDER: vae.pt and MODEL_NAME_[ab].pt

Tensor names are those of the state dicts. Matrices whose rows are a multiple of 32 long are Q8_0, the others F16; kernels
are stored as matrices (out, in x kernel); everything else is F32. The tied output head is left out.
"""
import json
import os
import shutil
import sys
import tempfile

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

import models as M

SIGMAS = [1.0, 0.96875, 0.921875, 0.859375, 0.765625, 0.625, 0.4375, 0.21875]      # all exact in bfloat16
CHAT = ("{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}{%- if message['content'] is string %}"
        "{{- message['content'] }}{%- else %}{%- for part in message['content'] %}{%- if part['type'] == 'image' or 'image' in part %}"
        "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- elif 'text' in part %}{{- part['text'] }}{%- endif %}{%- endfor %}{%- endif %}"
        "{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
IMAGES = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5] * 3,
          "image_processor_type": "Qwen2VLImageProcessor", "image_std": [0.5] * 3, "merge_size": 2, "patch_size": 16, "resample": 3,
          "rescale_factor": 1 / 255, "size": {"longest_edge": 65536, "shortest_edge": 1024}, "temporal_patch_size": 2,
          "processor_class": "Qwen3VLProcessor"}


def read_run(folder, tok, name="model"):
    nets = torch.nn.ModuleDict(dict(text=M.build_text_encoder(tok), image=M.build_transformer()))
    found = {}
    for part in "ab": found.update(torch.load(f"{folder}/{name}_{part}.pt", map_location="cpu"))
    missing, strange = nets.load_state_dict({k: v.float() for k, v in found.items()}, strict=False)
    assert not strange and all("lm_head" in k for k in missing), (missing, strange)
    saved = torch.load(f"{folder}/vae.pt", map_location="cpu")
    vae = M.build_vae(); vae.load_state_dict(saved["vae"])
    vae.register_to_config(latents_mean=[round(float(v), 6) for v in saved["mean"]], latents_std=[round(float(v), 6) for v in saved["std"]])
    return nets, vae


def packed(w):
    """-> array and its GGML type."""
    if w.ndim < 2 or w.numel() == w.shape[0]:
        return w.float().numpy(), gguf.GGMLQuantizationType.F32
    w = np.ascontiguousarray(w.float().flatten(1).numpy())
    if w.shape[1] % 32 == 0:
        return gguf.quants.quantize(w, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0
    return w.astype(np.float16), gguf.GGMLQuantizationType.F16


def write_gguf(net, path, arch):
    out = gguf.GGUFWriter(path, arch)
    out.add_name("atelier painter")
    for name, w in net.state_dict().items():
        if name == "lm_head.weight": continue
        array, kind = packed(w)
        out.add_tensor(name, array, raw_dtype=kind)
    out.write_header_to_file(); out.write_kv_data_to_file(); out.write_tensors_to_file(); out.close()


def save_config(net, folder):
    """config.json as save_pretrained writes it."""
    with tempfile.TemporaryDirectory() as t:
        net.save_pretrained(t)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(f"{t}/config.json", folder)


def save_tokenizer(file, folder):
    from transformers import Qwen2TokenizerFast
    special = [t["content"] for t in json.load(open(file))["added_tokens"] if t["special"]]
    os.makedirs(folder, exist_ok=True)
    config = {"add_prefix_space": False, "chat_template": CHAT, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
              "extra_special_tokens": special, "model_max_length": 4096, "pad_token": "<|endoftext|>", "split_special_tokens": False,
              "tokenizer_class": Qwen2TokenizerFast.__name__.replace("Fast", ""), "unk_token": None, "bos_token": None}
    json.dump(config, open(f"{folder}/tokenizer_config.json", "w"), indent=2, ensure_ascii=False)
    json.dump(IMAGES, open(f"{folder}/preprocessor_config.json", "w"), indent=2)
    shutil.copyfile(file, f"{folder}/tokenizer.json")


def main():
    run, tokenizer, out = sys.argv[1:4]
    tok = Tokenizer.from_file(tokenizer)
    nets, vae = read_run(run, tok, *sys.argv[4:5])
    for net, part, file, arch in ((nets["image"], "transformer", "diffusion_pytorch_model.gguf", "qwen_image21"),
                                  (vae, "vae", "diffusion_pytorch_model.gguf", "qwen_image21_vae"),
                                  (nets["text"], "text_encoder", "model.gguf", "qwen3vl")):
        save_config(net, f"{out}/{part}")
        write_gguf(net, f"{out}/{part}/{file}", arch)
    save_tokenizer(tokenizer, f"{out}/tokenizer")
    from diffusers import FlowMatchEulerDiscreteScheduler
    FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False).save_pretrained(f"{out}/scheduler")
    json.dump({"_class_name": "QwenImage21Pipeline", "_diffusers_version": "0.42.1", "default_side": 256,
               "sample_sigmas": SIGMAS, "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
               "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"], "tokenizer": ["transformers", "Qwen2TokenizerFast"],
               "transformer": ["diffusers", "QwenImage21Transformer2DModel"], "vae": ["diffusers", "AutoencoderKLQwenImage21"]},
              open(f"{out}/model_index.json", "w"), indent=2)
    sizes = {os.path.relpath(os.path.join(d, f), out): os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(out) for f in fs}
    print(json.dumps(sizes, indent=1), sum(sizes.values()), "bytes")


if __name__ == "__main__":
    main()
