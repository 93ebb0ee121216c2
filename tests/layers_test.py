"""The layer table, held over our own #include lines (DESIGN.md, "Layers").

Folder = CMake target = layer. A link line can hide a bad edge (a header needs no linking), so the
includes themselves are read.
"""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[1]))
SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# What each folder may include besides itself.
ALLOWED = {
    "kernels": set(),
    "record": set(),
    "collectors": {"kernels", "record"},
    "detectors": {"record"},
    "exporters": {"record"},
    "agent": {"kernels", "record", "collectors", "detectors", "exporters"},
    "inject": {"record", "collectors", "exporters"},  # the ledger for programs that know nothing of us
    # A face of the agent, a source of parameters, and the reader of recordings, which knows no agent.
    "python": {"agent", "collectors", "exporters", "record"},
    "examples": {"agent"},  # the public header alone, like any other user
    # They look inside every layer.
    "bench": {"kernels", "record", "collectors", "detectors", "exporters", "agent", "examples"},
    "tests": {"kernels", "record", "collectors", "detectors", "exporters", "agent", "examples",
              "bench", "inject"},
}

# The folders inside a layer ("" is the layer's own folder), and what each may include of the others. A layer
# that is not here has no such folders, or leaves them free.
ROOMS = {
    "agent": {
        "include": set(),
        "public": {"include", "ranks"},
        "ranks": {"include"},
        "governor": {"include", "ranks"},
        "step": {"include", "public", "governor", "ranks"},
        "outlets": {"include", "public"},
        "process": set(),
        "worker": {"include", "public", "governor", "outlets", "process", "ranks"},
        "snapshots": {"include", "governor"},
        "": {"include", "public", "governor", "ranks", "snapshots", "step", "worker"},
    },
    "collectors": {
        "": set(),
        "sync_ledger": set(),
        "steps": {"sync_ledger"},
        "tensors": {"steps", "sync_ledger"},
        "model": {"", "steps", "tensors"},
    },
    "exporters": {
        "": set(),
        "files": set(),
        "recording": set(),
        "text": set(),
        "board": {""},
        "json": {""},
        "alert_push": {"", "client", "files", "http"},
        "client": {"http"},
        "http": {"", "files"},
        "history": {"", "board"},
        "prometheus": {"", "http", "text"},
        "recorder": {"", "files", "recording"},
        "replay": {"", "json", "recording", "text"},
        "step_log": {"", "files", "json"},
        "page": {"", "board", "http", "json", "text"},
        "web": {"", "alert_push", "files", "http"},
        "api": {"", "board", "files", "history", "http", "json", "page", "prometheus"},
        "node": {"", "api", "client", "files", "http", "json", "prometheus"},
    },
}
# The agent writes recordings and never reads one.
READERS_OF_RECORDINGS = {"exporters", "python", "tests"}

# The ledger is injected into programs that have no torch. The others know what was read, and not what from.
WITHOUT_TORCH = ("collectors/sync_ledger/", "collectors/steps/", "agent/governor/", "agent/ranks/", "agent/public/", "agent/outlets/",
                 "agent/process/", "agent/worker/", "inject/")
# Those that include torch are no business of theirs either.
WITH_TORCH = ("collectors/tensors/", "collectors/model/", "agent/snapshots/", "agent/step/")
WITHOUT_CUDA = ("collectors/sync_ledger/", "inject/")

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"^(cuda|cub/|cooperative_groups|cupti|nvtx3/|thrust/)")
PROMETHEUS_AND_BOOST = re.compile(r"^(prometheus|boost)/")
THREADS_AND_IO = re.compile(
    r"^(thread|mutex|condition_variable|future|fstream|iostream|ostream|istream|cstdio|stdio\.h)$")

TORCH_FOLDERS = {"examples", "tests", "bench"}
# The files of the layers that know torch's own tensors; all else asks collectors/tensors/tensor.hpp. Python's package
# is built without any of them.
TORCH_FILES = {"collectors/tensors/tensor.hpp", "collectors/tensors/tensor_libtorch.cpp",
               "collectors/tensors/device_memory_cuda.cpp", "collectors/model/libtorch_source.cpp",
               "agent/step/gradient_clip.cpp", "agent/agent.cpp", "agent/include/gradvane/agent.hpp",
               "agent/include/gradvane/torch_store.hpp",
               # What belongs to a state is torch's to say; Python's package has its own.
               "agent/snapshots/copies.cpp", "agent/snapshots/streams.hpp", "agent/snapshots/streams.cpp",
               "agent/snapshots/state_tensors.hpp", "agent/snapshots/state_tensors.cpp",
               "agent/snapshots/training_state.hpp", "agent/snapshots/training_state.cpp"}
