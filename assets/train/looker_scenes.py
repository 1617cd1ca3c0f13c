"""Draws scenes and their conversations for training the looker, in worker processes."""
import json
import random

import numpy as np

import captions as C
from looker_talk import COLOURS, Talk

WIDTH, BRANCHES = 144, 12           # text tokens after a picture, conversations about it at most
KINDS = ["one", "two", "count", "empty", "strange"]
SEEN, BLIND = 0, 100                # segments: 0 the picture, 1.. conversations about it, 100.. conversations without a picture


def draw_scene(concepts, rng):
    """A picture with objects of any size at any place. Places are of centres; sides and places are shares of the picture's side."""
    kind = rng.choices(KINDS, [0.55, 0.26, 0.15, 0.012, 0.028])[0]
    s = dict(kind=kind, style=0 if rng.random() < 0.55 else 1, bg=0 if rng.random() < 0.3 else rng.randrange(len(COLOURS)), objects=[], flips=[])
    flip = lambda i: int(concepts.rows[i]["group"] in C.MIRRORED and rng.random() < 0.5)
    a = rng.randrange(concepts.n)
    if kind == "one":
        side = rng.choice([0.875, 0.875, 0.75, rng.uniform(0.36, 0.98), rng.uniform(0.5, 0.98)])
        room = (1.04 - side) / 2
        at = (0.5, 0.5) if rng.random() < 0.4 else (0.5 + rng.uniform(-room, room), 0.5 + rng.uniform(-room, room))
        s["objects"] = [(a, *at, side)]
    elif kind == "two":
        b = rng.randrange(concepts.n)
        while b == a: b = rng.randrange(concepts.n)
        s["relation"] = rng.choice(["beside", "above"])
        side = 0.5 if rng.random() < 0.6 else rng.uniform(0.34, 0.5)
        near, across = rng.uniform(side, max(side, 0.98 - side)) / 2 if side < 0.5 else 0.25, rng.uniform(side / 2, 1 - side / 2) if rng.random() < 0.6 else 0.5
        slant = rng.uniform(-0.08, 0.08) if rng.random() < 0.4 else 0
        first, second = (0.5 - near, across), (0.5 + near, min(max(across + slant, side / 2), 1 - side / 2))
        if s["relation"] == "above": first, second = first[::-1], second[::-1]
        s["objects"] = [(a, *first, side), (b, *second, side)]
    elif kind == "count":
        n = rng.choice([2, 2, 3, 3, 4, 4])
        side = 0.5 if rng.random() < 0.6 else rng.uniform(0.3, 0.5)
        layout = rng.choice(C.LAYOUTS[n])
        if n == 2 and rng.random() < 0.3: layout = [(64, 0), (64, 128)]
        if n == 3 and rng.random() < 0.15: layout = [(0, 0), (0, 128), (128, 64)]
        slack = (0.5 - side) / 2
        s["objects"] = [(a, x / 256 + 0.25 + rng.uniform(-slack, slack), y / 256 + 0.25 + rng.uniform(-slack, slack), side) for x, y in layout]
        same = flip(a)
    s["flips"] = [same if kind == "count" else flip(o[0]) for o in s["objects"]]
    return s


def painter_scene(concepts, rng):
    """A scene as the painter was trained on, and a prompt for it."""
    spec = C.make_spec(concepts, rng)
    while spec.get("strange"): spec = C.make_spec(concepts, rng)
    half = spec["size"] / 512
    s = dict(kind=spec["kind"], style=spec["style"], bg=0 if spec["bg"] == C.TRANSPARENT else spec["bg"], relation=spec.get("relation"),
             objects=[(c, x / 256 + half, y / 256 + half, 2 * half) for c, x, y, _ in spec["sprites"]], flips=[f for *_, f in spec["sprites"]])
    return s, (clear_prompt(spec, concepts, rng) if rng.random() < 0.7 else C.caption(spec, concepts, rng))


