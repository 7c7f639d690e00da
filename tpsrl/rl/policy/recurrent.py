"""LSTM whose memory is one flat tensor (n, M): output, then cell of each layer."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # in the order of `torch.lstm_cell`


@dataclass(frozen=True, slots=True)
class Pack:
    """Division of rows in packed order into sequences.

    Attributes:
        batch_sizes: (t,) int64 on the CPU, as in torch's `PackedSequence`
        memory: (q, M) memory of the policy at the start of each of the q sequences, longest first
    """

    batch_sizes: torch.Tensor
    memory: torch.Tensor


class Recurrent(nn.Module):
    """LSTM with `layers` layers of `width`; `memory_size` M is layers x 2 x width.

    Sequences use torch's LSTM; single steps use its cell with the same weights, which takes half
    the time (16 rows, one core).
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
        """Runs one step: input (n, size), memory (n, M) -> output (n, width), memory (n, M)."""
        parts = memory.split(self.lstm.hidden_size, dim=1)
        new: list[torch.Tensor] = []
        for layer in range(self.lstm.num_layers):
            weights = [getattr(self.lstm, f"{name}_l{layer}") for name in _WEIGHTS]
            x, cell = torch.lstm_cell(x, parts[2 * layer : 2 * layer + 2], *weights)
            new += [x, cell]
        return x, torch.cat(new, dim=1)

    def forward(self, x: torch.Tensor, pack: Pack) -> torch.Tensor:
        """Runs sequences: input (S, size) in packed order -> output (S, width) in that order."""
        width, layers = self.lstm.hidden_size, self.lstm.num_layers
        memory = pack.memory.view(-1, layers, 2, width).permute(2, 1, 0, 3).contiguous()
        if x.device.type == "cpu" and int(pack.batch_sizes[-1]) < len(pack.memory):
            return self._in_groups(x, pack.batch_sizes, memory[0], memory[1])
        packed = PackedSequence(x, pack.batch_sizes)
        return self.lstm(packed, (memory[0], memory[1]))[0].data

    def _in_groups(
        self, x: torch.Tensor, batch_sizes: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> torch.Tensor:
        """Runs sequences in groups of similar length, each padded to the longest of its group.

        On the CPU, torch has a fast path for sequences of equal length. It takes less than half the
        time of packed ones, padding included: no sequence is padded to twice its length.
        """
        first = batch_sizes.cumsum(0) - batch_sizes  # row of a step's longest sequence
        lengths = (batch_sizes[:, None] > torch.arange(hidden.shape[1])).sum(0)
        begin, rows, outputs = 0, [], []
        while begin < len(lengths):
            longest = int(lengths[begin])
            end = int((2 * lengths > longest).sum())
            group = torch.arange(begin, end)
            there = group < batch_sizes[:longest, None]
            index = torch.where(there, first[:longest, None] + group, 0)
            state = (hidden[:, begin:end].contiguous(), cell[:, begin:end].contiguous())
            padded = x.index_select(0, index.flatten()).view(longest, end - begin, -1)
            outputs.append(self.lstm(padded, state)[0][there])
            rows.append(index[there])
            begin = end
        order = torch.argsort(torch.cat(rows))
        return torch.cat(outputs).index_select(0, order)
