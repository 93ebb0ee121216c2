"""`gradvane completions`: every word and option of the command, in a real bash; and `gradvane run --help`."""

import shutil
import subprocess

import pytest
import running

from gradvane.cli import completions
from gradvane.cli.main import WORDS
from gradvane.cli.tables.options import GROUPS
from gradvane.options import KEYS


def completed(folder, *words, runs=""):
    """What bash offers for the last word."""
    (folder / "names").write_text(runs)
    (folder / "gradvane").write_text(f"#!/bin/sh\ncat '{folder}/names'\n")
    (folder / "gradvane").chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in words)
    program = (f"PATH={folder}:$PATH\n{completions.script('bash')}\nCOMP_WORDS=(gradvane {quoted})\nCOMP_CWORD={len(words)}\n"
               "_gradvane\n((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"\ntrue\n")
    done = subprocess.run(["bash", "--norc", "-eu", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_bash_completes_every_command_option_and_run(tmp_path):
    assert completed(tmp_path, "") == [*WORDS, "--help", "--version"]
    assert completed(tmp_path, "sta") == ["status"]
    assert completed(tmp_path, "run", "--step-") == ["--step-log", "--step-log-max-bytes"]
    assert completed(tmp_path, "run", "--quiet", "--req") == ["--require"]
    assert completed(tmp_path, "status", "--") == ["--help", "--rank", "--dir", "--json", "--check"]
    assert completed(tmp_path, "top", "--e") == ["--every"]
    assert completed(tmp_path, "open", "g", runs="gpt\ntrain\n") == ["gpt"]
    assert completed(tmp_path, "completions", "") == ["bash", "zsh"]
    assert completed(tmp_path, "replay", "a") == [], "bash completes names of files itself"
    assert completed(tmp_path, "none", "a") == []


def test_a_run_of_any_name_is_offered_and_nothing_of_it_is_evaluated(tmp_path):
    made = tmp_path / "made"
    names = f"my run\n$(touch {made})\n`touch {made}`\n*\n"
    assert completed(tmp_path, "top", "my", runs=names) == ["my\\ run"]
    assert len(completed(tmp_path, "top", "", runs=names)) == 4
    assert not made.exists()


def test_what_is_offered_is_what_the_commands_take(tmp_path):
    for name in WORDS:
        shown = running.python("-m", "gradvane", name, "--help", cwd=tmp_path, COLUMNS="200").stdout
        for option in completions.options_of(name):
            assert option in shown, (name, option)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh on this machine")
def test_zsh_takes_its_script():
    done = subprocess.run(["zsh", "-f", "-n", "-c", completions.script("zsh")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_zsh_loads_its_emulation_of_bash_first():
    assert completions.script("zsh").index("bashcompinit") < completions.script("zsh").index("complete -o")


def test_another_shell_is_refused(tmp_path):
    done = running.python("-m", "gradvane", "completions", "fish", cwd=tmp_path, check=False)
    assert done.returncode == 2 and "invalid choice: 'fish'" in done.stderr


def test_run_help_has_every_option_in_its_group(tmp_path):
    lines = running.python("-m", "gradvane", "run", "--help", cwd=tmp_path).stdout.splitlines()
    assert [line for line in lines if line.startswith("  --") and " " not in line.strip()] == [
        f"  --{key.replace('_', '-')}" for key in KEYS]
    assert [f"{title}:" in lines for title in GROUPS] == [True] * len(GROUPS)
    assert all(len(line) <= 100 for line in lines)
    at = lines.index("  --stall-seconds")
    assert " ".join(line.strip() for line in lines[at + 1:at + 3]).startswith(
        "No step for this long, and for 20 median steps: the run counts as stalled. 0: never. Allowed:")


def test_no_torch_is_imported_for_the_words(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    for words in (("run", "--help"), ("completions", "bash"), ("ls",), ("sd",), ("open", "127.0.0.1:9")):
        running.python("-m", "gradvane", *words, cwd=tmp_path, BROWSER="", DISPLAY="", WAYLAND_DISPLAY="")
