"""What is asked about a picture and what is answered, in English and Chinese.

A *scene* is one picture: `kind` (one, two, count, empty, strange), `style` (0: 3D, 1: flat), `bg` (index into `COLOURS`),
`relation` for two objects, and `objects`: concept and place (centre and side as shares of the picture) of each sprite.
`Talk.branch` writes a conversation of one or more turns about it. Answers always use a concept's own name; questions
also its everyday words.
"""
import re

from captions import BACKGROUNDS, IRREGULAR, NUMBER_EN, TRANSPARENT, article, is_plural, plural

COLOURS = [b for k, b in enumerate(BACKGROUNDS) if k != TRANSPARENT]      # a transparent background is seen as white
DEFAULT = "Describe this picture."
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
NUMBERS_ZH = {1: "一", 2: "两", 3: "三", 4: "四"}
STYLES = {"en": ["3D", "flat"], "zh": ["3D", "扁平"]}
SAME = {"grinning cat": "cat face"}                                       # one and the same drawing under two names
PLACES = {(0, 0): ("at the top left", "左上角"), (1, 0): ("at the top", "上方"), (2, 0): ("at the top right", "右上角"),
          (0, 1): ("on the left", "左边"), (1, 1): ("in the middle", "中间"), (2, 1): ("on the right", "右边"),
          (0, 2): ("at the bottom left", "左下角"), (1, 2): ("at the bottom", "下方"), (2, 2): ("at the bottom right", "右下角")}
SIDES = {"left": ("beside", 0), "right": ("beside", 1), "above": ("above", 0), "below": ("above", 1)}
SIDES_EN = {"left": ["to the left of", "left of", "on the left of"], "right": ["to the right of", "right of", "on the right of"],
            "above": ["above", "over", "on top of"], "below": ["below", "under", "beneath"]}
SIDES_ZH = {"left": ["左边", "左侧"], "right": ["右边", "右侧"], "above": ["上面", "上方"], "below": ["下面", "下方"]}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
HALVES = {"left": (["on the left", "on the left side", "at the left"], ["左边"]), "right": (["on the right", "on the right side", "at the right"], ["右边"]),
          "above": (["at the top", "on top", "in the upper half"], ["上面", "上方"]), "below": (["at the bottom", "below", "in the lower half"], ["下面", "下方"])}

DESCRIBE = [DEFAULT, "Describe the picture.", "Describe the image.", "Describe this image.", "What do you see?", "What can you see in this picture?",
            "What does the picture show?", "What is shown here?", "Tell me about this picture.", "Please describe the picture.",
            "Can you describe this image?", "What's in the picture? Describe it.", "describe", "Describe it.", "Describe what you see.", "Describe this picture in detail."]
DESCRIBE_ZH = ["描述这张图片。", "描述一下这张图片。", "请描述这张图。", "图片里有什么？请描述。", "你看到了什么？", "这张图片显示了什么？", "描述图片", "请描述一下图片。", "说说这张图。",
               "描述这幅图。", "请详细描述这张图片。"]
WHAT = ["What is this?", "What's this?", "What is it?", "What is in the picture?", "What is in this image?", "What's in the picture?", "What object is this?",
        "What objects are in the picture?", "What are these?", "Name the object.", "What things do you see?", "Name what you see.", "What is that?", "What objects do you see?"]
WHAT_ZH = ["这是什么？", "这是什么东西？", "图里有什么？", "图片里有什么？", "这张图里是什么？", "图中有哪些东西？", "这些是什么？", "图上是什么？", "画的是什么？", "图片里有哪些物体？"]
SURE = {"en": "I am not sure what this is.", "zh": "我不确定这是什么。"}
WHO = {"en": (["Who are you?", "What are you?", "What can you do?", "Hello!", "Hi", "Hello, how are you?", "What is your name?", "Help"],
              "I look at pictures and say what is in them."),
       "zh": (["你是谁？", "你会做什么？", "你好", "你好！", "你叫什么名字？", "你能做什么？"], "我看图片，告诉你里面有什么。")}
BLIND = {"en": "Please show me a picture.", "zh": "请给我看一张图片。"}
THANKS = {"en": (["Thank you!", "Thanks.", "Thanks!", "Great, thank you."], "You are welcome."), "zh": (["谢谢！", "谢谢", "好的，谢谢。"], "不客气。")}


