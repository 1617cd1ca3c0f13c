"""The looker's network (the reference's class at demo size), and a batched forward pass for training.

A batch holds pictures of one size, each with several independent conversations: a token sees the picture and what was
said before in its own conversation, at the positions it would have were that conversation alone. Row by row the result
is the reference's (`check_looker.py`).
"""
import torch
import torch.nn.functional as F

from looker_scenes import BLIND

VOCAB, PATCH = 3072, 16


def build(tok):
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    ids = {k: tok.token_to_id(v) for k, v in dict(
        image_token_id="<|image_pad|>", video_token_id="<|video_pad|>", vision_start_token_id="<|vision_start|>",
        vision_end_token_id="<|vision_end|>").items()}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(
        **ids, tie_word_embeddings=True,
        text_config=dict(
            vocab_size=VOCAB, hidden_size=192, intermediate_size=384, num_hidden_layers=3, num_attention_heads=6,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[6, 5, 5], mrope_interleaved=True)),
        vision_config=dict(
            depth=6, hidden_size=160, num_heads=5, intermediate_size=384, out_hidden_size=192, patch_size=PATCH,
            spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=256, deepstack_visual_indexes=[])))


# ---- vision tower ---------------------------------------------------------------------------------------------------
def patches(x):
    """(B, 3, H, W) in [-1, 1] -> (B, patches, 3 x 2 x 16 x 16), four neighbours that become one token after each other."""
    b, _, h, w = x.shape
    x = x.reshape(b, 3, h // 32, 2, 16, w // 32, 2, 16).permute(0, 2, 5, 3, 6, 1, 4, 7)       # block row, column, row, column in block, channel
    x = x.reshape(b, -1, 3, 1, 16, 16).expand(-1, -1, -1, 2, -1, -1)
    return x.flatten(2)


def vision_places(visual, grid, device):
    """Position embeddings (n, C) and rotary (cos, sin) (n, head) of a grid of patches, from the reference's own functions."""
    from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids
    thw = torch.tensor([[1, *grid]], device=device)
    index, weight = get_vision_interpolation_indices_and_weights(
        thw, num_grid_per_side=visual.num_grid_per_side, mode=visual.interpolation_mode, align_corners=visual.interpolation_align_corners,
        spatial_merge_size=visual.config.spatial_merge_size, kwargs={})
    cos, sin = visual.rotary_pos_emb(torch.zeros(1, device=device), get_vision_position_ids(thw, 2, kwargs={}))
    return index, weight, cos, sin


def turn(x, cos, sin):
    half = x.shape[-1] // 2
    return (x.float() * cos + torch.cat([-x[..., half:], x[..., :half]], -1).float() * sin).to(x.dtype)


def vision_block(block, h, cos, sin):
    a = block.attn
    q, k, v = a.qkv(block.norm1(h)).unflatten(-1, (3, a.num_heads, -1)).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v)
    h = h + a.proj(y.transpose(1, 2).flatten(2))
    return h + block.mlp(block.norm2(h))


def see(model, x, places):
    """Pictures (B, 3, H, W) -> visual tokens (B, H/32 x W/32, C)."""
    visual = model.model.visual
    index, weight, cos, sin = places
    proj = visual.patch_embed.proj
    h = F.linear(patches(x), proj.weight.flatten(1), proj.bias)
    h = h + (visual.pos_embed(index) * weight[..., None]).sum(1).to(h.dtype)
    for block in visual.blocks: h = vision_block(block, h, cos, sin)
    m = visual.merger
    return m.linear_fc2(m.act_fn(m.linear_fc1(m.norm(h).unflatten(1, (-1, 4)).flatten(2))))


# ---- language model -------------------------------------------------------------------------------------------------
def text_places(lm, grid, before, place):
    """Rotary (cos, sin), (B, 1, L, head), of: `before` prefix tokens, a picture, the token after it, and text at `place`."""
    gh, gw = grid[0] // 2, grid[1] // 2
    device = place.device
    head = torch.arange(before, device=device).expand(3, -1)
    rows, cols = torch.arange(gh, device=device).repeat_interleave(gw), torch.arange(gw, device=device).repeat(gh)
    image = torch.stack([torch.zeros_like(rows), rows, cols]) + before
    after = torch.full((3, 1), before + max(gh, gw), device=device)
    fixed = torch.cat([head, image, after], 1)[:, None].expand(-1, place.shape[0], -1)
    position = torch.cat([fixed, place[None].expand(3, -1, -1)], 2)                            # (3, B, L)
    return lm.rotary_emb(torch.zeros(1, device=device), position)


def text_layer(layer, h, cos, sin, mask):
    a, y = layer.self_attn, layer.input_layernorm(h)
    q, k, v = (p(y).unflatten(-1, (-1, a.head_dim)) for p in (a.q_proj, a.k_proj, a.v_proj))
    q, k, v = a.q_norm(q).to(v.dtype).transpose(1, 2), a.k_norm(k).to(v.dtype).transpose(1, 2), v.transpose(1, 2)
    k, v = (x.repeat_interleave(a.num_key_value_groups, 1) for x in (turn(k, cos, sin), v))
    y = F.scaled_dot_product_attention(turn(q, cos, sin), k, v, attn_mask=mask)
    h = h + a.o_proj(y.transpose(1, 2).flatten(2))
    return h + layer.mlp(layer.post_attention_layernorm(h))


def answer(model, tokens, prefix, after, ids, segment, place, grid):
    """Hidden states after the last norm at the text tokens (B, T, C).

    tokens: the picture's (B, N, C); prefix, after: ids before and after it; ids, segment, place (B, T): the conversations."""
    lm = model.model.language_model
    b, n = tokens.shape[:2]
    head = prefix.shape[0]
    seen_end = head + max(grid) // 2 + 1
    embed = lambda t: lm.embed_tokens(t).to(tokens.dtype)
    h = torch.cat([embed(prefix).expand(b, -1, -1), tokens, embed(after).expand(b, -1, -1), embed(ids)], 1)
    blind = segment >= BLIND
    cos, sin = (t[:, None] for t in text_places(lm, grid, head, torch.where(blind, place, place + seen_end)))
    length = h.shape[1]
    seg = F.pad(segment, (length - ids.shape[1], 0), value=0)
    at = torch.arange(length, device=h.device)
    mask = (at[:, None] >= at[None]) & ((seg[:, :, None] == seg[:, None]) | (seg[:, None] == 0) & (seg[:, :, None] < BLIND))
    mask = torch.where(mask[:, None], 0.0, float("-inf")).to(h.dtype)
    for layer in lm.layers: h = text_layer(layer, h, cos, sin, mask)
    return lm.norm(h[:, length - ids.shape[1]:])


plain_parts = vision_block, text_layer


def compile_parts():
    """One block's code serves all blocks; pictures of other shapes than the square go through `plain_parts`."""
    global vision_block, text_layer
    vision_block, text_layer = map(torch.compile, plain_parts)
