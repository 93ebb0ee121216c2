"""gradvane completions: a script with which a shell completes the words of the command."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterable

from gradvane.cli.main import WORDS
from gradvane.cli.telling import write

# A run may have any name. Nothing of it is evaluated: `compgen -W` would.
_BASH = """\
_gradvane() {
  local word=${COMP_WORDS[COMP_CWORD]} words="" line
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words="@WORDS@"
  else
    case ${COMP_WORDS[1]} in
@CASES@
    esac
  fi
  # What nothing here completes is completed as the name of a file.
  while IFS= read -r line; do
    [[ -n $line && $line == "$word"* ]] && COMPREPLY+=("$(printf %q "$line")")
  done <<< "$words"
  return 0
}
complete -o default -F _gradvane gradvane
"""
_HEAD = """\
# Completes the words of gradvane. Made by `gradvane completions SHELL`; in ~/.SHELLrc:
#   source <(gradvane completions SHELL)
"""
_ZSH = "autoload -U +X compinit bashcompinit && compinit -u && bashcompinit\n"
_SHELLS = ("bash", "zsh")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane completions",
        description="Prints a script that completes commands, options and names of live runs. For bash, add "
                    "source <(gradvane completions bash) to ~/.bashrc.",
        allow_abbrev=False,
    )
    made.add_argument("shell", choices=_SHELLS)
    return made


def main(arguments: list[str]) -> int:
    write(script(parser().parse_args(arguments).shell))
    return 0


def script(shell: str) -> str:
    cases = "\n".join(_case(name) for name in WORDS)
    text = _BASH.replace("@WORDS@", _lines([*WORDS, "--help", "--version"])).replace("@CASES@", cases)
    return _HEAD.replace("SHELL", shell) + (_ZSH if shell == "zsh" else "") + text


def _case(name: str) -> str:
    others = ""
    if WORDS[name].usage == "[RUN]":
        others = ' || words="$(gradvane ls --names 2>/dev/null)"'
    elif name == "completions":
        others = f' || words="{_lines(_SHELLS)}"'
    return f'    {name}) [[ $word == -* ]] && words="{_lines(options_of(name))}"{others} ;;'


def _lines(words: Iterable[str]) -> str:
    return "\n".join(words)


def options_of(name: str) -> list[str]:
    if name == "run":
        from gradvane.options import KEYS

        return ["--help", "--quiet", "--require", "-m", *(f"--{key.replace('_', '-')}" for key in KEYS)]
    factory = importlib.import_module(f"gradvane.cli.{WORDS[name].module}").parser
    made: argparse.ArgumentParser = factory(name) if inspect.signature(factory).parameters else factory()
    return [text for action in made._actions for text in action.option_strings]
