"""Trainers of others, as they come from PyPI: with their callback, and unchanged under `gradvane run`."""

import pytest
import running

HUGGING_FACE = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    {imports}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    data = [{{"input_ids": (w := torch.randint(0, 50, (12,))), "labels": w}} for _ in range(64)]
    arguments = TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2,
                                  max_grad_norm=0.5, report_to=[], use_cpu=True, save_strategy="no", logging_steps=1,
                                  disable_tqdm=True)
    trainer = Trainer(model, arguments, train_dataset=data{callbacks})
    trainer.train()
    for entry in trainer.state.log_history:
        if "grad_norm" in entry:
            print("norm", entry["grad_norm"], entry["loss"])
"""
LIGHTNING = """
    import torch
    import lightning
    {imports}
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        def training_step(self, batch, index):
            loss = self.net(batch[0]).square().mean()
            self.log_dict(dict([("loss", loss), ("train/loss", loss)]))
            print("loss", float(loss), flush=True)
            return loss
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)
        def on_before_optimizer_step(self, optimizer):  # behind accumulation, before clipping
            norms = [p.grad.double().norm() for p in self.parameters()]
            print("norm", float(torch.stack(norms).norm()), flush=True)
    lightning.seed_everything(0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(48, 8)), batch_size=4)
    trainer = lightning.Trainer(max_steps=4, accumulate_grad_batches=2, gradient_clip_val=0.05, accelerator="cpu",
                                logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False{callbacks})
    trainer.fit(Model(), loader)
"""


def printed(done):
    return [[float(word) for word in line.split()[1:]] for line in done.stdout.splitlines() if line.startswith("norm ")]


MODULES = {"transformers": running.HUGGING_FACE, "lightning": running.LIGHTNING}


def trained(tmp_path, source, way, module):
    if way == "run":
        script = running.write(tmp_path, source.format(imports="", callbacks=""))
        return running.watched(script, cwd=tmp_path, modules=MODULES[module], HF_HUB_OFFLINE="1")
    callback = "GradvaneCallback(run='theirs', step_log='steps.jsonl', port=-1)"
    source = source.format(imports=f"from gradvane.integrations.{module} import GradvaneCallback",
                           callbacks=f", callbacks=[{callback}]")
    done = running.python(running.write(tmp_path, source), cwd=tmp_path, modules=MODULES[module], HF_HUB_OFFLINE="1")
    return running.steps_in(tmp_path / "steps.jsonl"), done


@pytest.mark.parametrize("way", ["run", "callback"])
def test_hugging_face_trainer(tmp_path, way):
    steps, done = trained(tmp_path, HUGGING_FACE, way, "transformers")
    truth = printed(done)
    assert [s["step"] for s in steps] == [1, 2, 3, 4]
    assert [s["grad_norm"] for s in steps] == pytest.approx([norm for norm, _ in truth], rel=1e-5)
    assert [s["loss"] for s in steps] == pytest.approx([loss for _, loss in truth], rel=1e-3), "it rounds its loss"
    assert all(s["read_at"] == "clip" and s["micro_steps"] == 2 for s in steps)
    assert all(s["grad_norm_at_step"] == pytest.approx(0.5, rel=1e-3) for s in steps if s["grad_norm"] > 0.6)


@pytest.mark.parametrize("way", ["run", "callback"])
def test_lightning_trainer(tmp_path, way):
    steps, done = trained(tmp_path, LIGHTNING, way, "lightning")
    truth = [norm for (norm,) in printed(done)]
    assert [s["step"] for s in steps] == [1, 2, 3, 4]
    assert [s["grad_norm"] for s in steps] == pytest.approx(truth, rel=1e-6)
    assert all(s["read_at"] == "clip" and s["micro_steps"] == 2 for s in steps)
    losses = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss ")]
    assert [s["loss"] for s in steps] == pytest.approx([(a + b) / 2 for a, b in zip(losses[::2], losses[1::2])])
    if way == "callback":
        assert [s["user"]["train/loss"] for s in steps] == pytest.approx(losses[1::2]), "of the step that it belongs to"
        assert "loss" not in steps[1]["user"]
        assert [s["samples"] for s in steps] == [2 * 4] * 4


def test_a_plain_loop_in_the_manner_of_torchtitan(tmp_path):
    steps = running.run_source(tmp_path, """
        import torch
        torch.manual_seed(0)
        parts = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)]
        optimizers = [torch.optim.AdamW(part.parameters(), 1e-3, fused=True) for part in parts]
        for step in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            x = torch.randn(4, 8)
            for part in parts:
                x = part(x)
            loss = x.square().mean()
            loss.backward()
            grads = [p.grad for part in parts for p in part.parameters()]
            norm = torch.nn.utils.get_total_norm(grads, 2.0, error_if_nonfinite=False, foreach=True)
            torch.nn.utils.clip_grads_with_norm_([p for part in parts for p in part.parameters()], 1.0, norm, True)
            for optimizer in optimizers:
                optimizer.step()
        """)
    assert [(s["optimizer"], s["step"], s["run_step"]) for s in steps] == [
        row for n in (1, 2, 3) for row in ((0, n, n), (1, n, n))]
    assert all(s["read_at"] == "clip" for s in steps)


WRAPPED = """
    import torch
    import gradvane
    from {imports}
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(72, 8)), batch_size=4)
    {body}
