"""The other answers about a synthetic run: its status, its parameters, its host syncs, its ranks."""

from __future__ import annotations

from mock_run import NO_COUNTS, SITES, TENSOR_NUMBERS, MockRun, noise

GRADIENT_NUMBERS = [key.removeprefix("grad_") for key in TENSOR_NUMBERS if key.startswith("grad_")]

SETTINGS = [("run", "char_gpt", "code"), ("port", "9464", "default"), ("host", "127.0.0.1", "default"),
            ("weight_every", "50", "environment GRADVANE_WEIGHT_EVERY"),
            ("history_steps", "4096", "default"), ("detect", "default", "default"),
            ("step_log", "steps.jsonl", "file gradvane.yaml"), ("stall_seconds", "300", "default")]


def number(value: float | None) -> float | str:
    return "nan" if value is None else value


def incidents(run: MockRun) -> list[dict]:
    """Newest first."""
    found = []
    now = run.tick()
    for i, (first, last) in enumerate(run.bad):
        if first > now:
            continue
        end = min(last, now)
        incident = {
            "id": i + 1, "class": "nonfinite_grad", "rank": 0, "first_step": first, "last_step": end,
            "steps": end - first + 1, "opened_at": run.time_of(first), "param": run.culprit, "site": "grad",
            "kind": "nan", "element": 24576, "began_in": "backward", "micro_step": 1,
            "order": [
                {"site": "grad", "kind": "nan", "element": 24576, "run_step": first, "param": run.culprit,
                 "elements": {**NO_COUNTS, "nan": 1}},
                {"site": "weight", "kind": "nan", "element": 24576, "run_step": first + 1,
                 "param": run.culprit, "elements": {**NO_COUNTS, "nan": 1}},
                {"site": "loss", "kind": "nan", "run_step": first + 1, "elements": {**NO_COUNTS, "nan": 1}}],
            "evidence": f"Step {first}: the gradient of {run.culprit} became nan at element 24576 "
                        "(1 NaN, 0 +Inf, 0 -Inf in that step)."}
        if last + 10 < now:
            incident["closed_at"] = run.time_of(last + 10)
        found.append(incident)
    for i, step in enumerate(each for each in run.spikes if each <= now):
        loss = run.series(step)["loss"] or float("nan")
        found.append({"id": 100 + i, "class": "loss_spike", "rank": 0, "first_step": step, "last_step": step,
                      "steps": 1, "opened_at": run.time_of(step), "closed_at": run.time_of(step + 1),
                      "evidence": f"Step {step}: the loss was {loss:.3g}, 3.2 times the mean of those before."})
    return sorted(found, key=lambda each: -each["first_step"])