def key(text):
    """For comparing words: small letters, singular-ish."""
    back = {v: k for k, v in IRREGULAR.items()}
    words = re.findall(r"[a-z0-9]+|[一-鿿]", text.lower())
    return {back.get(w, w[:-1] if w.endswith("s") and not w.endswith("ss") else w) for w in words}


class Talk:
    def __init__(self, concepts):
        self.rows = concepts.rows
        by_name = concepts.by_name
        self.same = {by_name[a]: by_name[b] for a, b in SAME.items() if a in by_name and b in by_name}
        self.words = {lang: [[r[lang], *r["hand_" + lang]] for r in self.rows] for lang in ("en", "zh")}
        self.keys = {lang: [set().union(*(key(w) for w in [*words, *(t for t, _ in r["tags_" + lang])])) for words, r in zip(self.words[lang], self.rows)]
                     for lang in ("en", "zh")}
        self.group = {}
        for i, r in enumerate(self.rows): self.group.setdefault(r["group"], []).append(i)

    # ---- phrases ------------------------------------------------------------------------------------------------
    def en(self, i, n=1):
        name = self.rows[self.same.get(i, i)]["en"]
        return article(name) if n == 1 else f"{NUMBERS[n]} {plural(name)}"

    def zh(self, i, n=1, counted=True):
        r = self.rows[self.same.get(i, i)]
        unit = "只" if r["group"] == "animals" else "个"
        return (NUMBERS_ZH[n] + unit if counted else "") + r["zh"]

    def asked(self, i, lang, rng):
        return rng.choice(self.words[lang][i]) if rng.random() < 0.6 else self.words[lang][i][0]

    def seen(self, s, lang):
        """All that is in the picture, as one phrase."""
        ids = [o[0] for o in s["objects"]]
        if s["kind"] == "two":
            a, b = ids
            return f"{self.en(a)} and {self.en(b)}" if lang == "en" else f"{self.zh(a)}和{self.zh(b)}"
        return (self.en if lang == "en" else self.zh)(ids[0], len(ids))

    def i_see(self, s, lang):
        return f"I see {self.seen(s, lang)}." if lang == "en" else f"我看到{self.seen(s, lang)}。"

    def absent(self, s, lang, rng):
        """A word for something that is not in the picture, often of the same group."""
        here = set().union(*(self.keys[lang][o[0]] for o in s["objects"]))
        for tried in range(200):
            i = rng.choice(self.group[self.rows[s["objects"][0][0]]["group"]]) if rng.random() < 0.5 else rng.randrange(len(self.rows))
            word = self.asked(i, lang, rng)
            if not key(word) & here: break
        return i, word

    def colour(self, s, lang, rng=None):
        names = COLOURS[s["bg"]][0 if lang == "en" else 1]
        return rng.choice(names) if rng else names[0]

    # ---- questions: (question, answer) -------------------------------------------------------------------------
    def describe(self, s, lang, rng):
        ids, style, colour = [o[0] for o in s["objects"]], STYLES[lang][s["style"]], self.colour(s, lang)
        if lang == "en":
            if s["kind"] == "two":
                what = f"{self.en(ids[0])} {'to the left of' if s['relation'] == 'beside' else 'above'} {self.en(ids[1])}"
            else: what = self.en(ids[0], len(ids))
            what = what[0].upper() + what[1:]
            return rng.choice(DESCRIBE) if rng.random() < 0.75 else DEFAULT, f"{what} on {article(colour)} background, in {style} style."
        what = (f"{self.zh(ids[0])}在{self.zh(ids[1])}的{'左边' if s['relation'] == 'beside' else '上面'}" if s["kind"] == "two" else self.zh(ids[0], len(ids)))
        return rng.choice(DESCRIBE_ZH), f"{colour}背景上，{what}，{style}风格。"

    def what(self, s, lang, rng):
        question = rng.choice(WHAT if lang == "en" else WHAT_ZH)
        if s["kind"] == "one":
            i = s["objects"][0][0]
            if lang == "zh": return question, f"这是{self.zh(i)}。"
            return question, f"{'These are' if is_plural(self.rows[i]['en']) else 'This is'} {self.en(i)}."
        return question, self.i_see(s, lang)

    def count(self, s, lang, rng):
        ids = [o[0] for o in s["objects"]]
        n = len(ids)
        if rng.random() < 0.3 or (lang == "en" and s["kind"] == "one" and is_plural(self.rows[ids[0]]["en"])):
            if lang == "en":
                question = rng.choice(["How many objects are there?", "How many things are in the picture?", "How many objects do you see?", "How many are there?"])
                return question, f"There {'is one object' if n == 1 else f'are {NUMBERS[n]} objects'}."
            return rng.choice(["有几个物体？", "图里有几个东西？", "一共有几个？", "图片里有多少个物体？"]), f"有{NUMBERS_ZH[n]}个物体。"
        if rng.random() < 0.2:
            _, word = self.absent(s, lang, rng)
            answer = ("There are none. " if lang == "en" else "没有。") + self.i_see(s, lang)
        else:
            i = rng.choice(ids)
            word, n = self.asked(i, lang, rng), 1 if s["kind"] == "two" else n
            if lang == "en": answer = f"There {'are' if n > 1 or is_plural(self.rows[i]['en']) else 'is'} {self.en(i, n) if n > 1 else 'one ' + self.rows[self.same.get(i, i)]['en']}."
            else: answer = f"有{self.zh(i, n)}。"
        if lang == "en":
            w = plural(word)
            return rng.choice([f"How many {w} are there?", f"How many {w} are in the picture?", f"How many {w} do you see?", f"How many {w}?", f"Count the {w}."]), answer
        return rng.choice([f"有几个{word}？", f"图里有几个{word}？", f"图片里有多少个{word}？", f"一共有几个{word}？", f"有几只{word}？"]), answer

    def background(self, s, lang, rng):
        colour = self.colour(s, lang)
        if rng.random() < 0.45:
            k = s["bg"] if rng.random() < 0.5 else rng.choice([c for c in range(len(COLOURS)) if c != s["bg"]])
            asked = rng.choice(COLOURS[k][0 if lang == "en" else 1])
            yes = k == s["bg"]
            if lang == "en":
                return rng.choice([f"Is the background {asked}?", f"Is it on {article(asked)} background?", f"Does the picture have {article(asked)} background?"]), \
                    ("Yes, " if yes else "No, ") + f"the background is {colour}."
            return rng.choice([f"背景是{asked}吗？", f"背景是不是{asked}？", f"背景是{asked}的吗？"]), ("是的，" if yes else "不是，") + f"背景是{colour}。"
        if lang == "en":
            return rng.choice(["What colour is the background?", "What color is the background?", "Which colour is the background?", "What is the background colour?",
                               "What's the color of the background?", "background colour?", "What is behind it?"]), f"The background is {colour}."
        return rng.choice(["背景是什么颜色？", "背景是什么颜色的？", "背景颜色是什么？", "背景是哪种颜色？"]), f"背景是{colour}。"

    def style(self, s, lang, rng):
        style, other = STYLES[lang][s["style"]], STYLES[lang][1 - s["style"]]
        k = rng.random()
        if k < 0.4:
            asked = rng.choice([style, other])
            if lang == "en":
                return rng.choice([f"Is it in {asked} style?", f"Is this {asked}?", f"Is the picture {asked}?"]), ("Yes, " if asked == style else "No, ") + f"it is in {style} style."
            return rng.choice([f"这是{asked}风格吗？", f"图片是{asked}风格吗？"]), ("是的，" if asked == style else "不是，") + f"这是{style}风格。"
        if lang == "en":
            return rng.choice(["Which style?", "What style is this?", "In which style is it drawn?", "What is the style of the picture?", "Is it 3D or flat?", "Is this flat or 3D?",
                               "Which style is the picture in?"]), f"It is in {style} style."
        return rng.choice(["这是什么风格？", "图片是什么风格？", "是3D还是扁平风格？", "什么风格？", "这张图是哪种风格的？"]), f"这是{style}风格。"

    def yes_no(self, s, lang, rng):
        there = rng.random() < 0.5
        if there: i = rng.choice(s["objects"])[0]; word = self.asked(i, lang, rng)
        else: i, word = self.absent(s, lang, rng)
        see = self.i_see(s, lang)
        if lang == "en":
            a = "any " + plural(word) if rng.random() < 0.1 else article(word)
            be = "Are there" if a.startswith("any") or is_plural(word) else "Is there"
            question = rng.choice([f"{be} {a} in the picture?", f"{be} {a} in the picture?", f"{be} {a}?", f"{be} {a} in this image?", f"Do you see {a}?", f"Can you see {a}?",
                                   f"Does the picture show {a}?", f"Does this picture contain {a}?"] + ([f"Is this {a}?", f"Is it {a}?"] if s["kind"] == "one" else []))
            return question, ("Yes, " if there else "No, ") + see
        question = rng.choice([f"图里有{word}吗？", f"有{word}吗？", f"图片里有{word}吗？", f"有没有{word}？", f"你看到{word}了吗？", f"图中有没有{word}？"]
                              + ([f"这是{word}吗？", f"这是不是{word}？"] if s["kind"] == "one" else []))
        return question, ("有，" if there else "没有，") + see if "是" not in question else ("是的，" if there else "不是，") + see

    def kind(self, s, lang, rng):
        groups = {self.rows[o[0]]["group"] for o in s["objects"]}
        wanted = rng.choice(["animals", "food"])
        if lang == "en":
            question = rng.choice({"animals": ["Is this an animal?", "Is there an animal in the picture?", "Do you see an animal?"],
                                   "food": ["Is this food?", "Is there food in the picture?", "Can you eat this?", "Do you see food?"]}[wanted])
            return question, ("Yes, " if wanted in groups else "No, ") + self.i_see(s, lang)
        question = rng.choice({"animals": ["图里有动物吗？", "有动物吗？"], "food": ["图里有食物吗？", "有吃的吗？"]}[wanted])
        return question, ("有，" if wanted in groups else "没有，") + self.i_see(s, lang)

    def choice(self, s, lang, rng):
        if s["kind"] != "one": return self.what(s, lang, rng)
        i = s["objects"][0][0]
        pair = [self.asked(i, lang, rng), self.absent(s, lang, rng)[1]]
        rng.shuffle(pair)
        a, b = pair
        question = rng.choice([f"Is this {article(a)} or {article(b)}?", f"Is it {article(a)} or {article(b)}?"]) if lang == "en" else f"这是{a}还是{b}？"
        return question, self.what(s, lang, rng)[1]

    def where(self, s, lang, rng):
        """Places: of one object in the picture, of two objects to each other."""
        if s["kind"] == "two": return self.relation(s, lang, rng)
        if s["kind"] != "one": return self.count(s, lang, rng)
        i, x, y, _ = s["objects"][0]
        if any(0.06 < abs(v - 0.5) < 0.12 for v in (x, y)): return self.what(s, lang, rng)        # neither here nor there
        place = PLACES[tuple(0 if v < 0.45 else 2 if v > 0.55 else 1 for v in (x, y))]
        word = self.asked(i, lang, rng)
        if lang == "en":
            return rng.choice([f"Where {'are' if is_plural(word) else 'is'} the {word}?", "Where is it?", "Where is the object?"]), f"It is {place[0]} of the picture." \
                if not is_plural(self.rows[i]["en"]) else f"They are {place[0]} of the picture."
        return rng.choice([f"{word}在哪里？", f"{word}在哪儿？", "它在哪里？", "物体在什么位置？"]), f"在图片的{place[1]}。"

    def relation(self, s, lang, rng):
        if s["kind"] != "two": return self.yes_no(s, lang, rng)
        ids = [o[0] for o in s["objects"]]
        side = rng.choice([k for k, v in SIDES.items() if v[0] == s["relation"]])
        at = SIDES[side][1]
        it, other = ids[at], ids[1 - at]                          # `it` stands on that side of `other`
        k = rng.random()
        say_en = lambda a, b, sd: f"{self.en(a)} is {'to the ' + sd + ' of' if sd in ('left', 'right') else sd} {self.en(b)}"
        say_zh = lambda a, b, sd: f"{self.zh(a)}在{self.zh(b)}的{SIDES_ZH[sd][0]}"
        if k < 0.25:                                              # what is on the left?
            if lang == "en":
                return f"What is {rng.choice(HALVES[side][0])}{rng.choice(['', '', ' of the picture'])}?", self.en(it)[0].upper() + self.en(it)[1:] + "."
            return f"{rng.choice(HALVES[side][1])}是什么？", self.zh(it) + "。"
        if k < 0.6:                                               # what is left of the pizza?
            word = self.asked(other, lang, rng)
            nothing = rng.random() < 0.2
            if nothing: word = self.asked(it, lang, rng)
            if lang == "en":
                answer = "Nothing." if nothing else self.en(it)[0].upper() + self.en(it)[1:] + "."
                return f"What is {rng.choice(SIDES_EN[side])} the {word}?", answer
            return rng.choice([f"{word}的{rng.choice(SIDES_ZH[side])}是什么？", f"{word}{rng.choice(SIDES_ZH[side])}有什么？"]), "没有东西。" if nothing else self.zh(it) + "。"
        if k < 0.75:                                              # what is next to the pizza?
            word = self.asked(other, lang, rng)
            if lang == "en": return rng.choice([f"What is next to the {word}?", f"What is beside the {word}?", f"What else is there besides the {word}?"]), self.en(it)[0].upper() + self.en(it)[1:] + "."
            return rng.choice([f"{word}旁边是什么？", f"除了{word}还有什么？"]), self.zh(it) + "。"
        truth = say_en(it, other, side) if lang == "en" else say_zh(it, other, side)
        a, b = self.asked(it, lang, rng), self.asked(other, lang, rng)
        if k < 0.88:                                              # is the apple left of the pizza?
            yes = rng.random() < 0.5
            asked = side if yes else OPPOSITE[side]
            if lang == "en": return f"{'Are' if is_plural(a) else 'Is'} the {a} {rng.choice(SIDES_EN[asked])} the {b}?", ("Yes, " if yes else "No, ") + truth + "."
            return f"{a}在{b}的{rng.choice(SIDES_ZH[asked])}吗？", ("是的，" if yes else "不是，") + truth + "。"
        if lang == "en": return f"Where {'are' if is_plural(a) else 'is'} the {a}?", truth[0].upper() + truth[1:] + "."
        return rng.choice([f"{a}在哪里？", f"{a}在哪儿？"]), truth + "。"

    # ---- conversations -----------------------------------------------------------------------------------------
    KINDS = ["describe", "what", "count", "background", "style", "yes_no", "kind", "choice", "where", "relation"]
    SHARES = {"one": [24, 24, 8, 12, 8, 14, 2, 3, 5, 0], "count": [26, 16, 26, 10, 7, 12, 2, 0, 0, 0], "two": [26, 12, 6, 8, 5, 12, 2, 0, 5, 24]}

    def ask(self, s, lang, rng):
        if s["kind"] in ("empty", "strange"):
            return self.odd(s, lang, rng)
        return getattr(self, rng.choices(self.KINDS, self.SHARES[s["kind"]])[0])(s, lang, rng)

    def odd(self, s, lang, rng):
        """Pictures without an object of this world."""
        if s["kind"] == "empty" and rng.random() < 0.4: return self.background(s, lang, rng)
        k = rng.random()
        if k < 0.7:
            question = rng.choice({"en": DESCRIBE + WHAT, "zh": DESCRIBE_ZH + WHAT_ZH}[lang])
            if s["kind"] == "strange": return question, SURE[lang]
            colour = self.colour(s, lang)
            return question, f"There is nothing but {article(colour)} background." if lang == "en" else f"只有{colour}背景，没有别的东西。"
        word = self.asked(rng.randrange(len(self.rows)), lang, rng)
        if s["kind"] == "strange": answer = {"en": "No. ", "zh": "没有。"}[lang] + SURE[lang]
        else: answer = {"en": "No, there is nothing.", "zh": "没有，什么都没有。"}[lang]
        return (rng.choice([f"Is there {article(word)} in the picture?", f"Do you see {article(word)}?"]) if lang == "en" else f"图里有{word}吗？"), answer

    def branch(self, s, rng):
        """One conversation: a list of (question, answer), in one language mostly."""
        lang = "zh" if rng.random() < 0.4 else "en"
        turns = []
        for _ in range(rng.choices([1, 2, 3], [0.72, 0.2, 0.08])[0]):
            if rng.random() < 0.1: lang = rng.choice(["en", "zh"])
            k = rng.random()
            if turns and k < 0.03: question, answer = THANKS[lang][0], THANKS[lang][1]; question = rng.choice(question)
            elif k < 0.004: question, answer = rng.choice(WHO[lang][0]), WHO[lang][1]
            else: question, answer = self.ask(s, lang, rng)
            turns.append((self.rough(question, rng), answer))
        return turns

    def blind(self, rng):
        """A conversation without a picture."""
        lang = "zh" if rng.random() < 0.4 else "en"
        if rng.random() < 0.4: return [(rng.choice(WHO[lang][0]), WHO[lang][1])]
        return [(rng.choice({"en": DESCRIBE + WHAT, "zh": DESCRIBE_ZH + WHAT_ZH}[lang]), BLIND[lang])]

    @staticmethod
    def rough(question, rng):
        """As people type."""
        k = rng.random()
        if k < 0.08: question = question.lower()
        elif k < 0.14: question = question.rstrip(".?!。？！")
        elif k < 0.16: question = question.replace("？", "?").replace("。", "")
        return question