"""
ACCELERATE = """
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    net, optimizer, data = accelerator.prepare(net, optimizer, data)
    gradvane.attach(net, optimizer, step_log="steps.jsonl", port=-1)
    parts = []
    for (x,) in data:
        with accelerator.accumulate(net):
            loss = net(x).square().mean()
            accelerator.backward(loss)
            parts.append(float(loss) / 3)
            if accelerator.sync_gradients:
                print("norm", float(accelerator.clip_grad_norm_(net.parameters(), 0.05)), sum(parts))
                parts = []
            optimizer.step()
            optimizer.zero_grad()
"""
LIGHTNING_BY_HAND = """
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.parts = net, []
            self.automatic_optimization = False
        def configure_optimizers(self):
            return optimizer
        def on_train_start(self):
            gradvane.attach(self, self.optimizers(), step_log="steps.jsonl", port=-1)
        def training_step(self, batch, index):
            loss = self.net(batch[0]).square().mean() / 3
            self.manual_backward(loss)
            self.parts.append(float(loss))
            if len(self.parts) == 3:
                print("norm", float(torch.nn.utils.clip_grad_norm_(self.parameters(), 0.05)), sum(self.parts))
                self.optimizers().step()
                self.optimizers().zero_grad()
                self.parts = []
    lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False).fit(Model(), data)
"""


@pytest.mark.parametrize(("imports", "body"), [("accelerate import Accelerator", ACCELERATE),
                                               ("gradvane import attach\n    import lightning", LIGHTNING_BY_HAND)],
                         ids=["accelerate", "lightning"])
def test_a_wrapped_optimizer_that_is_handed_to_attach_counts_its_own_steps(tmp_path, imports, body):
    modules = ("accelerate",) if "accelerate" in imports else running.LIGHTNING
    done = running.python(running.write(tmp_path, WRAPPED.format(imports=imports, body=body)), cwd=tmp_path, modules=modules)
    truth = printed(done)
    steps = running.steps_in(tmp_path / "steps.jsonl")
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6]
    assert [s["micro_steps"] for s in steps] == [3] * 6
    assert [s["grad_norm"] for s in steps] == pytest.approx([norm for norm, _ in truth], rel=1e-6)
    assert [s["loss"] for s in steps] == pytest.approx([loss for _, loss in truth], rel=1e-5)
    assert all(s["read_at"] == "clip" and s["clip_coefficient"] < 1 for s in steps)


def test_hugging_face_evaluations_and_checkpoints_are_phases_and_its_tokens_are_counted(tmp_path):
    source = HUGGING_FACE.replace('save_strategy="no"', 'eval_strategy="steps", eval_steps=2, save_strategy="steps", '
                                  'save_steps=2, include_num_input_tokens_seen="all"')
    source = source.replace("train_dataset=data", "train_dataset=data, eval_dataset=data[:4]")
    steps, _ = trained(tmp_path, source, "callback", "transformers")
    assert [s["tokens"] for s in steps] == [2 * 4 * 12] * 4, "accumulated batches, samples, words"
    both = {"evaluation", "checkpoint"}
    assert [both <= s.get("phase_seconds", {}).keys() for s in steps] == [False, False, True, False]
    assert all({"data", "forward"} <= s["phase_seconds"].keys() for s in steps[1:])


WORDS = """
        def training_step(self, batch, index):
            return self.net(batch["input_ids"].float()).square().mean()
"""


@pytest.mark.parametrize(("tokens", "counted"), [
    ("None", 2 * 4 * 8), ("lambda batch: 7", 2 * 7), ("lambda batch: batch.no_such_thing", 0)])
def test_lightnings_tokens_are_counted(tmp_path, tokens, counted):
    """Those of "input_ids", or as many as a function says; one that fails counts none and stops nothing."""
    source = LIGHTNING.replace("torch.utils.data.TensorDataset(torch.randn(48, 8))",
                               "[dict(input_ids=torch.ones(8, dtype=torch.long)) for _ in range(48)]")
    body = source[source.index("        def training_step"):source.index("        def configure_optimizers")]
    source = source.replace(body, WORDS.lstrip("\n"))
    source = source.replace("{callbacks}", ", callbacks=[GradvaneCallback(run='theirs', step_log='steps.jsonl', port=-1, "
                            f"tokens={tokens})]").replace(
        "{imports}", "from gradvane.integrations.lightning import GradvaneCallback")
    running.python(running.write(tmp_path, source), cwd=tmp_path, modules=running.LIGHTNING)
    assert [s.get("tokens", 0) for s in running.steps_in(tmp_path / "steps.jsonl")] == [counted] * 4


def test_lightnings_validation_is_a_phase_and_not_a_wait_for_data(tmp_path):
    source = LIGHTNING.replace("max_steps=4", "max_steps=4, val_check_interval=4, num_sanity_val_steps=0")
    source = source.replace("def configure_optimizers(self):", """def validation_step(self, batch, index):
            __import__("time").sleep(0.05)
        def configure_optimizers(self):""").replace("Model(), loader)", "Model(), loader, loader)")
    steps, _ = trained(tmp_path, source, "callback", "lightning")
    assert [s["phase_seconds"].get("evaluation", 0) > 12 * 0.05 / 2 for s in steps] == [False, False, True, False]
    assert all({"data", "forward"} <= s["phase_seconds"].keys() for s in steps[1:])
