"""A training with Gradvane, Prometheus and Alertmanager beside it, wired to the shipped rules, until Ctrl-C.

    . .deps/env.sh && "$GRADVANE_VENV_PYTHON" scripts/demo_stack.py     (make stack)

Everything listens on 127.0.0.1 at free ports, and is gone at the end. What follows -- is the training instead of
the demo's: any program that is watched by Gradvane and honours GRADVANE_RUN_DIR.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from alert_rules.files import rule_files  # noqa: E402
from alert_rules.windows import Settings, windows_of  # noqa: E402
from stack.processes import Program, wait_for  # noqa: E402
from stack.servers import Servers, address_of, endpoints_in  # noqa: E402
from stack.webhook import Webhook  # noqa: E402

SHIPPED = ROOT / "dashboards" / "alerts"
RECEIVERS = "http://127.0.0.1:9095"
"""as the shipped example of Alertmanager's configuration has it"""


def rules_for(windows: str, folder: Path) -> list[Path]:
    """The shipped files, or others with the windows asked for."""
    if windows == "production":
        return sorted(SHIPPED.glob("*.yaml"))
    for name, text in rule_files(Settings(windows_of(windows))).items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(folder.glob("gradvane-*.yaml"))


def alertmanager_config(folder: Path, hook: str) -> Path:
    """The shipped example, with our receiver in place of its placeholders."""
    text = (ROOT / "dashboards" / "alertmanager" / "alertmanager.yaml").read_text(encoding="utf-8")
    path = folder / "alertmanager.yaml"
    path.write_text(text.replace(RECEIVERS, hook), encoding="utf-8")
    return path


def watch(servers: Servers, run_dir: Path, training: Program, hook: Webhook) -> None:
    """Keeps the list of targets as the run directory has it, and prints what the webhook is told."""
    printed = 0
    while training.is_alive():
        live = [endpoint for endpoint in endpoints_in(run_dir) if endpoint["state"] not in ("finished", "failed")]
        servers.targets.write(address_of(endpoint) for endpoint in live)
        notices = hook.notices()
        for notice in notices[printed:]:
            text = notice.annotations.get("description", "") if notice.status == "firing" else ""
            print(f"{notice.status:8}  {notice.labels['alertname']}  {text}", flush=True)
        printed = len(notices)
        time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="where char_gpt was built")
    parser.add_argument("--windows", default="production", help="of the rules: production, short, or a JSON file")
    parser.add_argument("--interval", default="5s", help="of scrapes and rules")
    parser.add_argument("training", nargs="*", help="after --: a training instead of the demo's")
    arguments = parser.parse_args()
    programs = os.environ.get("GRADVANE_SERVERS")
    if not programs:
        parser.error("GRADVANE_SERVERS is not set: source .deps/env.sh")
    command = arguments.training or [arguments.build / "bin" / "char_gpt", "--size", "small", "--steps", "1000000",
                                     "--no-eval", "--sample", "0", "--threads", "1"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradvane-stack-")))
        run_dir = folder / "run"
        hook = stack.enter_context(Webhook())
        servers = stack.enter_context(Servers(
            Path(programs), folder / "servers", rules_for(arguments.windows, folder),
            alertmanager_config(folder, hook.url), arguments.interval))
        environment = {"GRADVANE_PORT": "0", **os.environ, "GRADVANE_RUN_DIR": str(run_dir)}
        training = stack.enter_context(Program("the training", command, folder / "training.log", environment))
        wait_for(lambda: endpoints_in(run_dir), "the training's endpoint", 120, training)
        print(f"training      {endpoints_in(run_dir)[0]['url']}")
        print(f"Prometheus    {servers.prometheus_url}/alerts")
        print(f"Alertmanager  {servers.alertmanager_url}")
        print(f"logs          {folder}")
        print("Ctrl-C ends all of it.", flush=True)
        watch(servers, run_dir, training, hook)
        print("The training has ended:", training.said())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
