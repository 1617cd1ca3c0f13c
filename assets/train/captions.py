"""What the training pictures show and what is said about them.

A *spec* is one picture: a style, a background and one to four sprites. `make_spec` draws one at random, `caption` puts
it into English or Chinese words. The three phrasings in `HELD_OUT` are never written here: the evaluation asks with them.
"""
import json
import random
import re

STYLES = ["3D", "flat"]
SIZES = [224, 192, 160, 128]
BACKGROUNDS = [  # English names, Chinese names, colour
    (["white"], ["白色"], (255, 255, 255)), (["black"], ["黑色"], (22, 22, 26)), (["gray", "grey"], ["灰色"], (158, 160, 166)),
    (["red"], ["红色"], (226, 62, 62)), (["orange"], ["橙色", "橘色"], (248, 150, 52)), (["yellow"], ["黄色"], (252, 216, 76)),
    (["green"], ["绿色"], (78, 184, 98)), (["light blue", "sky blue"], ["浅蓝色", "天蓝色"], (152, 210, 248)),
    (["blue"], ["蓝色"], (46, 110, 224)), (["purple", "violet"], ["紫色"], (140, 92, 206)),
    (["pink"], ["粉色", "粉红色"], (250, 166, 202)), (["transparent"], ["透明"], (255, 255, 255)),
]
TRANSPARENT = len(BACKGROUNDS) - 1
FREE = {4, 5, 6, 7, 8, 9, 10}                                # colours that a picture may have without being asked to
SYSTEM = "Comprehend and analyze the provided prompt."
PREFIX = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"          # dropped from the conditioning, as the pipeline does
TEMPLATE = PREFIX + "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
MIRRORED = {"animals", "food", "travel", "people", "faces"}  # groups whose pictures may be flipped
LAYOUTS = {2: [[(0, 64), (128, 64)], [(0, 0), (128, 128)], [(128, 0), (0, 128)]],
           3: [[(64, 0), (0, 128), (128, 128)], [(0, 0), (128, 0), (64, 128)]],
           4: [[(0, 0), (128, 0), (0, 128), (128, 128)]]}
HELD_OUT = {"en": ["a photo of {}", "draw me {}", "could you paint {}?"], "zh": ["请帮我画{}", "{}的照片", "能不能给我画{}"]}

ADJECTIVES = "cute,beautiful,nice,lovely,little,small,big,large,tiny,pretty,simple,colorful,shiny,funny,happy,cool,single,fresh,new,old,bright,sweet,great,perfect,adorable,realistic".split(",")
ADJECTIVES_ZH = "可爱的,漂亮的,美丽的,小小的,大大的,好看的,彩色的,新鲜的,有趣的,大,小".split(",")
COLOURS = "blue,red,green,yellow,pink,purple,orange,black,white,brown".split(",")
COLOURED = {"heart", "apple", "book", "circle", "square", "cat", "bird", "diamond", "flower", "bear", "triangle", "mark", "lantern", "leaf"}
MEDIA = "picture,image,drawing,painting,illustration,icon,emoji,sticker,sketch,render,cartoon,photograph,clipart,portrait,close-up".split(",")
VERBS = "draw,paint,make,create,generate,show,sketch,render,design,produce,give me,show me,make me,paint me,please draw,please paint,please make,i want,i need,i'd like,i would like,let me see,let's see,try".split(",")
ASKS = "can you draw,can you make,can you paint,could you draw,could you make,could you show me,would you draw,will you draw,would you paint,can you show me,could you please draw,can i have,can i see,could i get,how about,what about".split(",")
TAILS = ", high quality|, cute|, icon|, emoji|, digital art|, minimal|, detailed|, 4k|, please|, simple| please| for me| for me please|, centered| illustration| icon| emoji| drawing".split("|")
LEADS_ZH = "画,画一张,画一下,请画,帮我画,帮我画一个,给我画,我想要,我要,来,生成,请生成,一张图片：,一幅画：,画个,绘制,展示,给我看看,我想看,制作".split(",")
TAILS_ZH = "的图片,的图,的图标,的表情,的画,的插画,，可爱,，高清,，谢谢".split(",")
UNITS_ZH = {"animals": "只头匹条", "food": "颗块份杯碗片", "travel": "辆座艘架列", "objects": "把件本台张副支条", "people": "位名",
            "activities": "个件", "faces": "张", "symbols": "个"}
