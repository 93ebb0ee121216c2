"""What leaves libgradvane.so is what tests/exported_symbols.txt lists, no more and no less.

We share a process with torch and with whatever the user links: a stray symbol of ours, of
prometheus-cpp or of a template can take the place of theirs. After a wanted change of the interface:

    GRADVANE_LIBRARY=build/release/lib/libgradvane.so python tests/exported_symbols_test.py --write
"""

import os
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).with_name("exported_symbols.txt")


def exported(library: str) -> list[str]:
    """Demangled names, without addresses; a constructor or destructor has several entries, one name."""
    done = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True,
                          capture_output=True, text=True)
    names = set()
    for line in done.stdout.splitlines():
        _, kind, name = line.split(" ", 2)
        if kind != "A":  # the version node itself
            names.add(name)
    return sorted(names)


def test_the_library_exports_the_list():
    there = exported(os.environ["GRADVANE_LIBRARY"])
    listed = LIST.read_text(encoding="utf-8").splitlines()
    assert there, "nothing is exported: is the public interface marked GRADVANE_API?"
    assert sorted(set(there) - set(listed)) == [], "exported, and not listed"
    assert sorted(set(listed) - set(there)) == [], "listed, and not exported"


def test_only_our_namespace_is_exported():
    strangers = [name for name in exported(os.environ["GRADVANE_LIBRARY"]) if "gradvane::" not in name]
    assert strangers == []


if __name__ == "__main__" and "--write" in sys.argv:
    LIST.write_text("\n".join(exported(os.environ["GRADVANE_LIBRARY"])) + "\n", encoding="utf-8")
