"""Writes the random-weight models of the speed benchmark as one checkpoint in the published layout.

    python benches/make_models.py FOLDER        (about 3.5 GB)

FOLDER is a whole diffusers checkpoint: a transformer of 8 blocks, 8 heads of 128 (1024 wide); the full-size VAE; a text encoder of
the 2B shape with 4 layers and a small vocabulary. Beside it stand the same transformer in bf16 (`transformer-bf16/`) and as GGUF Q8_0
(`transformer-q8_0/diffusion_pytorch_model.gguf`, state-dict names). Versions as in `tests/fixtures/README.md`, and gguf.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fixtures"))

import diffusers
import gguf
import numpy as np
import torch

import checkpoint

TRANSFORMER = dict(num_layers=8, num_attention_heads=8, attention_head_dim=128, context_in_dim=2048)
TEXT = dict(
    hidden_size=2048, intermediate_size=6144, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=8,
    head_dim=128, mrope_section=[24, 20, 20],
)  # fmt: skip
VISION = dict(
    hidden_size=64, intermediate_size=128, depth=1, num_heads=2, deepstack_visual_indexes=[0], num_position_embeddings=64,
    out_hidden_size=2048,
)  # fmt: skip


def write_gguf(model, path):
    """Matrices in Q8_0, vectors in f32, under the names of the state dict."""
    path.parent.mkdir(parents=True)
    writer = gguf.GGUFWriter(path, "qwen_image")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if values.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    checkpoint.check_versions()
    diffusers.logging.set_verbosity_error()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = checkpoint.make_tokenizer(scratch)
    # Each part is built, written and dropped before the next: the models together are larger than some machines.
    transformer = checkpoint.make_transformer(1, **TRANSFORMER)
    transformer.save_pretrained(folder / "transformer")
    write_gguf(transformer, folder / "transformer-q8_0" / "diffusion_pytorch_model.gguf")
    shutil.copy(folder / "transformer" / "config.json", folder / "transformer-q8_0")
    transformer.to(torch.bfloat16).save_pretrained(folder / "transformer-bf16")
    del transformer
    vae = diffusers.AutoencoderKLQwenImage21()  # the default configuration is the published one
    checkpoint.fill(vae, "1/vae", [("decoder.conv_out.weight", 0.75)]).save_pretrained(folder / "vae")
    del vae
    checkpoint.make_text_encoder(1, tokenizer, dict(TEXT), dict(VISION)).save_pretrained(folder / "text_encoder")
    checkpoint.make_processor(tokenizer).save_pretrained(folder / "processor")
    checkpoint.FlowMatchEulerDiscreteScheduler(shift=1.0).save_pretrained(folder / "scheduler")
    index = {
        "_class_name": "QwenImage21Pipeline",
        "_diffusers_version": diffusers.__version__,
        "processor": ["transformers", "Qwen3VLProcessor"],
        "sample_sigmas": None,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"],
        "transformer": ["diffusers", "QwenImage21Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage21"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()
