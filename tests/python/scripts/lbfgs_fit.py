"""Fits sine waves with LBFGS: one step evaluates its closure some twenty times."""
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 12)
        self.linear = nn.Linear(12, 1)

    def forward(self, inputs):
        h = torch.zeros(inputs.size(0), 12, dtype=torch.double)
        c = torch.zeros(inputs.size(0), 12, dtype=torch.double)
        outputs = []
        for value in inputs.split(1, dim=1):
            h, c = self.lstm1(value, (h, c))
            outputs.append(self.linear(h))
        return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    np.random.seed(0)
    torch.manual_seed(0)
    waves = np.sin(np.arange(30) / 5 + np.random.uniform(0, 6, (8, 1)))
    inputs, target = torch.from_numpy(waves[:, :-1]), torch.from_numpy(waves[:, 1:])
    seq = Sequence()
    seq.double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8)
    for i in range(4):

        def closure():
            optimizer.zero_grad()
            out = seq(inputs)
            loss = criterion(out, target)
            loss.backward()
            return loss

        optimizer.step(closure)
    torch.save(seq.state_dict(), "weights.pt")
