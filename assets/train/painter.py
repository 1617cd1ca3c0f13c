"""Loads an exported folder back into the reference classes (f32, the 8-bit weights dequantised) and paints with it."""
import json

import gguf
import torch
from tokenizers import Tokenizer

import models as M


def fill(net, path):
    """Every tensor of the file into the network, flattened kernels back into their shapes."""
    state = net.state_dict()
    found = {}
    for t in gguf.GGUFReader(path).tensors:
        w = torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).float()
        found[t.name] = w.reshape(state[t.name].shape)
    missing, strange = net.load_state_dict(found, strict=False)
    assert not strange and set(missing) <= {"lm_head.weight"}, (missing, strange)
    return net.eval().requires_grad_(False)


class Painter:
    def __init__(self, folder, device="cpu"):
        from diffusers import AutoencoderKLQwenImage21, QwenImage21Transformer2DModel
        from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
        self.device = device
        self.tok = Tokenizer.from_file(f"{folder}/tokenizer/tokenizer.json")
        self.sigmas = json.load(open(f"{folder}/model_index.json"))["sample_sigmas"]
        self.vae = fill(AutoencoderKLQwenImage21.from_config(AutoencoderKLQwenImage21.load_config(f"{folder}/vae")), f"{folder}/vae/diffusion_pytorch_model.gguf").to(device)
        self.image = fill(QwenImage21Transformer2DModel.from_config(QwenImage21Transformer2DModel.load_config(f"{folder}/transformer")),
                          f"{folder}/transformer/diffusion_pytorch_model.gguf").to(device)
        self.text = fill(Qwen3VLForConditionalGeneration(Qwen3VLConfig.from_pretrained(f"{folder}/text_encoder")), f"{folder}/text_encoder/model.gguf").to(device)
        stat = lambda k: torch.tensor(self.vae.config[k], device=device)[:, None, None]
        self.mean, self.std = stat("latents_mean"), stat("latents_std")

    @torch.no_grad()
    def paint(self, prompts, seeds, sigmas=None):
        """(B, 4, 256, 256) in [-1, 1]; bfloat16 on a GPU."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device == "cuda"):
            z = M.sample(self.text, self.image, self.tok, list(prompts), sigmas or self.sigmas, list(seeds), device=self.device)
            z = z * self.std + self.mean
            return torch.cat([M.vae_decode(self.vae, c).float() for c in z.split(64)]).clamp(-1, 1)

    @torch.no_grad()
    def rebuild(self, x):
        """Pictures through the VAE and back."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device == "cuda"):
            return torch.cat([M.vae_decode(self.vae, M.vae_encode(self.vae, c)).float() for c in x.split(64)]).clamp(-1, 1)