def clear_prompt(spec, concepts, rng):
    """Says everything in the plainest words, so that the painter has least to guess."""
    ids = [o[0] for o in spec["sprites"]]
    name = lambda i: C.article(concepts.rows[i]["en"])
    if spec["kind"] == "one": text = name(ids[0])
    elif spec["kind"] == "count": text = f"{C.NUMBER_EN[len(ids)][0]} {C.plural(concepts.rows[ids[0]]['en'])}"
    else: text = f"{name(ids[0])} {'to the left of' if spec['relation'] == 'beside' else 'above'} {name(ids[1])}"
    if spec["bg"]: text += f" on {C.article(C.BACKGROUNDS[spec['bg']][0][0])} background"
    return text + (", flat style" if spec["style"] else "")


def facts(s):
    """Numbers for the device: kind, style, background, count, then 4 x (concept, x, y, side, flip)."""
    row = [KINDS.index(s["kind"]), s["style"], s["bg"], len(s["objects"])]
    for o, f in zip(s["objects"], s["flips"]): row += [*o, f]
    return row + [0] * (24 - len(row))


class Writer:
    """Conversations to tokens."""
    def __init__(self, tok):
        self.tok, self.cache = tok, {}
        one = lambda t: self.plain(t)
        self.start, self.end = tok.token_to_id("<|im_start|>"), tok.token_to_id("<|im_end|>")
        self.line, self.user, self.assistant = one("\n"), one("user\n"), one("assistant\n")
        image = [tok.token_to_id(t) for t in ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")]
        self.before, self.image, self.after = [self.start, *self.user, image[0]], image[1], [image[2]]

    def plain(self, text):
        ids = self.cache.get(text)
        if ids is None:
            ids = self.tok.encode(text, add_special_tokens=False).ids
            if len(self.cache) < 200000: self.cache[text] = ids
        return ids

    def turns(self, turns, opened=True):
        """Tokens and which of them are learnt. `opened`: the user's turn has begun (a picture stands in it)."""
        ids, learnt = [], []
        for question, answer in turns:
            head = ([] if opened else [self.start, *self.user]) + [*self.plain(question), self.end, *self.line, self.start, *self.assistant]
            body = [*self.plain(answer), self.end]
            ids += head + body + self.line
            learnt += [0] * len(head) + [1] * len(body) + [0] * len(self.line)
            opened = False
        return ids, learnt

    def fill(self, scene, talk, rng, ids, segment, place, learnt):
        """Conversations about one picture into rows of WIDTH, until nothing more fits. Places count from the end of the picture."""
        at, number = 0, 1
        while number <= BRANCHES:
            blind = rng.random() < 0.012
            t, l = self.turns(talk.blind(rng) if blind else talk.branch(scene, rng), opened=not blind)
            t, l = t[:-len(self.line)], l[:-len(self.line)]
            if at + len(t) > WIDTH:
                if number > 1: break
                continue
            where = slice(at, at + len(t))
            ids[where], segment[where], place[where], learnt[where] = t, number + (BLIND if blind else 0), np.arange(len(t)), l
            at += len(t); number += 1


def batch(args):
    """Worker: `n` scenes with their conversations; for the painter also prompts."""
    names_file, tokenizer_file, n, seed, painter, limit = args
    from tokenizers import Tokenizer
    global _kept
    try: concepts, talk, writer = _kept
    except NameError:
        concepts = C.Concepts(json.load(open(names_file))[:limit])
        _kept = concepts, talk, writer = concepts, Talk(concepts), Writer(Tokenizer.from_file(tokenizer_file))
    rng = random.Random(seed)
    rows, prompts = np.zeros((n, 24), np.float32), []
    ids, segment, place, learnt = (np.zeros((n, WIDTH), t) for t in (np.int16, np.int16, np.int16, np.int8))
    segment[:] = -1
    for k in range(n):
        if painter: s, prompt = painter_scene(concepts, rng); prompts.append(prompt)
        else: s = draw_scene(concepts, rng)
        rows[k] = facts(s)
        writer.fill(s, talk, rng, ids[k], segment[k], place[k], learnt[k])
    return rows, ids, segment, place, learnt, prompts