# Folder: headers from outside that it must never see, and why.
FORBIDDEN = {
    "kernels": [(THREADS_AND_IO, "no threads and no I/O here"),
                (PROMETHEUS_AND_BOOST, "no exporter here")],
    "record": [(CUDA, "only the standard library here"),
               (PROMETHEUS_AND_BOOST, "only the standard library here")],
    "collectors": [(PROMETHEUS_AND_BOOST, "collectors export nothing")],
    "detectors": [(CUDA, "records are all that is known here"),
                  (PROMETHEUS_AND_BOOST, "records are all that is known here"),
                  (THREADS_AND_IO, "pure functions with state: no threads and no I/O")],
    "exporters": [(CUDA, "records are all that is known here")],
}

PUBLIC_HEADER = "agent/include/gradvane/agent.hpp"
PUBLIC_INCLUDES = ("gradvane/agent.hpp", "gradvane/options.hpp", "gradvane/ranks.hpp", "gradvane/torch_store.hpp")


def layer_files(root: Path):
    for folder in ALLOWED:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                yield folder, path


def room_of(name: str) -> str:
    parts = name.split("/")
    return parts[1] if len(parts) > 2 else ""


def violations_in(root: Path) -> list[str]:
    """Every line that breaks the table, as 'file: include: why'."""
    found = []
    for folder, path in layer_files(root):
        name = path.relative_to(root).as_posix()
        for quote, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            why = broken_rule(root, folder, name, quote, target)
            if why:
                found.append(f"{name}: {target}: {why}")
    return found


def broken_rule(root: Path, folder: str, name: str, quote: str, target: str) -> str | None:
    if TORCH.match(target) and folder not in TORCH_FOLDERS and name not in TORCH_FILES:
        return "torch is asked through collectors/tensors/tensor.hpp"
    if name.startswith(WITHOUT_TORCH) and target.startswith(WITH_TORCH):
        return "what includes torch is not seen here"
    if name.startswith(WITHOUT_CUDA) and (CUDA.match(target) or target.startswith("kernels/")):
        return "the ledger is built without CUDA and without the pass"
    for pattern, why in FORBIDDEN.get(folder, []):
        if pattern.match(target):
            return why
    first = target.split("/")[0]
    ours = first in ALLOWED or target.startswith("gradvane/")
    if quote == "<":
        if ours and target not in PUBLIC_INCLUDES:
            return "our own headers are included with quotes"
    elif not ours:
        if TORCH.match(target) or not (root / name).parent.joinpath(target).exists():
            return "quotes are for our own headers"
        return "includes are relative to the root"
    if not ours:
        return None
    if name.removeprefix("agent/include/") in PUBLIC_INCLUDES:
        return None if target in PUBLIC_INCLUDES else "the installed header includes no other folder"
    if target in PUBLIC_INCLUDES:
        users = {"agent", "python", "examples", "tests", "bench"}
        return None if folder in users else "nobody upstream includes agent"
    if folder == "examples" and first == "agent":
        return "only the public header, <gradvane/agent.hpp>"
    if first != folder and first not in ALLOWED[folder]:
        return f"{folder} may not include {first}"
    if first == "exporters" and room_of(target) == "replay" and folder not in READERS_OF_RECORDINGS:
        return "recordings are read by tools, not by the agent"
    if first == folder and folder in ROOMS:
        ours, theirs = room_of(name), room_of(target)
        if theirs not in ROOMS[folder][ours] | {ours}:
            return f"{folder}/{ours} may not include {folder}/{theirs}"
    if not (root / target).exists():
        return "no such file"
    return None


def test_every_include_line_keeps_the_table():
    assert violations_in(ROOT) == []


def test_there_is_something_to_check():
    assert sum(1 for _ in layer_files(ROOT)) > 5