def status(run: MockRun, optimizer: int | None = None) -> dict:
    """Without an optimizer that of the last of them, which steps last."""
    optimizer = len(run.optimizers) - 1 if optimizer is None else optimizer
    now = run.tick()
    answer: dict = {
        "run": run.name, "rank": 0, "state": "starting" if now == 0 else run.state, "steps": now,
        "skipped_steps": 0,
        "nonfinite": {"elements": {site: {**NO_COUNTS, "nan": run.bad_between(1, now, site)} for site in SITES},
                      "steps": {site: run.bad_between(1, now, site) for site in SITES}},
        "syncs": {"source": "cupti" if run.has_syncs else "none",
                  "reason": "counting" if run.has_syncs else "no_cuda"},
        "incidents_total": len(incidents(run)), "incidents": incidents(run),
        "agent": {"seconds": now * run.seconds_per_step * 0.006, "of_step_seconds": now * run.seconds_per_step,
                  "records_dropped": 0},
        "model": {"params": len(run.param_names()), "elements": 16_384 * len(run.param_names()),
                  "groups": run.groups, "optimizers": [] if run.is_empty else list(run.optimizers)},
        "groups": [], "optimizers": [] if run.is_empty else list(range(len(run.optimizers))),
        "process": {"run_id": "1234.0", "local_rank": 0, "world_size": run.world_size, "host": "node-7", "pid": run.pid,
                    "version": "0.4.0", "torch_version": "2.11.0", "start_time": run.started,
                    "settings": [{"key": k, "value": v, "source": s} for k, v, s in SETTINGS]}}
    if run.reason:
        answer["reason"] = run.reason
    if run.recording:
        answer["recording"] = run.recording
    if now == 0:
        return answer
    values = run.series(now, optimizer)
    answer["latest"] = {
        "step": now, "run_step": now, "time": run.time_of(now), "optimizer": optimizer, "micro_steps": 1,
        "loss": number(values["loss"]), "grad_norm": values["grad_norm"] or 0.0,
        "grad_norm_at_step": values["grad_norm_at_step"] or 0.0,
        "clip_coefficient": values["clip_coefficient"], "lr": [values["lr"], values["lr"]],
        "step_seconds": values["step_seconds"], "agent_seconds": values["agent_seconds"],
        "nonfinite": {site: {**NO_COUNTS, "nan": int(run.is_bad(now, site))} for site in SITES}}
    answer["process_resident_bytes"] = {"value": values["process_resident_bytes"], "run_step": now}
    measured = now // 50 * 50
    if measured:
        answer["update_ratio"] = {"value": 0.0012, "run_step": measured}
    finite = next((s for s in range(now, 0, -1) if run.series(s)["loss"] is not None), None)
    if finite:
        answer["last_finite_loss"] = {"value": run.series(finite)["loss"], "run_step": finite}
    seen = [first for first, _ in run.bad if first <= now]
    if seen:
        answer["nonfinite"]["first"] = {"run_step": seen[0], "site": "grad", "kind": "nan",
                                        "element": 24576, "param": run.culprit}
    return answer


