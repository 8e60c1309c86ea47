"""A small transformer that learns to write like Python's manual, letter by letter.

A row of the dataset is a window of letters; the target is the same window, one letter later.
"""

from pydoc_data.topics import topics  # the texts of help("for"), help("try") …

import numpy as np
import torch
from torch import nn

import hoptree as ht

WINDOW = 48
TEXT = "".join(topics[name] for name in ("for", "if", "while", "with", "assignment"))


def windows(codes):
    starts = np.arange(0, len(codes) - WINDOW - 1, WINDOW // 4)
    rows = codes[starts[:, None] + np.arange(WINDOW + 1)]
    return {"x": rows[:, :-1], "y": rows[:, 1:]}


class Writer(nn.Module):
    def __init__(self, letters, width, layers, dropout):
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Embedding(WINDOW, width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=dropout, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, letters):
        length = letters.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        places = torch.arange(length)
        return self.head(self.body(self.letter(letters) + self.place(places), mask=mask, is_causal=True))


letters = sorted(set(TEXT))
codes = np.array([letters.index(letter) for letter in TEXT])
seen, held_out = np.split(codes, [len(codes) * 9 // 10])


def net(hp):
    return Writer(len(letters), hp["width"], hp["layers"], hp["dropout"])


def next_letter(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


study = ht.Study(
    "manual",
    trainer=ht.Torch(net, loss=next_letter, optimizer="adamw", clip=1.0, metrics={"accuracy": ht.accuracy}),
    data=ht.Dataset.from_arrays(**windows(seen), partitions=2, valid=windows(held_out)),
    space={
        "lr": ht.warmup(0.0, 1, ht.choice(3e-3, ht.multistep(3e-3, at=ht.choice([6], [8]), gamma=0.2))),
        "width": 32,
        "layers": ht.choice(1, 2),
        "dropout": 0.0,
        "batch_size": 16,
    },
    search=ht.Grid(epochs=10),
    minimize="loss",
)


def write(model, begin, length):
    text = [letters.index(letter) for letter in begin]
    with torch.no_grad():
        for _ in range(length):
            scores = model(torch.tensor([text[-WINDOW:]]))[0, -1]
            text.append(int(scores.argmax()))
    return "".join(letters[code] for code in text)


if __name__ == "__main__":
    results = study.run()
    best = results.best
    print(f"{len(results.trials)} trials; {results.savings}")
    print(f"Best: trial {best.number}, loss {best.metrics['loss']:.3f}, accuracy {best.metrics['accuracy']:.3f}")
    print(write(best.load(), "The statement ", 80))
