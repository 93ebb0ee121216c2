"""Policies in trainers of others, and in several processes."""

import pytest
import running

from poisoned import equal

HUGGING_FACE = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from gradvane.integrations.transformers import GradvaneCallback
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    data = [{{"input_ids": (w := torch.randint(0, 50, (12,))), "labels": w}} for _ in range(64)]
    steps = 0
    def spoil(gradient):
        global steps
        steps += 1
        return gradient * float("nan") if steps == 3 else gradient
    model.transformer.wte.weight.register_hook(spoil)
    arguments = TrainingArguments("out", max_steps=6, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                  save_strategy="no", disable_tqdm=True)
    callback = GradvaneCallback(on_nonfinite="{policy}", port=-1, step_log="steps.jsonl", run_dir="run")
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    print("steps", trainer.state.global_step)
    print("finite", all(bool(p.isfinite().all()) for p in model.parameters()))
    print("state", callback.agent.status().state, callback.agent.status().reason)
    print("incidents", *(one.kind for one in callback.agent.incidents))
"""
LIGHTNING_MODEL = """
    import torch
    import lightning
    from gradvane.integrations.lightning import GradvaneCallback
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        def training_step(self, batch, index):
            return (self.net(batch[0]) - 1).square().mean()
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)
"""
LIGHTNING = LIGHTNING_MODEL + """\
        def on_before_optimizer_step(self, optimizer):
            if self.trainer.global_step == 2:
                next(self.parameters()).grad[0, 0] = float("nan")
    lightning.seed_everything(0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 8)), batch_size=4)
    callback = GradvaneCallback(on_nonfinite="{policy}", port=-1, step_log="steps.jsonl", run_dir="run")
    trainer = lightning.Trainer(max_steps=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, callbacks=[callback])
    model = Model()
    trainer.fit(model, loader)
    print("steps", trainer.global_step)
    print("finite", all(bool(p.isfinite().all()) for p in model.parameters()))
    print("state", callback.agent.status().state, callback.agent.status().reason)
    print("incidents", *(one.kind for one in callback.agent.incidents))
"""
TRAINERS = {"hugging face": HUGGING_FACE, "lightning": LIGHTNING}


def told(tmp_path, source):
    modules = running.HUGGING_FACE if "transformers" in source else running.LIGHTNING
    done = running.python(running.write(tmp_path, source), cwd=tmp_path, modules=modules, HF_HUB_OFFLINE="1")
    told = ("steps ", "finite ", "state ", "incidents ")
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(told))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_skips_the_step_and_goes_on(tmp_path, trainer):
    result = told(tmp_path, TRAINERS[trainer].format(policy="skip"))
    assert result["finite"] == "True"
    assert result["state"].split()[0] == "finished"
    steps = running.steps_in(tmp_path / "steps.jsonl")
    assert [s.get("skipped") for s in steps] == [None, None, "governor", None, None, None]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_goes_back_and_goes_on(tmp_path, trainer):
    result = told(tmp_path, TRAINERS[trainer].format(policy='rollback", snapshot_every="1'))
    assert result["finite"] == "True"
    assert result["state"].split()[0] == "finished"
    assert result["incidents"] == "nonfinite_grad rollback"
    steps = running.steps_in(tmp_path / "steps.jsonl")
    assert [s.get("skipped") for s in steps] == [None, None, "governor", None, None, None]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_stops_in_its_own_way(tmp_path, trainer):
    result = told(tmp_path, TRAINERS[trainer].format(policy="stop"))
    assert result["steps"] == "3" and result["finite"] == "True"
    assert result["state"] == "failed stopped: step 3: a gradient is not finite"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_control_a_trainer_that_is_only_watched_is_ruined(tmp_path, trainer):
    assert told(tmp_path, TRAINERS[trainer].format(policy="watch"))["finite"] == "False"


DIVERGES = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    from gradvane.integrations.transformers import GradvaneCallback
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    words = torch.randint(0, 50, (12,))
    data = [{{"input_ids": words, "labels": words}} for _ in range(200)]
    class Spoils(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            if state.global_step >= 20:
                with torch.no_grad():
                    model.transformer.wte.weight.mul_(3)
    arguments = TrainingArguments("out", max_steps=40, per_device_train_batch_size=2, report_to=[], use_cpu=True,
                                  save_strategy="steps", save_steps=1, disable_tqdm=True, learning_rate=1e-3)
    callback = GradvaneCallback(on_divergence="stop", detect="loss_divergence", loss_window=10, mode="immediate", port=-1,
                                run_dir="run")
    {control}
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Spoils(), callback])
    trainer.train()
    print("steps", trainer.state.global_step)
    print("state", callback.agent.status().reason)
"""


@pytest.mark.parametrize("is_control", [False, True])
def test_a_stop_for_a_divergence_saves_no_checkpoint_of_it(tmp_path, is_control):
    control = "callback._saves_nothing_bad = lambda args, control: None" if is_control else ""
    result = told(tmp_path, DIVERGES.format(control=control))
    assert "loss_divergence" in result["state"] and 20 < int(result["steps"]) < 40
    saved = max(int(path.name.split("-")[1]) for path in (tmp_path / "out").iterdir())
    assert (saved == int(result["steps"])) == is_control


