"""The three networks at demo size, and a batched forward pass that is exact for every row.

The classes are the reference ones (diffusers, transformers). The reference pipeline gives every prompt of a batch the same
image position on the frame axis, padded or not; at run time prompts come alone and unpadded. So training uses its own
forward over the same modules, with each row's true positions and padded keys masked: row by row it equals the reference
run without padding (`check_forward.py`).
"""
import math

import torch
import torch.nn.functional as F

from captions import PREFIX, TEMPLATE

Z, VOCAB, TEXT_WIDTH, SIDE = 24, 3072, 40, 16
AXES = (16, 24, 24)


def build_vae():
    from diffusers import AutoencoderKLQwenImage21
    return AutoencoderKLQwenImage21(
        base_dim=16, decoder_base_dim=16, z_dim=Z, dim_mult=[1, 2, 4, 8, 8], num_res_blocks=1, attn_scales=[],
        temperal_downsample=[False] * 4, latents_mean=[0.0] * Z, latents_std=[1.0] * Z)


def build_text_encoder(tok):
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    ids = {k: tok.token_to_id(v) for k, v in dict(
        image_token_id="<|image_pad|>", video_token_id="<|video_pad|>", vision_start_token_id="<|vision_start|>",
        vision_end_token_id="<|vision_end|>").items()}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(
        **ids, tie_word_embeddings=True,
        text_config=dict(
            vocab_size=VOCAB, hidden_size=256, intermediate_size=448, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[12, 10, 10], mrope_interleaved=True)),
        vision_config=dict(
            depth=2, hidden_size=32, num_heads=2, intermediate_size=64, out_hidden_size=256, patch_size=16,
            spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=256, deepstack_visual_indexes=[0])))


def build_transformer():
    from diffusers import QwenImage21Transformer2DModel
    m = QwenImage21Transformer2DModel(
        in_channels=Z, out_channels=Z, num_layers=6, attention_head_dim=64, num_attention_heads=5, context_in_dim=256,
        mlp_ratio=3, axes_dims_rope=AXES)
    for w, std in [(m.time_text_embed.timestep_embedder.linear_1.weight, 0.09), (m.modulation[1].weight, 0.05),
                   (m.time_text_embed.timestep_embedder.linear_2.weight, 0.09), (m.norm_out.linear.weight, 0.02),
                   (m.proj_out.weight, 0.002)]:
        torch.nn.init.normal_(w, std=std)       # gates start near +-0.4 instead of near 0
    return m


# ---- VAE ----------------------------------------------------------------------------------------------------------
def vae_encode(vae, x):
    """(B, 4, H, W) in [-1, 1] -> mean of the posterior, (B, Z, H/16, W/16), not yet normalised."""
    return vae.quant_conv(vae.encoder(x[:, :, None]))[:, :Z, 0]


def vae_decode(vae, z):
    return vae.decoder(vae.post_quant_conv(z[:, :, None]), first_chunk=True)[:, :, 0]


