"""Part of the network that all peers share, before their own LSTM. Needs only torch."""

import torch
from torch import nn

VISUAL = VECTOR = LSTM = 128


class Features(nn.Module):
    """Maps depth (n, 64, 64) in [0, 1] and a vector (n, `size`) to features (n, `width`)."""

    width = VISUAL + VECTOR

    def __init__(self, size: int) -> None:
        super().__init__()
        self.visual = nn.Sequential(
            nn.Conv2d(1, 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, VISUAL),
            nn.ReLU(),
        )
        self.vector = nn.Sequential(nn.Linear(size, VECTOR), nn.Tanh())

    def forward(self, depth: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.visual(depth.unsqueeze(1)), self.vector(vector)], dim=1)
