"""One net for every family of layers in torch.nn that trains on a CPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.trainers.hops import quiet


class Net(nn.Module):
    """Rows of 16 numbers, in another shape, through a layer, to three classes."""

    def __init__(self, layer, shape, call=None, dtype=None):
        super().__init__()
        self.layer, self.shape, self.dtype = layer, shape, dtype
        self.call = call
        with torch.no_grad():
            layer.eval()
            size = self._features(torch.zeros(2, 16)).shape[1]
            layer.train()
        self.head = nn.Linear(size, 3)
        self.scale = nn.Parameter(torch.ones(16))

    def _features(self, x):
        x = x.view(-1, *self.shape)
        x = x if self.dtype is None else x.to(self.dtype)
        out = self.layer(x) if self.call is None else self.call(self.layer, x)
        while isinstance(out, tuple):
            out = out[0]
        out = torch.view_as_real(out) if out.is_complex() else out
        return out.flatten(1).float()

    def forward(self, x):
        return self.head(self._features(x * self.scale))


def _twice(layer, x):
    return layer(x, x)


def _tokens(layer, x):
    return layer((x.detach() * 4).long().clamp(0, 9))


def _bags(layer, x):
    return layer((x.detach() * 4).long().clamp(0, 9).view(-1, 16))


def _steps(cell, x):
    hidden = None
    for step in x.unbind(1):
        hidden = cell(step, hidden)
    return hidden


def _pooled(make):
    return lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), make())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x).tanh())


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 4, dtype=torch.complex64) / 4)

    def forward(self, x):
        return x.to(torch.complex64) @ self.weight


def _lazy():
    layer = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d())
    quiet(layer, torch.zeros(2, 2, 8))
    return layer


def _half(layer):
    return layer.to(torch.bfloat16)


ROW, SEQUENCE, LINE, IMAGE, VOLUME = (16,), (4, 4), (2, 8), (1, 4, 4), (1, 4, 2, 2)
_encoder = nn.TransformerEncoderLayer
_decoder = nn.TransformerDecoderLayer

LAYERS = {
    "Linear": (lambda: nn.Linear(16, 8), ROW),
    "Bilinear": (lambda: nn.Bilinear(16, 16, 4), ROW, _twice),
    "Identity": (nn.Identity, ROW),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(16), ROW),
    "BatchNorm1d cumulative": (lambda: nn.BatchNorm1d(16, momentum=None), ROW),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(1), IMAGE),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(1), VOLUME),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2, affine=True, track_running_stats=True), LINE),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(1, affine=True, track_running_stats=True), IMAGE),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(1, track_running_stats=True), VOLUME),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), SEQUENCE),
    "LayerNorm": (lambda: nn.LayerNorm(16), ROW),
    "RMSNorm": (lambda: nn.RMSNorm(16), ROW),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), LINE),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(2), (2, 2, 4)),
    "Dropout": (lambda: nn.Dropout(0.3), ROW),
    "Dropout1d": (lambda: nn.Dropout1d(0.3), LINE),
    "Dropout2d": (lambda: nn.Dropout2d(0.3), (4, 2, 2)),
    "Dropout3d": (lambda: nn.Dropout3d(0.3), (2, 2, 2, 2)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), ROW),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.3), (4, 2, 2)),
    "RReLU": (nn.RReLU, ROW),
    "PReLU": (lambda: nn.PReLU(16), ROW),
    "RNN": (lambda: nn.RNN(4, 5, 2, dropout=0.3, batch_first=True), SEQUENCE),
    "LSTM": (lambda: nn.LSTM(4, 5, 2, dropout=0.3, bidirectional=True, batch_first=True), SEQUENCE),
    "LSTM projected": (
        lambda: nn.LSTM(4, 5, proj_size=3, batch_first=True),
        SEQUENCE,
        lambda *each: quiet(each[0], each[1]),
    ),
    "GRU": (lambda: nn.GRU(4, 5, 2, dropout=0.3, bidirectional=True, batch_first=True), SEQUENCE),
    "RNNCell": (lambda: nn.RNNCell(4, 5), SEQUENCE, _steps),
    "LSTMCell": (lambda: nn.LSTMCell(4, 5), SEQUENCE, _steps),
    "GRUCell": (lambda: nn.GRUCell(4, 5), SEQUENCE, _steps),
    "MultiheadAttention": (
        lambda: nn.MultiheadAttention(4, 2, dropout=0.2, add_bias_kv=True, batch_first=True),
        SEQUENCE,
        lambda layer, x: layer(x, x, x),
    ),
    "TransformerEncoderLayer": (lambda: _encoder(4, 2, 8, batch_first=True), SEQUENCE),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(_encoder(4, 2, 8, batch_first=True), 2, enable_nested_tensor=False),
        SEQUENCE,
    ),
    "TransformerDecoder": (lambda: nn.TransformerDecoder(_decoder(4, 2, 8, batch_first=True), 2), SEQUENCE, _twice),
    "Transformer": (
        lambda: quiet(nn.Transformer, 4, 2, 1, 1, 8, batch_first=True),
        SEQUENCE,
        _twice,
    ),
    "Embedding": (lambda: nn.Embedding(10, 3, padding_idx=0), ROW, _tokens),
    "Embedding max_norm": (lambda: nn.Embedding(10, 3, max_norm=1.0), ROW, _tokens),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10, 3, mode="max"), ROW, _bags),
    "Conv1d": (lambda: nn.Conv1d(2, 4, 3), LINE),
    "Conv2d": (lambda: nn.Conv2d(1, 4, 3, padding="same", padding_mode="circular"), IMAGE),
    "Conv2d grouped": (lambda: nn.Conv2d(2, 4, (1, 2), groups=2, dilation=2), (2, 2, 4)),
    "Conv3d": (lambda: nn.Conv3d(1, 2, 2), VOLUME),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=2), LINE),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(1, 2, 2, stride=2), IMAGE),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(1, 2, 2), VOLUME),
    "Fold": (lambda: nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), IMAGE),
    "MaxPool2d": (_pooled(lambda: nn.MaxPool2d(2)), IMAGE),
    "AvgPool2d": (_pooled(lambda: nn.AvgPool2d(2)), IMAGE),
    "LPPool2d": (_pooled(lambda: nn.LPPool2d(2, 2)), IMAGE),
    "FractionalMaxPool2d": (_pooled(lambda: nn.FractionalMaxPool2d(2, output_size=2)), IMAGE),
    "AdaptiveAvgPool2d": (_pooled(lambda: nn.AdaptiveAvgPool2d(3)), IMAGE),
    "AdaptiveMaxPool2d": (_pooled(lambda: nn.AdaptiveMaxPool2d(3)), IMAGE),
    "Upsample nearest": (_pooled(lambda: nn.Upsample(scale_factor=2)), IMAGE),
    "Upsample bilinear": (_pooled(lambda: nn.Upsample(scale_factor=2, mode="bilinear")), IMAGE),
    "Upsample bicubic": (_pooled(lambda: nn.Upsample(scale_factor=2, mode="bicubic")), IMAGE),
    "PixelShuffle": (_pooled(lambda: nn.PixelShuffle(2)), IMAGE),
    "PixelUnshuffle": (lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4, 4, 1)), IMAGE),
    "ChannelShuffle": (_pooled(lambda: nn.ChannelShuffle(2)), IMAGE),
    "ReflectionPad2d": (_pooled(lambda: nn.ReflectionPad2d(1)), IMAGE),
    "weight_norm": (lambda: parametrizations.weight_norm(nn.Linear(16, 8)), ROW),
    "spectral_norm": (lambda: parametrizations.spectral_norm(nn.Linear(16, 8)), ROW),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(16, 8)), ROW),
    "old weight_norm": (lambda: quiet(nn.utils.weight_norm, nn.Linear(16, 8)), ROW),
    "old spectral_norm": (lambda: quiet(nn.utils.spectral_norm, nn.Linear(16, 8)), ROW),
    "lazy, called once": (_lazy, LINE),
    "tied": (Tied, ROW),
    "complex": (Complex, ROW),
    "float64": (lambda: nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)).double(), ROW, None, torch.float64),
    "bfloat16": (lambda: _half(nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8))), ROW, None, torch.bfloat16),
    "bfloat16 LSTM": (lambda: _half(nn.LSTM(4, 5, batch_first=True)), SEQUENCE, None, torch.bfloat16),
    "float16": (lambda: nn.Linear(16, 8).half(), ROW, None, torch.float16),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(16, 8, [4]),
        ROW,
        lambda layer, x: layer.log_prob(x),
    ),
    "Softmax": (lambda: nn.Sequential(nn.Softmax(1), nn.GLU(1)), ROW),
    "ParameterList": (lambda: nn.ModuleList([nn.Linear(16, 4), nn.Linear(4, 4)]), ROW, lambda m, x: m[1](m[0](x))),
}
SPARSE = {
    "Embedding sparse": (lambda: nn.Embedding(10, 3, sparse=True), ROW, _tokens),
    "EmbeddingBag sparse": (lambda: nn.EmbeddingBag(10, 3, sparse=True, mode="sum"), ROW, _bags),
}


def net(name):
    """Return a model function for a layer by name."""
    make, *rest = {**LAYERS, **SPARSE}[name]
    return lambda hp: Net(make(), *rest)
