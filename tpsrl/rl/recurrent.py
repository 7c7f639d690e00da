"""An LSTM whose memory is one flat tensor (n, M): of each layer its output, then its cell."""

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from tpsrl.rl.sequences import Pack


class Recurrent(nn.Module):
    """`layers` LSTM layers of `width`; `memory_size` M is layers x 2 x width.

    Sequences run through torch's LSTM, single steps through its cell with the same weights, which
    takes half the time (16 rows, one core).
    """

    def __init__(self, size: int, layers: int, width: int) -> None:
        super().__init__()
        self.memory_size = layers * 2 * width
        self.lstm = nn.LSTM(size, width, layers)
        for name, parameter in self.lstm.named_parameters():
            if "weight" in name:
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)

    def step(self, x: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One step: input (n, size), memory (n, M) -> output (n, width), memory (n, M)."""
        parts = memory.split(self.lstm.hidden_size, dim=1)
        new: list[torch.Tensor] = []
        for layer, weights in enumerate(self.lstm.all_weights):
            x, cell = torch.lstm_cell(x, parts[2 * layer : 2 * layer + 2], *weights)
            new += [x, cell]
        return x, torch.cat(new, dim=1)

    def forward(self, x: torch.Tensor, pack: Pack) -> torch.Tensor:
        """Sequences: input (S, size) in packed order -> output (S, width) in the same order."""
        width, layers = self.lstm.hidden_size, self.lstm.num_layers
        memory = pack.memory.view(-1, layers, 2, width).permute(2, 1, 0, 3).contiguous()
        packed = PackedSequence(x, pack.batch_sizes)
        return self.lstm(packed, (memory[0], memory[1]))[0].data
