"""Host syncs as an agent counts them: beside an injected library or alone, by option or keyword, and where
they cannot be counted."""

import json
import re
import sys

import jsonschema
import planted
import pytest
import running
from planted import BEGIN, CUDA, PLANTED, STEPS, TRAINING, documents, rows, syncs

ASK = """
    def ask(path, until):
        import time, urllib.request
        from gradvane import _agent
        for _ in range(600):
            text = urllib.request.urlopen(_agent.live().url + path, timeout=5).read().decode()
            if until(text):
                break
            time.sleep(0.1)
        return text
"""


def valid(path):
    document = json.loads(path.read_text())
    jsonschema.Draft202012Validator(planted.SCHEMA).validate(document)
    return document


def counted(document):
    """Kind, calls a step and rounded blocked time of each place."""
    return [(site["kind"], site["calls_per_step"]) for site in document["sites"]]


ALL_PLANTED = [(kind, per_step) for _, kind, per_step in PLANTED]


def test_gradvane_run_takes_the_options(tmp_path):
    steps, done = running.watched(
        running.write(tmp_path, TRAINING), cwd=tmp_path, FAKE_CUDA=str(planted.FAKE),
        options=("--sync", "require", f"--sync-library={planted.FAKE}", "--sync-budget", "2", "--sync-budget-after", "4",
                 "--sync-report", str(tmp_path / "syncs.json")))
    document = valid(tmp_path / "syncs.json")
    assert counted(document) == ALL_PLANTED and document["budget"] == 2
    assert document["steps_over"] == {"training": (STEPS - 4) // 2, "gradvane": 0}
    assert [step["syncs"]["training"]["calls"] for step in steps[1:5]] == [2, 3, 2, 3]
    assert re.search(r"Step 5: 3 host syncs, budget 2: train.py:\d+ \(d2h_read, 1\)", done.stderr)


def test_attach_takes_them_as_keywords(tmp_path):
    script = running.write(tmp_path, BEGIN + f"""
    import gradvane, pathlib
    found = []
    agent = gradvane.attach(model, optimizer, sync="require", sync_budget=2, sync_budget_after=4,
                            sync_library=pathlib.Path(os.environ["FAKE_CUDA"]), sync_profiler="yield",
                            sync_threshold_us=1_000_000, sync_report=pathlib.Path("reports"))
    agent.on_incident(found.append)
    train({STEPS})
    agent.flush()
    agent.detach()
    print([(incident.kind, incident.first_step) for incident in found])
    """)
    (tmp_path / "reports").mkdir()
    done = running.python(script, cwd=tmp_path, FAKE_CUDA=str(planted.FAKE))
    (report,) = (tmp_path / "reports").iterdir()
    document = valid(report)
    assert re.fullmatch(r"syncs\.\d+\.json", report.name) and document["reason"] == "counting"
    # The copy is below the threshold.
    assert counted(document) == [("d2h_read", 1.0), ("d2h_read", 0.5)]
    assert done.stdout == "[]\n" and document["most_in_step"]["calls"] == 2


def test_the_metrics_of_a_run_have_the_planted_kinds_while_it_runs(tmp_path):
    script = running.write(tmp_path, BEGIN + ASK + """
    train(12)
    # They are exported once a second, perhaps in the middle of the training.
    print(ask("/metrics", lambda text: "} 18" in text and "} 12" in text))
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    found = dict(re.findall(r'^gradvane_host_syncs_total\{[^}]*kind="(\w+)",origin="training"[^}]*\} (\S+)$',
                            done.stderr, re.MULTILINE))
    assert {kind: float(value) for kind, value in found.items() if float(value)} == {"d2h_read": 18, "pageable_suspect": 12}
    assert 'source="shared"' in done.stderr


def test_an_agent_that_comes_before_the_driver_shares_the_ledger_that_the_driver_brings(tmp_path):
    script = running.write(tmp_path, BEGIN.replace('"FAKE_DRIVER" in os.environ', "False") + f"""
    import gradvane
    gradvane.attach()
    fake, cuda = cuda, type("Nothing", (), dict.fromkeys(("fake_item", "fake_pageable_copy"), lambda *_: 0))
    train(4)
    cuda = fake
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    cuda.fake_synchronize(4000)
    train({STEPS})
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    (document,) = documents(done)
    assert (document["source"], document["reason"], document["gaps"]) == ("shared", "counting", 0)
    calls = {site["kind"]: site["calls"] for site in document["sites"]}
    assert calls["device"] == 1 and calls["pageable_suspect"] == STEPS  # from the first call on
    assert document["steps"] >= STEPS


def test_where_the_agent_cannot_start_the_injected_library_reports(tmp_path):
    script = running.write(tmp_path, TRAINING)
    # An address of nobody's: found out when all the rest of the agent is there.
    done = syncs("--", sys.executable, script, cwd=tmp_path, GRADVANE_ADDRESS="203.0.113.1")
    assert done.stdout.startswith("trained ")
    assert [(row.kind, row.calls, row.per_step) for row in rows(done.stderr)] == [
        ("d2h_read", STEPS, None), ("pageable_suspect", STEPS - 1, None), ("d2h_read", STEPS // 2, None)]


GATE = """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    print("gate", getenv(b"KINETO_USE_DAEMON"))
"""


@pytest.mark.parametrize("way", ["injected", "agent"])
def test_pytorchs_profiler_works_inside(tmp_path, way):
    script = running.write(tmp_path, BEGIN + f"""
    train(2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train({STEPS - 2})
    print("aten::linear" in {{event.key for event in profiler.key_averages()}})
    """ + GATE)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path, way=way)
    assert "True\ngate None\n" in done.stderr
    (document,) = documents(done)
    assert document["gaps"] == 1 and document["source"] in ("cupti", "shared")  # it came back


PROFILED = """
    def profiler(enabled=True):
        return torch.autograd.profiler.profile(enabled=enabled)
"""


def test_a_profiler_alone_starts_no_agent(tmp_path):
    script = running.write(tmp_path, BEGIN + PROFILED + """
    from gradvane import _agent, _hooks
    with torch.no_grad(), profiler(), profiler(enabled=False):
        model(torch.ones(2, 4))
    print(_agent.live(), len(_hooks._profilers))
    """)
    steps, done = running.watched(script, cwd=tmp_path, **planted.ways("agent"))
    assert (steps, done.stdout) == ([], "None 0\n") and "watching" not in done.stderr


def test_an_agent_that_comes_while_a_profiler_runs_yields_to_it(tmp_path):
    script = running.write(tmp_path, BEGIN + PROFILED + ASK + """
    import json
    def reason(wanted):
        return json.loads(ask("/api/v1/syncs", lambda text: f'"reason":"{wanted}"' in text.replace(" ", "")))["reason"]
    with profiler():
        train(2)
        inside = reason("yielded")
        with profiler(enabled=False):
            train(2)
        inside_still = reason("yielded")
    train(2)
    print(inside, inside_still, reason("counting"))
    """)
    _, done = running.watched(script, cwd=tmp_path, **planted.ways("agent"))
    assert done.stdout == "yielded yielded counting\n", done.stderr


@pytest.mark.parametrize("rule", ["yield", "share", "gate"])
def test_the_other_rules_about_the_profiler_hold_where_the_ledger_is_injected(tmp_path, rule):
    script = running.write(tmp_path, BEGIN + """
    train(12)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        train(2)
    train(12)
    """ + GATE)
    done = syncs("--json", "--budget", 3, "--fail", "--", sys.executable, script, cwd=tmp_path, check=False,
                 GRADVANE_SYNC_PROFILER=rule)
    (document,) = documents(done)
    # The fake CUPTI is too old to share: then the profiler is told as if nobody had asked to.
    told = rule != "yield"
    assert document["reason"] == ("gated" if told else "counting")
    assert ("gate b'1'" if told else "gate None") in done.stderr
    # What the profiler had for itself nobody can hold to a budget.
    assert (document["gaps"], done.returncode) == ((1, 3) if rule == "yield" else (0, 0))


SWITCHES = [{"GRADVANE_SYNC": "off"}, {"GRADVANE": "off"}]


@pytest.mark.parametrize("switch", SWITCHES)
def test_switched_off_nothing_is_counted_and_said_so(tmp_path, switch):
    script = running.write(tmp_path, TRAINING + "    print(cuda.fake_is_subscribed(), 'CUDA_INJECTION64_PATH' in os.environ)")
    done = syncs("--", sys.executable, script, cwd=tmp_path, **switch)
    (setting,) = [f"{name}={value}" for name, value in switch.items()]
    assert done.stderr == f"gradvane syncs: host syncs were not counted: {setting}\n"
    assert done.stdout.endswith("0 False\n")


TELL = ASK + """
    import json
    status = json.loads(ask("/api/v1/status", lambda text: "no_cupti" in text))
    print(status["syncs"], 'reason="no_cupti"' in ask("/metrics", lambda text: "no_cupti" in text))
    print("gradvane_host_syncs_total" in ask("/metrics", lambda text: True))
"""


@pytest.mark.parametrize("broken", ["/nonexistent/libcupti.so.13", "garbage", "wrong"])
def test_a_libcupti_that_is_none_leaves_training_unharmed_and_is_told(tmp_path, broken):
    (tmp_path / "garbage").write_bytes(b"no library at all")
    library = {"garbage": str(tmp_path / "garbage"), "wrong": str(planted.LIBRARY)}.get(broken, broken)
    script = running.write(tmp_path, CUDA + TRAINING)
    extra = {**planted.ways("injected"), "GRADVANE_SYNC_LIBRARY": library}
    plain = running.python(script, cwd=tmp_path, **extra)
    script = running.write(tmp_path, CUDA + TRAINING + TELL)
    steps, done = running.watched(script, cwd=tmp_path, **extra)
    lines = done.stdout.splitlines()
    assert lines[0] == plain.stdout.strip() and len(steps) == STEPS  # the same weights
    assert lines[1:] == ["{'source': 'none', 'reason': 'no_cupti'} True", "False"]
    assert not any("syncs" in step for step in steps)
    done = syncs("--", sys.executable, script, cwd=tmp_path, **extra)
    assert re.search(r"train, pid \d+: host syncs were not counted: there is no libcupti to count them with \(.+\)",
                     done.stderr)


def test_an_agent_that_requires_a_libcupti_does_not_start_without(tmp_path):
    script = running.write(tmp_path, TRAINING)
    extra = {**planted.ways("injected"), "GRADVANE_SYNC_LIBRARY": "/nonexistent/libcupti.so.13"}
    steps, done = running.watched(script, cwd=tmp_path, options=("--sync", "require"), **extra)
    said = "this run is not watched: sync = require: host syncs cannot be counted (no_cupti: "
    assert steps == [] and done.stdout.startswith("trained ") and said in done.stderr
    _, done = running.watched(script, cwd=tmp_path, options=("--require", "--sync", "require"), check=False, **extra)
    assert done.returncode == 3 and done.stdout == "" and said in done.stderr
    source = BEGIN + """
    import gradvane
    try:
        gradvane.attach(model, optimizer, sync="require")
    except gradvane.GradvaneError as error:
        print(error)
    train(2)
    """
    done = running.python(running.write(tmp_path, source), cwd=tmp_path, **extra)
    assert done.stdout.startswith("sync = require: host syncs cannot be counted (no_cupti: /nonexistent/")
    assert done.stdout.endswith("; set sync = auto to train without\n")