# The control: each of these must be seen, or the test above proves nothing.
@pytest.mark.parametrize(
    "path, line, why",
    [
        ("kernels/a.hpp", '#include "record/step_record.hpp"', "kernels may not include record"),
        ("kernels/a.cu", "#include <ATen/ATen.h>", "torch is asked"),
        ("kernels/a.cuh", "#include <thread>", "no threads"),
        ("kernels/a.cpp", "#include <fstream>", "no threads and no I/O"),
        ("kernels/a.cpp", "#  include <iostream>", "no threads and no I/O"),
        ("record/a.hpp", "#include <cuda_runtime_api.h>", "only the standard library"),
        ("record/a.hpp", '#include "kernels/chunk.hpp"', "record may not include kernels"),
        ("exporters/a.cpp", '#include "agent/config.hpp"', "exporters may not include agent"),
        ("exporters/a.cpp", "#include <torch/torch.h>", "torch is asked"),
        ("exporters/board/a.cpp", '#include "exporters/api/api.hpp"', "exporters/board may not include"),
        ("exporters/a.cpp", '#include "exporters/http/query.hpp"', "exporters/ may not include"),
        ("agent/a.cpp", '#include "exporters/replay/story.hpp"', "read by tools"),
        ("detectors/a.cpp", '#include "exporters/http.hpp"', "detectors may not include exporters"),
        ("detectors/a.cpp", "#include <mutex>", "pure functions"),
        ("collectors/a.cpp", '#include "exporters/http.hpp"', "collectors may not include exporters"),
        ("collectors/a.cpp", "#include <gradvane/agent.hpp>", "nobody upstream"),
        ("collectors/sync_ledger/a.cpp", "#include <c10/core/Device.h>", "torch is asked"),
        ("collectors/steps/a.hpp", "#include <ATen/core/Tensor.h>", "torch is asked"),
        ("collectors/tensors/cpu_reader.cpp", "#include <ATen/Parallel.h>", "torch is asked"),
        ("python/native/a.cpp", "#include <torch/csrc/autograd/python_variable.h>", "torch is asked"),
        ("agent/worker/a.cpp", '#include "collectors/model/model_watch.hpp"', "includes torch"),
        ("agent/outlets/a.cpp", '#include "collectors/model/model_watch.hpp"', "includes torch"),
        ("agent/outlets/a.cpp", '#include "agent/worker/worker.hpp"', "agent/outlets may not include"),
        ("collectors/tensors/a.cpp", '#include "collectors/model/model_watch.hpp"', "may not include"),
        ("collectors/sync_ledger/a.cpp", "#include <cupti.h>", "built without CUDA"),
        ("agent/a.cpp", '#include "tests/support/fake.hpp"', "agent may not include tests"),
        ("agent/a.cpp", '#include "config.hpp"', "relative to the root"),
        ("agent/a.cpp", '#include "boost/asio.hpp"', "quotes are for our own headers"),
        ("agent/a.cpp", "#include <record/step_record.hpp>", "with quotes"),
        ("agent/a.cpp", '#include "record/gone.hpp"', "no such file"),
        ("examples/a.cpp", '#include "agent/worker/worker.hpp"', "only the public header"),
        ("examples/a.cpp", '#include "kernels/chunk.hpp"', "examples may not include kernels"),
        (PUBLIC_HEADER, '#include "record/step_record.hpp"', "no other folder"),
    ],
)
def test_a_bad_include_is_seen(tmp_path, path, line, why):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    for target in ("record/step_record.hpp", "kernels/chunk.hpp", "agent/config.hpp"):
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_text("#pragma once\n")
    file.write_text(f"#pragma once\n{line}\n")
    found = violations_in(tmp_path)
    assert len(found) == 1 and why in found[0], found


@pytest.mark.parametrize(
    "path, line",
    [
        ("kernels/a.cu", "#include <cub/cub.cuh>"),
        ("kernels/a.hpp", '#include "kernels/chunk.hpp"'),
        ("collectors/tensors/tensor_libtorch.cpp", "#include <ATen/core/Tensor.h>"),
        ("agent/a.cpp", "#include <gradvane/agent.hpp>"),
        ("agent/a.cpp", '#include "record/step_record.hpp"'),
        ("examples/a.cpp", "#include <gradvane/agent.hpp>"),
        (PUBLIC_HEADER, "#include <ATen/core/Tensor.h>"),
        (PUBLIC_HEADER, "#include <gradvane/options.hpp>"),
        ("kernels/a.cpp", "// #include <thread> would break the table"),
    ],
)
def test_a_good_include_is_left_alone(tmp_path, path, line):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    for target in ("record/step_record.hpp", "kernels/chunk.hpp"):
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_text("#pragma once\n")
    file.write_text(f"#pragma once\n{line}\n")
    assert violations_in(tmp_path) == []