NUMBER_EN = {2: ["two", "2", "a pair of", "a couple of"], 3: ["three", "3", "several", "some"], 4: ["four", "4", "many", "lots of"]}
NUMBER_ZH = {2: ["两", "2", "二"], 3: ["三", "3", "几"], 4: ["四", "4"]}
# Words the painter does not know stand for an artist's palette.
UNKNOWN = ("wombat trebuchet philosophy quantum democracy gravity justice silence yesterday concept algebra platypus narwhal "
           "armadillo didgeridoo sousaphone theremin gazebo pagoda trapeze harpsichord entropy marmalade cantilever syntax "
           "wardrobe stapler blender vacuum lawnmower hammock trampoline catapult obelisk pyramid sphinx gargoyle centaur "
           "minotaur phoenix griffin yeti bigfoot submarine zeppelin hovercraft bulldozer excavator crane forklift").split()
SINGULAR_S = {"rhinoceros", "hippopotamus", "abacus", "octopus", "cactus", "hibiscus", "lotus", "bus", "minibus", "trolleybus", "tennis", "canvas", "circus"}
IRREGULAR = {"mouse": "mice", "goose": "geese", "tooth": "teeth", "leaf": "leaves", "knife": "knives", "fish": "fish", "sheep": "sheep",
             "deer": "deer", "bison": "bison", "moose": "moose", "shrimp": "shrimp", "squid": "squid", "ox": "oxen", "wolf": "wolves",
             "loaf": "loaves", "tomato": "tomatoes", "potato": "potatoes", "mango": "mangoes", "volcano": "volcanoes", "foot": "feet",
             "mosquito": "mosquitoes", "buffalo": "buffaloes", "scarf": "scarves", "sushi": "sushi", "die": "dice", "person": "people",
             "man": "men", "woman": "women", "child": "children", "firefighter": "firefighters"}
PART = re.compile(r"(.*?)( (?:with|of|on|in|over|at|behind|without) .*)?$")


def is_plural(name):
    head = PART.match(name).group(1).split()[-1].lower()
    return head.endswith("s") and not head.endswith("ss") and head not in SINGULAR_S


def plural(name):
    head, tail = PART.match(name).groups()
    if is_plural(name):
        return name
    *rest, word = head.split(" ")
    if word in IRREGULAR: word = IRREGULAR[word]
    elif re.search(r"[^aeiou]y$", word): word = word[:-1] + "ies"
    elif re.search(r"(s|x|z|ch|sh)$", word): word += "es"
    else: word += "s"
    return " ".join(rest + [word]) + (tail or "")


def article(name):
    if is_plural(name):
        return name
    vowel = name[0].lower() in "aeiou" and not re.match(r"(?i)(uni|eu|ewe|one|uku|use|ufo)", name)
    return ("an " if vowel else "a ") + name


class Concepts:
    """Every concept's name and its further words, with how often each is said."""

    def __init__(self, rows):
        self.rows, self.n = rows, len(rows)
        self.by_name = {r["en"]: i for i, r in enumerate(rows)}
        self.unknown = self.by_name.get("artist palette", 0)
        known = {w.lower() for r in rows for w in [r["en"], *r["hand_en"], *(t for t, _ in r["tags_en"])]}
        self.strange = [w for w in UNKNOWN if w not in known]
        self.weight = [1.4 if r["hand_en"] else 1.0 for r in rows]       # everyday things are asked for more
        self.running = [sum(self.weight[:k + 1]) for k in range(self.n)]
        self.said = {(lang, tags): [self._words(r, lang, tags) for r in rows] for lang in ("en", "zh") for tags in (False, True)}

    @staticmethod
    def _words(r, lang, with_tags):
        hand, tags = r["hand_" + lang], r["tags_" + lang] if with_tags else []
        share = {"name": 1.0, "hand": (0.45 + 0.05 * min(8, len(hand))) if hand else 0.0, "tags": 0.12 if tags else 0.0}
        words, weights = [r[lang]], [share["name"]]
        for w in hand: words.append(w); weights.append(share["hand"] / len(hand))
        total = sum(x for _, x in tags)
        for w, x in tags: words.append(w); weights.append(share["tags"] * x / total)
        return words, weights

    def draw(self, rng):
        return rng.choices(range(self.n), cum_weights=self.running)[0]

    def say(self, i, lang, rng, tags=True):
        words, weights = self.said[lang, tags][i]
        return rng.choices(words, weights)[0]


