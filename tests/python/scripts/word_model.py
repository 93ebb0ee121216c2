"""A word language model that updates its weights by hand."""
import torch
import torch.nn as nn

torch.manual_seed(2)
device = torch.device("cpu")
WORDS, BATCH, LENGTH, CLIP = 60, 8, 10, 0.25
corpus = torch.randint(0, WORDS, (BATCH, 400))


class RNNModel(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 1, batch_first=True)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.encoder.weight  # tied

    def forward(self, words, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return self.decoder(self.drop(out)), hidden


model = RNNModel(WORDS, 16).to(device)
criterion = nn.CrossEntropyLoss()
lr = 2.0


def repackage_hidden(h):
    return tuple(v.detach() for v in h) if h is not None else None


def train():
    model.train()
    hidden = None
    for i in range(0, 200, LENGTH):
        data, targets = corpus[:, i : i + LENGTH], corpus[:, i + 1 : i + 1 + LENGTH]
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output.reshape(-1, WORDS), targets.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)


train()
torch.save(model.state_dict(), "weights.pt")
