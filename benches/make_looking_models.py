"""Writes the random-weight vision-language model of the speed benchmark in four stored forms.

    python benches/make_looking_models.py FOLDER        (about 5 GB)

4 layers of the decoder of Qwen3-VL-2B (2048 wide, MLP 6144, 16 heads and 8 key/value heads of 128, vocabulary of 151,936 with the
output layer tied to the embeddings) and 4 layers of its vision tower (1024 wide, MLP 4096, 16 heads, one deepstack layer).
`f32/` and `bf16/` hold the same numbers, all of them exact in bf16; `q8_0/` and `q4_k/` are GGUF files under checkpoint names whose
matrices of the decoder (with the embeddings) are quantised. Versions as in `tests/fixtures/README.md`, and gguf.
"""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fixtures"))

import gguf
import numpy as np
import torch

import checkpoint

TEXT = dict(
    vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=4, num_attention_heads=16,
    num_key_value_heads=8, head_dim=128, mrope_section=[24, 20, 20],
)  # fmt: skip
VISION = dict(
    hidden_size=1024, intermediate_size=4096, depth=4, num_heads=16, deepstack_visual_indexes=[1],
    num_position_embeddings=2304, out_hidden_size=2048,
)  # fmt: skip


def q4_k(values):
    """[rows, columns] as Q4_K blocks, [rows, bytes]: every sub-block of 32 from its least (at most 0) to its largest value."""
    x = values.reshape(-1, 8, 32)
    least = np.minimum(x.min(2), 0)
    step = (x.max(2) - least) / 15
    scale, minimum = (step.max(1) / 63).astype(np.float16), (-least.min(1) / 63).astype(np.float16)
    wide = [np.maximum(v.astype(np.float32), 1e-12)[:, None] for v in (scale, minimum)]
    s, m = np.rint(step / wide[0]).clip(0, 63), np.rint(-least / wide[1]).clip(0, 63)
    quants = np.rint((x + (m * wide[1])[..., None]) / np.maximum(s * wide[0], 1e-12)[..., None]).clip(0, 15).astype(np.uint8)
    s, m = s.astype(np.uint8), m.astype(np.uint8)
    packed = np.concatenate(
        [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1
    )
    nibbles = quants[:, 0::2] | quants[:, 1::2] << 4
    halves = np.stack([scale, minimum], 1).view(np.uint8)
    return np.concatenate([halves, packed, nibbles.reshape(-1, 128)], 1).reshape(len(values), -1)


def write_gguf(model, path, kind):
    path.parent.mkdir(parents=True)
    writer = gguf.GGUFWriter(path, "qwen3vl")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        values = tensor.float().numpy()
        if "language_model" in name and values.ndim == 2:
            stored = q4_k(values) if kind == gguf.GGMLQuantizationType.Q4_K else gguf.quants.quantize(values, kind)
            writer.add_tensor(name, stored, raw_dtype=kind)
        else:
            # GGUF has four axes at most; the patch kernel has five
            writer.add_tensor(name, values.reshape(len(values), -1) if values.ndim > 4 else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def main():
    checkpoint.check_versions()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = checkpoint.make_tokenizer(scratch)
    model = checkpoint.make_text_encoder(1, tokenizer, dict(TEXT), dict(VISION), tied=True)
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16().float())
    model.save_pretrained(folder / "f32")
    for name, kind in [("q8_0", gguf.GGMLQuantizationType.Q8_0), ("q4_k", gguf.GGMLQuantizationType.Q4_K)]:
        write_gguf(model, folder / name / "model.gguf", kind)
        shutil.copy(folder / "f32" / "config.json", folder / name)
    model.to(torch.bfloat16).save_pretrained(folder / "bf16")


if __name__ == "__main__":
    main()
