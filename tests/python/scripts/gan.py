"""A small GAN: two networks, two optimizers, three backward passes an iteration."""
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(3)
nz, batch_size = 8, 16


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(nz, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 12), nn.Tanh())

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(12, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, x):
        return self.main(x).squeeze(1)


netG = Generator()
netD = Discriminator()
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
real_data = torch.randn(batch_size * 10, 12)

for i in range(10):
    netD.zero_grad()
    real = real_data[i * batch_size : (i + 1) * batch_size]
    errD_real = criterion(netD(real), torch.ones(batch_size))
    errD_real.backward()
    fake = netG(torch.randn(batch_size, nz))
    errD_fake = criterion(netD(fake.detach()), torch.zeros(batch_size))
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    errG = criterion(netD(fake), torch.ones(batch_size))
    errG.backward()
    optimizerG.step()
    print(f"[{i}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")

torch.save({**netG.state_dict(prefix="G."), **netD.state_dict(prefix="D.")}, "weights.pt")