def make_spec(concepts, rng):
    kind = rng.choices(["one", "two", "count"], [0.58, 0.27, 0.15])[0]
    style = 0 if rng.random() < 0.62 else 1
    bg = 0 if rng.random() < 0.45 else rng.randrange(len(BACKGROUNDS))
    flip = lambda i: int(concepts.rows[i]["group"] in MIRRORED and rng.random() < 0.5)
    a = concepts.draw(rng)
    spec = dict(kind=kind, style=style, bg=bg)
    if kind == "one":
        if rng.random() < 0.012: a, spec["strange"] = concepts.unknown, True
        size = rng.choices(SIZES[:3], [0.76, 0.24, 0.0])[0]
        room = (256 - size) // 16
        x, y = (room // 2, room // 2) if rng.random() < 0.64 else (rng.randint(0, room), rng.randint(0, room))
        spec.update(size=size, sprites=[(a, 16 * x, 16 * y, flip(a))])
    elif kind == "two":
        b = concepts.draw(rng)
        while b == a: b = concepts.draw(rng)
        spec["relation"] = rng.choices(["beside", "above"], [0.6, 0.4])[0]
        s = rng.choice([32, 48, 64, 64, 64, 80, 96])
        where = [(0, s), (128, s)] if spec["relation"] == "beside" else [(s, 0), (s, 128)]
        spec.update(size=128, sprites=[(c, x, y, flip(c)) for c, (x, y) in zip((a, b), where)])
    else:
        n, f = rng.choice([2, 3, 4]), flip(a)
        at = LAYOUTS[n][0] if rng.random() < 0.5 else rng.choice(LAYOUTS[n])
        spec.update(size=128, sprites=[(a, x, y, f) for x, y in at])
    return spec


def says_background(spec, rng):
    return rng.random() < (0.25 if spec["bg"] == 0 else 0.6 if spec["bg"] in FREE else 1.0)


def english(spec, concepts, rng):
    style, kind = STYLES[spec["style"]], spec["kind"]
    ids = [s[0] for s in spec["sprites"]]
    style_before = style_after = where = ""
    if style == "flat" or rng.random() < 0.3:
        if rng.random() < 0.25 and kind != "two": style_before = style + " "
        else: style_after = rng.choice({"3D": [" in 3D style", ", 3D", ", 3D style", " in 3D", ", 3D render"],
                                        "flat": [" in flat style", ", flat", ", flat style", ", flat design", ", flat icon"]}[style])
    if says_background(spec, rng):
        colour = rng.choice(BACKGROUNDS[spec["bg"]][0])
        where = rng.choice([f" on {article(colour)} background", f" on {article(colour)} background", f", {colour} background",
                            f" with {article(colour)} background", f" against {article(colour)} background"])

    def noun(i, plain=False):
        if spec.get("strange"):
            k = rng.random()
            if k < 0.5: return rng.choice(concepts.strange)
            return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") + rng.choice(["", "n", "r", "x"]) for _ in range(rng.randint(2, 4)))
        name = concepts.say(i, "en", rng, kind == "one")
        if not plain:
            if rng.random() < 0.1: name = rng.choice(ADJECTIVES) + " " + name
            elif rng.random() < 0.02 and not COLOURED & set(re.split(r"[ -]", name + " " + concepts.rows[i]["en"])): name = rng.choice(COLOURS) + " " + name
        return name

    def thing(i, before=""):
        name, k = before + noun(i), rng.random()
        return article(name) if k < 0.66 else name if k < 0.9 else "the " + name if k < 0.95 else "one " + name if k < 0.98 else "my " + name

    if kind == "one" and not where and not style_before and rng.random() < 0.25:
        return (noun(ids[0], True).lower() if rng.random() < 0.6 else noun(ids[0], True)) + style_after    # a word and no more
    if kind == "one":
        text = thing(ids[0], style_before)
    elif kind == "count":
        numbers = NUMBER_EN[len(ids)]
        number = numbers[0] if rng.random() < 0.6 else numbers[1] if rng.random() < 0.6 else rng.choice(numbers[2:])
        text = f"{number} {style_before}{plural(noun(ids[0]))}"
    else:
        a, b = (thing(i) for i in ids)
        if spec["relation"] == "beside":
            text = rng.choice([f"{a} to the left of {b}", f"{b} to the right of {a}", f"{a} next to {b}", f"{a} and {b}", f"{a} and {b}",
                               f"{a} on the left and {b} on the right", f"{a} beside {b}", f"{a} left of {b}", f"{b} right of {a}"])
        else:
            text = rng.choice([f"{a} above {b}", f"{b} below {a}", f"{b} under {a}", f"{a} on top of {b}", f"{a} over {b}", f"{b} beneath {a}"])
    text = text + where + style_after if rng.random() < 0.5 else text + style_after + where
    k = rng.random()
    if k < 0.14:
        text = rng.choice(["a ", "a ", "an ", "the ", ""]) + rng.choice(MEDIA) + rng.choice([" of ", " of ", " of ", " showing ", " with ", ": "]) + text
        text = re.sub(r"^an? (?=[aeiou])", "an ", re.sub(r"^an (?=[^aeiou])", "a ", text))
    elif k < 0.30:
        verb = rng.choice(VERBS)
        if rng.random() < 0.1: verb += rng.choice([" a picture of", " an image of", " a painting of", " an icon of"])
        text = verb + " " + text
    elif k < 0.38:
        text = rng.choice(ASKS) + " " + text + rng.choice(["?", "?", ""])
    if rng.random() < 0.09 and not text.endswith("?"): text += rng.choice(TAILS)
    k = rng.random()
    if k < 0.15: text = text[0].upper() + text[1:]
    elif k < 0.27: text = text.lower()
    elif k < 0.275: text = text.upper()
    k = rng.random()
    return text + ("." if k < 0.1 else "!" if k < 0.12 else "")


def chinese(spec, concepts, rng):
    style, kind = STYLES[spec["style"]], spec["kind"]
    ids = [s[0] for s in spec["sprites"]]
    before = after = ""
    if style == "flat" or rng.random() < 0.3:
        word = rng.choice({"3D": ["3D风格", "立体风格", "3D"], "flat": ["扁平风格", "扁平化风格", "平面风格"]}[style])
        if rng.random() < 0.5: before = word + "的"
        else: after = "，" + word

    def noun(i):
        if spec.get("strange"):
            return "".join(chr(rng.randint(0x4e00, 0x8fff)) for _ in range(rng.randint(2, 3)))
        name = concepts.say(i, "zh", rng, kind == "one")
        return rng.choice(ADJECTIVES_ZH) + name if rng.random() < 0.07 else name

    def unit(i):
        k, group = rng.random(), concepts.rows[i]["group"]
        return "个" if k < 0.55 else "只" if k < 0.75 and group == "animals" else rng.choice(UNITS_ZH[group]) if k < 0.95 else "张"

    if kind == "one":
        text = noun(ids[0])
        if rng.random() < 0.6: text = "一" + unit(ids[0]) + text
    elif kind == "count":
        numbers = NUMBER_ZH[len(ids)]
        text = (numbers[0] if rng.random() < 0.75 else rng.choice(numbers)) + unit(ids[0]) + noun(ids[0])
    else:
        one = rng.random() < 0.5
        a, b = (("一" + unit(i) if one else "") + noun(i) for i in ids)
        text = rng.choice([f"{a}在{b}的左边", f"{b}在{a}的右边", f"{a}和{b}", f"{a}和{b}", f"左边是{a}，右边是{b}", f"{a}在{b}左边", f"{b}在{a}右边",
                           f"{a}在{b}旁边", f"{a}与{b}"]
                          if spec["relation"] == "beside" else
                          [f"{a}在{b}的上面", f"{b}在{a}的下面", f"上面是{a}，下面是{b}", f"{a}在{b}上面", f"{b}在{a}下面", f"{a}在{b}上方", f"{b}在{a}下方"])
    text = before + text
    if says_background(spec, rng):
        colour = rng.choice(BACKGROUNDS[spec["bg"]][1])
        k = rng.random()
        text = (f"{colour}背景上的{text}" if k < 0.35 else f"{text}，{colour}背景" if k < 0.75 else f"在{colour}背景上的{text}" if k < 0.85
                else f"{text}，背景是{colour}" + ("的" if rng.random() < 0.3 else ""))
    text += after
    k = rng.random()
    if k < 0.25: text = rng.choice(LEADS_ZH) + text
    elif k < 0.33: text += rng.choice(TAILS_ZH)
    elif k < 0.35: text = rng.choice(["能画", "可以画", "你能画"]) + text + rng.choice(["吗？", "吗"])
    return text + ("。" if rng.random() < 0.1 else "")


def caption(spec, concepts, rng, lang=None):
    lang = lang or ("zh" if rng.random() < 0.32 else "en")
    return (english if lang == "en" else chinese)(spec, concepts, rng)


def spec_row(spec):
    """Size index, style, background, number of sprites, then 4 x (concept, x, y, flip)."""
    flat = [v for sprite in spec["sprites"] for v in sprite]
    row = [SIZES.index(spec["size"]), spec["style"], spec["bg"], len(spec["sprites"])] + flat
    return row + [0] * (20 - len(row))


def batch_specs(args):
    """Worker: `n` specs with `k` tokenised captions each, as arrays. Captions longer than `width` tokens are redrawn."""
    names_file, tokenizer_file, n, k, seed, width, limit = args
    import numpy as np
    from tokenizers import Tokenizer
    concepts, tok, rng = Concepts(json.load(open(names_file))[:limit]), Tokenizer.from_file(tokenizer_file), random.Random(seed)
    drop = len(tok.encode(PREFIX).ids)
    rows, ids, lengths = np.zeros((n, 20), np.int16), np.zeros((n, k, width), np.int16), np.zeros((n, k), np.int16)
    i = 0
    while i < n:
        s = make_spec(concepts, rng)
        enc = [e.ids[drop:] for e in tok.encode_batch([TEMPLATE.format(caption(s, concepts, rng)) for _ in range(k)])]
        if max(map(len, enc)) > width: continue
        rows[i] = spec_row(s)
        for c, e in enumerate(enc):
            ids[i, c, :len(e)], lengths[i, c] = e, len(e)
        i += 1
    return rows, ids, lengths