def param(run: MockRun, index: int, name: str, group: str) -> dict:
    now = run.tick()
    bad_steps = run.bad_between(1, now, "grad") if name == run.culprit else 0
    is_bad = bool(bad_steps) and run.is_bad(now, "grad")
    norm = 0.3 * (1 + noise(index, 7)) * (1 + 0.1 * noise(now, index)) + 1e-7
    shape = [128, 128] if "weight" in name else [128]
    tensor = dict.fromkeys(GRADIENT_NUMBERS, norm / 500) | {
              "run_step": now, "numel": 16384, "norm": norm, "abs_max": norm / 9,
              "abs_min_nonzero": norm / 1e6, "zero_ratio": 0.01, "subnormal_ratio": 0.001, "zero": 164,
              "subnormal": 16, "nonfinite": {**NO_COUNTS, "nan": 16384 if is_bad else 0}}
    row = {"index": index, "name": name, "group": group, "shape": shape, "numel": 16384,
           "dtype": "float32", "device": "cuda:0", "requires_grad": True,
           "state": "nonfinite" if is_bad else "finite", "grad": tensor,
           "weight": {**tensor, "norm": 8 + index % 9, "abs_max": 0.4},
           "update_ratio": {"value": 0.001 * (1 + abs(noise(index, 8))), "run_step": max(1, now // 50 * 50)},
           "nonfinite_steps": bad_steps}
    if bad_steps:
        row["first_nonfinite"] = {"run_step": run.bad[0][0], "site": "grad", "kind": "nan", "element": 24576,
                                  "position": [192, 0]}
    return row


KEYS = {
    "index": lambda p: p["index"], "name": lambda p: p["name"], "group": lambda p: p["group"],
    "state": lambda p: p["state"], "numel": lambda p: p["numel"],
    "worst": lambda p: (p["state"] != "nonfinite", p["nonfinite_steps"] == 0, -p["grad"]["norm"]),
    **{f"grad_{key}": lambda p, key=key: p["grad"][key]
       for key in GRADIENT_NUMBERS},
    "weight_norm": lambda p: p["weight"]["norm"],
    "update_ratio": lambda p: p["update_ratio"]["value"], "nonfinite_steps": lambda p: p["nonfinite_steps"]}
ASCENDING = {"index", "name", "group", "state", "worst"}


def params(run: MockRun, sort: str, order: str, search: str, offset: int, limit: int) -> dict:
    every = [param(run, i, name, group) for i, (name, group) in enumerate(run.param_names())]
    matched = [p for p in every if search.lower() in p["name"].lower()]
    descending = order == "desc" or (not order and sort not in ASCENDING)
    matched.sort(key=KEYS[sort], reverse=descending)
    return {"run": run.name, "rank": 0, "run_step": run.tick(), "total": len(every), "matched": len(matched),
            "params": matched[offset:offset + limit]}


def param_history(run: MockRun, name: str) -> dict | None:
    names = run.param_names()
    index = next((i for i, (each, _) in enumerate(names) if each == name), None)
    if index is None:
        return None
    now = run.tick()
    size = run.steps_per_point(now)
    points = [(begin, min(begin + size - 1, now)) for begin in range(1, now + 1, size)]
    is_culprit = name == run.culprit
    return {**run.head(), "param": param(run, index, *names[index]), "steps_per_point": size,
            "first": [p[0] for p in points], "last": [p[1] for p in points],
            "time": [run.time_of(p[1]) for p in points],
            "series": {value: [run.cell(value, index, end) for _, end in points] for value in TENSOR_NUMBERS},
            "nonfinite": [run.bad_between(*p, "grad") if is_culprit else 0 for p in points]}


def syncs(run: MockRun) -> dict:
    now = run.tick()
    answer: dict = {
        "run": run.name, "rank": 0, "source": "cupti" if run.has_syncs else "none",
        "reason": "counting" if run.has_syncs else "no_cuda", "covered_seconds": now * run.seconds_per_step,
        "blind_seconds": 0, "gaps": 0, "steps": now, "own_budget": 0,
        "steps_over": {"training": now // 10, "gradvane": 0}, "steps_uncounted": 0,
        "dropped": {"threads": 0, "sites": 0, "events": 0, "unbalanced": 0}}
    if not run.has_syncs or now == 0:
        return answer
    blocked = now * run.seconds_per_step * 0.1
    nothing = {"calls": 0, "seconds": 0}
    stack = ["train.py:88 in step", "train.py:41 in main", "torch/_tensor.py:30 in item"]
    return {
        **answer, "budget": 2, "most_in_step": {"calls": 3, "run_step": now // 10 * 10 or 1},
        "totals": {"training": {"d2h_read": {"calls": now * 2, "seconds": blocked},
                                "device": {"calls": now // 10, "seconds": blocked / 20}},
                   "gradvane": {}, "profiler": {}},
        "by_phase": {"data": nothing, "forward": nothing, "backward": nothing,
                     "optimizer": {"calls": now, "seconds": blocked / 2},
                     "other": {"calls": now, "seconds": blocked / 2}},
        "polls": {"training": nothing, "gradvane": {"calls": now, "seconds": 0.01}},
        "sites": [
            {"id": 1, "kind": "d2h_read", "origin": "training", "phase": "other", "location": "train.py:88",
             "file": "/data/train.py", "line": 88, "function": "step", "stack": stack,
             "thread": "MainThread", "calls": now * 2, "calls_per_step": 2.0, "seconds": blocked,
             "max_seconds": 0.08},
            {"id": 2, "kind": "device", "origin": "training", "phase": "optimizer", "location": "log.py:12",
             "file": "/data/log.py", "line": 12, "function": "Log.flush", "stack": stack[:2],
             "thread": "MainThread", "calls": now // 10, "calls_per_step": 0.1, "seconds": blocked / 20,
             "max_seconds": 0.02}]}


def ranks(run: MockRun, address: str) -> dict:
    here = min(run.world_size, 64)
    return {"run": run.name, "rank": 0, "world_size": run.world_size, "ranks": [
        {"rank": rank, "url": address if rank == 0 else f"http://127.0.0.1:{9464 + rank}",
         "state": "failed" if rank == 5 else "running", "pid": run.pid + rank, "started": run.started,
         "is_this": rank == 0} for rank in range(here)]}