@pytest.mark.parametrize("is_control", [False, True])
def test_two_ranks_save_no_checkpoint_of_a_state_that_is_bad_on_one_of_them(tmp_path, is_control):
    """Rank 0 saves, and finds the state good. If the trainers do not ask, it saves."""
    source = DIVERGES.format(control=f"""
    import os
    callback._options["ranks"] = "agree"
    class Knows(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            callback.agent.is_state_good = lambda: os.environ["RANK"] == "0"
            if {is_control}:
                callback.agent._leaves_out_checkpoints = lambda ranks: False
    """).replace("callbacks=[Spoils(), callback]", "callbacks=[Spoils(), callback, Knows()]").replace(
        "use_cpu=True", 'use_cpu=True, ddp_backend="gloo"').replace('run_dir="run"', 'run_dir="run" + os.environ["RANK"]').replace(
        "    import torch\n", "    import os, torch\n", 1).replace(
        'print("steps", trainer.state.global_step)',
        'open("steps" + os.environ["RANK"], "w").write(str(trainer.state.global_step))')  # two ranks print into each other's lines
    running.ranks(2, running.write(tmp_path, source), cwd=tmp_path, modules=running.HUGGING_FACE, HF_HUB_OFFLINE="1")
    steps, others = (int((tmp_path / f"steps{rank}").read_text()) for rank in (0, 1))
    assert steps == others
    saved = max(int(path.name.split("-")[1]) for path in (tmp_path / "out").iterdir())
    assert (saved < steps) == (not is_control)


LIGHTNING_DIVERGES = LIGHTNING_MODEL + """\
        def on_train_batch_start(self, batch, index):
            if self.trainer.global_step >= 20:
                with torch.no_grad():
                    self.net[2].weight.mul_(3)
    from lightning.pytorch.callbacks import ModelCheckpoint
    lightning.seed_everything(0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 8)), batch_size=4)
    callback = GradvaneCallback(on_divergence="stop", detect="loss_divergence", loss_window=10, mode="immediate", port=-1,
                                run_dir="run")
    {control}
    saves = [ModelCheckpoint("each", every_n_train_steps=1, save_top_k=-1), ModelCheckpoint("epoch", save_last=True),
             ModelCheckpoint("end", every_n_train_steps=1000, save_last=True)]
    trainer = lightning.Trainer(max_steps=40, accelerator="cpu", logger=False, enable_progress_bar=False,
                                enable_model_summary=False, callbacks=[*saves, callback])
    trainer.fit(Model(), loader)
    print("steps", trainer.global_step)
    print("state", callback.agent.status().reason)
"""


@pytest.mark.parametrize("is_control", [False, True])
def test_nor_does_the_trainer_of_lightning(tmp_path, is_control):
    control = "import gradvane.integrations.lightning as ours; ours._checkpoints = lambda _: []" if is_control else ""
    result = told(tmp_path, LIGHTNING_DIVERGES.format(control=control))
    assert "loss_divergence" in result["state"] and 20 < int(result["steps"]) < 40
    import torch

    last = int(result["steps"])
    saved = {folder: {torch.load(path, weights_only=False)["global_step"] for path in (tmp_path / folder).glob("*.ckpt")}
             for folder in ("each", "epoch", "end")}
    assert [last in steps for steps in saved.values()] == [is_control] * 3
    assert last - 1 in saved["each"]


DDP = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    net = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    for i in range(6):
        if {leaves_out} and i == 3:
            continue
        optimizer.zero_grad()
        inputs = torch.full((2, 4), float(rank + i + 1))
        if i == 3 and rank == 1:
            inputs[0, 0] = float("nan")
        net(inputs).square().mean().backward()
        optimizer.step()
    torch.save([model.state_dict(), optimizer.state_dict()], f"rank{{rank}}.pt")
    dist.destroy_process_group()
"""


def ddp(folder, leaves_out, ways):
    folder.mkdir()
    script = running.write(folder, DDP.format(leaves_out=leaves_out))
    running.ranks(2, *ways, script, cwd=folder, GRADVANE_RUN_DIR=str(folder / "run"))
    import torch

    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


def test_under_ddp_every_rank_skips_the_step_that_one_rank_spoiled(tmp_path):
    log = tmp_path / "steps.jsonl"
    ours = ddp(tmp_path / "ours", False,
               ("-m", "gradvane", "run", "--on-nonfinite", "skip", "--step-log", log))
    plain = ddp(tmp_path / "plain", True, ())
    assert equal(ours[0], ours[1]) and equal(ours[0], plain[0])
    for rank in (0, 1):
        steps = running.steps_in(tmp_path / f"steps.rank{rank}.jsonl")
        assert [s.get("skipped") for s in steps] == [None, None, None, "governor", None, None]
