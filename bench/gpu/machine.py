"""What the numbers were measured on: device, driver, clocks, versions, commit."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from process import ROOT

BUNDLE = ROOT / ".deps" / "gpu-bundle"
CLOCKS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw", "power.limit",
          "temperature.gpu")


def ask(*command):
    """What a command prints, or nothing where it is not there or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def nvidia_smi(fields):
    """Of the first device; empty where there is no nvidia-smi."""
    text = ask("nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    values = [value.strip() for value in text.splitlines()[0].split(",")] if text else []
    return dict(zip(fields, values)) if len(values) == len(fields) else {}


def clocks():
    """MHz, watts and degrees now; they are looked at and never set."""
    return nvidia_smi(CLOCKS)


def bundle():
    """What make gpu-bundle wrote about itself."""
    path = BUNDLE / "about.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def torch_facts():
    import torch
    facts = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": None, "architecture": None}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts |= {"device": properties.name, "architecture": f"{properties.major}{properties.minor}",
                  "multiprocessors": properties.multi_processor_count,
                  "memory_bytes": properties.total_memory,
                  "l2_bytes": getattr(properties, "L2_cache_size", None)}
    return facts


def commit():
    """That of the build that runs, where it says so; where the tree came without its history, the one that the bundle was
    made at, and marked so."""
    built = Path(os.environ.get("GRADVANE_BUILD_DIR", "")) / "commit"  # of bench/gpu/prebuilt.py
    if os.environ.get("GRADVANE_BUILD_DIR") and built.is_file():
        return built.read_text().strip()
    here = ask("git", "describe", "--always", "--dirty", "--abbrev=12")
    return here or bundle().get("commit", "unknown") + " (of the bundle)"


def sources_hash(folder):
    digest = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def facts():
    smi = nvidia_smi(("name", "driver_version"))
    about = torch_facts()
    about["device"] = about["device"] or smi.get("name")
    return about | {
        "driver": smi.get("driver_version"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "cores": len(os.sched_getaffinity(0)),
        "compiler": (ask("c++", "--version").splitlines() or [None])[0],
        "cmake": (ask("cmake", "--version").splitlines() or [None])[0],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "kernels_sha256": sources_hash("kernels"),
    }


def results_folder(about):
    """$OUT where the machine gives one, else a folder for this kind of device."""
    if os.environ.get("OUT"):
        return ROOT / os.environ["OUT"]  # an absolute path stays what it is
    kind = re.sub(r"[^a-z0-9]+", "-", (about["device"] or "no gpu").lower()).strip("-")
    return ROOT / "bench" / "results" / kind


def find_tool(name, cuda_root):
    """On the PATH, or where a toolkit keeps it."""
    places = [shutil.which(name), cuda_root / "bin" / name, cuda_root / "compute-sanitizer" / name]
    return next((str(place) for place in places if place and os.access(place, os.X_OK)), None)
