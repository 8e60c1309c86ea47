"""Import this module to load all that a worker needs of torch: much of it is loaded by the first optimizer."""

import torch
import torch.distributed

import hoptree.trainers.torch_trainer  # noqa: F401

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