# ---- text encoder -------------------------------------------------------------------------------------------------
def encode_text(text_encoder, prefix_ids, ids):
    """ids (B, T), right padded, after the fixed prefix. Hidden states before the final norm, prefix dropped."""
    lm = text_encoder.model.language_model
    ids = torch.cat([prefix_ids[None].expand(ids.shape[0], -1), ids], 1)
    h = lm.embed_tokens(ids)
    angles = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * lm.rotary_emb.inv_freq   # text: all axes alike
    cos, sin = (torch.cat([f, f], -1)[None, None] for f in (angles.cos(), angles.sin()))
    turn = lambda x: (x.float() * cos + torch.cat([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1).float() * sin).to(x.dtype)
    for layer in lm.layers:
        a, y = layer.self_attn, layer.input_layernorm(h)
        q, k, v = (p(y).unflatten(-1, (-1, a.head_dim)) for p in (a.q_proj, a.k_proj, a.v_proj))
        q, k, v = a.q_norm(q).to(v.dtype).transpose(1, 2), a.k_norm(k).to(v.dtype).transpose(1, 2), v.transpose(1, 2)
        k, v = (x.repeat_interleave(a.num_key_value_groups, 1) for x in (turn(k), v))
        y = F.scaled_dot_product_attention(turn(q), k, v, is_causal=True)
        h = h + a.o_proj(y.transpose(1, 2).flatten(2))
        h = h + layer.mlp(layer.post_attention_layernorm(h))
    return h[:, prefix_ids.shape[0]:]


# ---- transformer --------------------------------------------------------------------------------------------------
def rope_angles(lengths, width, device):
    """(B, width + SIDE*SIDE, head_dim/2) angles: text advances all axes; the image stays at `length` on the frame axis."""
    text = torch.arange(width, device=device, dtype=torch.float32)
    grid = torch.arange(SIDE, device=device, dtype=torch.float32) - (SIDE - SIDE // 2)
    rows, cols = grid.repeat_interleave(SIDE), grid.repeat(SIDE)
    b = lengths.shape[0]
    frame = torch.cat([text.expand(b, -1), lengths.float()[:, None].expand(-1, SIDE * SIDE)], 1)
    height = torch.cat([text, rows]).expand(b, -1)
    wide = torch.cat([text, cols]).expand(b, -1)
    out = []
    for pos, dim in zip((frame, height, wide), AXES):
        inv = 1.0 / torch.pow(torch.tensor(10000.0, device=device), torch.arange(0, dim, 2, device=device).float() / dim)
        out.append(pos[..., None] * inv)
    return torch.cat(out, -1)


def rotate(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


EXTRA = 8                                                    # further head channels that carry the mask of padded keys


def block_step(block, h, mods, target, cos, sin, padded, width):
    """One transformer block. Text rows read the last row of `mods` (t = 0), image rows their own.

    Padded keys are switched off by one more head channel (1 in every query, -2000 in a padded key): attention without a
    mask argument runs in the fast kernels."""
    scale1, gate1, scale2, gate2 = (torch.where(target, p[:-1, None], p[-1:, None]) for p in mods.chunk(4, -1))
    a = block.attn
    y = block.img_norm1(h) * (1 + scale1)
    q, k, v = (p(y).unflatten(-1, (a.heads, -1)) for p in (a.to_q, a.to_k, a.to_v))
    q, k = rotate(a.norm_q(q).to(v.dtype), cos, sin), rotate(a.norm_k(k).to(v.dtype), cos, sin)
    more = (*q.shape[:3], EXTRA - 1)
    q = torch.cat([q, q.new_ones(*more[:3], 1), q.new_zeros(more)], -1).transpose(1, 2)
    k = torch.cat([k, padded.to(k.dtype)[:, :, None, None].expand(*more[:3], 1), k.new_zeros(more)], -1).transpose(1, 2)
    v = F.pad(v, (0, EXTRA)).transpose(1, 2)
    size = q.shape[-1] - EXTRA
    text_out = F.scaled_dot_product_attention(q[:, :, :width], k[:, :, :width], v[:, :, :width], is_causal=True, scale=size ** -0.5)
    image_out = F.scaled_dot_product_attention(q[:, :, width:], k, v, scale=size ** -0.5)
    y = torch.cat([text_out, image_out], 2)[..., :size].transpose(1, 2).flatten(2)
    h = h + gate1.tanh() * a.to_out[0](y)
    return h + gate2.tanh() * block.img_mlp(block.img_norm2(h) * (1 + scale2))


def start(m, x, text, t):
    """Joint sequence and time embedding (one extra row for t = 0)."""
    te = m.txt_in(text)
    temb = m.time_text_embed(torch.cat([t, t.new_zeros(1)]), x.float())
    return torch.cat([te, m.img_in(x).to(te.dtype)], 1), temb, m.modulation(temb)


def finish(m, h, temb, width):
    scale = m.norm_out.linear(m.norm_out.silu(temb))[:-1, None]
    return m.proj_out(m.norm_out.norm(h[:, width:]) * (1 + scale))


def transform(m, x, text, lengths, t):
    """Velocity for latents x (B, 256, Z) at t in [0, 1], given text states (B, T, C) of which `lengths` are real."""
    b, width = text.shape[:2]
    h, temb, mods = start(m, x, text, t)
    angles = rope_angles(lengths, width, x.device)
    cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
    at = torch.arange(h.shape[1], device=x.device)
    target = (at >= width)[None, :, None]
    padded = torch.where((at[None] < lengths[:, None]) | target[..., 0], 0.0, -2000.0)
    for block in m.transformer_blocks:
        h = block_step(block, h, mods, target, cos, sin, padded, width)
    return finish(m, h, temb, width)


def compile_parts():
    """Compiles the pieces apart: one block's code serves all blocks, so that compiling takes seconds."""
    global block_step, start, finish, encode_text, rope_angles
    block_step, start, finish, encode_text, rope_angles = map(torch.compile, (block_step, start, finish, encode_text, rope_angles))


# ---- sampling -----------------------------------------------------------------------------------------------------
def tokenize(tok, prompts, device="cpu", width=TEXT_WIDTH):
    drop = len(tok.encode(PREFIX).ids)
    enc = [tok.encode(TEMPLATE.format(p or " ")).ids[drop:][:width] for p in prompts]
    ids = torch.zeros(len(enc), width, dtype=torch.long)
    for i, e in enumerate(enc):
        ids[i, :len(e)] = torch.tensor(e)
    return ids.to(device), torch.tensor([len(e) for e in enc]).to(device)


def prefix(tok, device="cpu"):
    return torch.tensor(tok.encode(PREFIX).ids, device=device)


@torch.no_grad()
def sample(text_encoder, m, tok, prompts, sigmas, seeds=None, guidance=1.0, device="cpu", chunk=256):
    """Euler along `sigmas` (a final 0 is appended). Noise as the reference pipeline draws it: one CPU generator a picture."""
    out = []
    for s in range(0, len(prompts), chunk):
        part = prompts[s:s + chunk]
        seed = seeds[s:s + chunk] if seeds else range(s, s + len(part))
        x = torch.cat([torch.randn((1, 1, Z, SIDE, SIDE), generator=torch.Generator().manual_seed(k)) for k in seed])
        x = x.view(len(part), Z, SIDE * SIDE).transpose(1, 2).to(device)
        ids, n = tokenize(tok, part, device)
        text = encode_text(text_encoder, prefix(tok, device), ids)
        if guidance != 1.0:
            nids, nn = tokenize(tok, [" "], device)
            blank = encode_text(text_encoder, prefix(tok, device), nids).expand(len(part), -1, -1)
            nn = nn.expand(len(part))
        for a, b in zip(sigmas, list(sigmas[1:]) + [0.0]):
            t = torch.full((len(part),), a, device=device)
            v = transform(m, x, text, n, t).float()
            if guidance != 1.0:
                u = transform(m, x, blank, nn, t).float()
                v = u + guidance * (v - u)
            x = x + (b - a) * v
        out.append(x.transpose(1, 2).unflatten(-1, (SIDE, SIDE)))
    return torch.cat(out)
