"""Writes a trained looker as a folder in the Hub's layout, its weights as GGUF, and opens such a folder again.

    python export_looker.py looker.pt TOKENIZER_JSON OUT_FOLDER

Matrices (the patch kernel as one) are Q8_0, the table of positions, which is added and not multiplied, is F16, vectors are F32; names are those of the state dict; the tied output layer is left out.
"""
import json
import os
import shutil
import sys

import gguf
import torch
from tokenizers import Tokenizer

import looker as L
from export import IMAGES, packed, save_config

CHAT = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def write(state, tokenizer, folder):
    tok = Tokenizer.from_file(tokenizer)
    model = L.build(tok)
    missing, strange = model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    assert not strange and set(missing) <= {"lm_head.weight"}, (missing, strange)
    os.makedirs(folder, exist_ok=True)
    end, pad = tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")
    save_config(model, folder)
    out = gguf.GGUFWriter(f"{folder}/model.gguf", "qwen3vl")
    out.add_name("atelier looker")
    for name, w in model.state_dict().items():
        if name == "lm_head.weight": continue
        array, kind = (w.half().numpy(), gguf.GGMLQuantizationType.F16) if "pos_embed" in name else packed(w)
        out.add_tensor(name, array, raw_dtype=kind)
    out.write_header_to_file(); out.write_kv_data_to_file(); out.write_tensors_to_file(); out.close()
    special = [t["content"] for t in json.load(open(tokenizer))["added_tokens"]]
    put = lambda name, what: json.dump(what, open(f"{folder}/{name}", "w"), indent=2, ensure_ascii=False)
    put("tokenizer_config.json", {
        "add_prefix_space": False, "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "extra_special_tokens": special, "model_max_length": 4096, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None})
    put("generation_config.json", {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad})
    put("preprocessor_config.json", {**IMAGES, "size": {"longest_edge": 65536, "shortest_edge": 65536}})
    open(f"{folder}/chat_template.jinja", "w").write(CHAT)
    shutil.copyfile(tokenizer, f"{folder}/tokenizer.json")


def read(folder):
    """The folder in the reference's classes: model (f32, the 8-bit weights dequantised) and processor."""
    from transformers import AutoProcessor, GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration
    from painter import fill
    model = fill(Qwen3VLForConditionalGeneration(Qwen3VLConfig.from_pretrained(folder)), f"{folder}/model.gguf")
    model.generation_config = GenerationConfig.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    return model, processor


def ask(model, processor, pictures, questions, most=64):
    """One answer a picture; greedy."""
    texts = [processor.apply_chat_template([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": q}]}], add_generation_prompt=True, tokenize=False)
             for q in questions]
    inputs = processor(text=texts, images=list(pictures), padding=True, padding_side="left", return_tensors="pt")
    with torch.no_grad(): out = model.generate(**inputs, max_new_tokens=most, do_sample=False)
    return processor.batch_decode(out[:, inputs["input_ids"].shape[1]:], skip_special_tokens=True)


def main():
    checkpoint, tokenizer, folder = sys.argv[1:4]
    write(torch.load(checkpoint, map_location="cpu")["model"], tokenizer, folder)
    sizes = {f: os.path.getsize(f"{folder}/{f}") for f in sorted(os.listdir(folder))}
    print(json.dumps(sizes, indent=1), sum(sizes.values()), "bytes")


if __name__ == "__main__":
    main()
