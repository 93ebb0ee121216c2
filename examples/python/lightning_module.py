"""Lightning: python lightning_module.py"""

import lightning
import torch

from gradvane.integrations.lightning import GradvaneCallback


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        x, y = batch
        prediction = self.model(x)
        self.log("worst_error", (prediction - y).abs().max())
        return torch.nn.functional.mse_loss(prediction, y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(epochs=3):
    lightning.seed_everything(0)
    x = torch.rand(2048, 2) * 4 - 2
    data = torch.utils.data.TensorDataset(x, (x[:, :1] * x[:, 1:]).sin())
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        gradient_clip_val=1.0,
        callbacks=[GradvaneCallback(run="lightning")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
