import torch
from torch import nn


class LineNetwork(nn.Module):
    """Two convolutions and a sigmoid: [B, 3, H, W] -> [B, 1, H, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.second(torch.relu(self.first(pixels))))
