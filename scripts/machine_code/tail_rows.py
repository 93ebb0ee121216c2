"""What a block has to wait for before its first data and after its last: at 64 MB half of the time is neither reading nor adding.

Three stretches of the kernel, by the two tickets that blocks take (atomic additions whose result is used): "start", up to
the first load of data; "join", from a tensor's ticket to that of the launch; "end", from there on. Of each the most that any
way through it has, with each loop once:

- waits: times that an instruction needs what a load or a ticket brings. A warp issues in order, so loads that it has begun
  before come in the same time. Loads of a loop of records are one wait for each round of it.
- fences and barriers.
"""

import re

from sass_paths import Code, Instruction, SassError, blocks_of, dominators

FIELDS = ("waits", "barriers", "device_fences", "system_fences")
STRETCHES = ("start", "join", "end")
Counts = tuple[int, ...]  # of FIELDS


def filled(it: Instruction) -> set[int]:
    """Registers that come from memory."""
    operands = [operand.strip() for operand in it.operands.split(",")]
    if it.name in ("LDG", "LD"):
        first = operands[0]
    elif it.name in ("ATOMG", "ATOM"):
        first = operands[1] if operands[0].startswith("P") else operands[0]
    else:
        return set()
    found = re.match(r"R(\d+)", first)  # RZ: it is not looked at
    parts = it.opcode.split(".")
    width = 4 if "128" in parts else 2 if "64" in parts else 1
    return set(range(int(found[1]), int(found[1]) + width)) if found else set()


def is_ticket(it: Instruction) -> bool:
    return it.name in ("ATOMG", "ATOM") and bool(filled(it))


def fences_and_barriers(it: Instruction) -> Counts:
    is_fence, is_system = it.name == "MEMBAR", "SYS" in it.opcode.split(".")
    return 0, int(it.name == "BAR"), int(is_fence and not is_system), int(is_fence and is_system)


def plus(a: Counts, b: Counts) -> Counts:
    return tuple(x + y for x, y in zip(a, b))


class Ways:
    """All ways through the code of one kernel that pass no jump back."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._blocks = blocks_of(code, 0)
        passed = dominators(self._blocks, 0)
        self._next = {head: [to for to in block.next if to not in passed[head]] for head, block in self._blocks.items()}
        self.tickets = sorted(i for block in self._blocks.values() for i in range(block.begin, block.end)
                              if is_ticket(code.instructions[i]))

    def most(self, begin: int, ends) -> Counts:
        """From an instruction to the first for which `ends` is true, by its place; to where the kernel exits, if that is so
        of an EXIT. Of each number the most that a way has."""
        known: dict[tuple[int, int, frozenset[int]], Counts | None] = {}

        def from_place(head: int, at: int, outstanding: frozenset[int]) -> Counts | None:
            key = head, at, outstanding
            if key not in known:
                known[key] = walk(head, at, set(outstanding))
            return known[key]

        def walk(head: int, at: int, outstanding: set[int]) -> Counts | None:
            counts: Counts = (0,) * len(FIELDS)
            for i in range(at, self._blocks[head].end):
                it = self._code.instructions[i]
                if i != begin and ends(i, it):
                    return counts
                if it.name == "EXIT" and not it.predicate:
                    return None  # this way does not come there
                if it.registers() & outstanding:
                    counts, outstanding = plus(counts, (1, 0, 0, 0)), set()
                outstanding |= filled(it)
                counts = plus(counts, fences_and_barriers(it))
            found = [rest for to in self._next[head] if (rest := from_place(to, to, frozenset(outstanding))) is not None]
            return plus(counts, tuple(map(max, *found)) if len(found) > 1 else found[0]) if found else None

        head = next(head for head, block in self._blocks.items() if block.begin <= begin < block.end)
        result = from_place(head, begin, frozenset())
        if result is None:
            raise SassError(f"{self._code.name}: no way from instruction {begin} comes to where it should")
        return result


def tail_rows(code: Code) -> dict[str, dict]:
    ways = Ways(code)
    if len(ways.tickets) != 2:
        raise SassError(f"{code.name}: not two tickets, but {len(ways.tickets)}")
    of_tensor, of_launch = ways.tickets
    found = {"start": ways.most(0, lambda _, it: it.is_wide_load),
             "join": ways.most(of_tensor, lambda i, _: i == of_launch),
             "end": ways.most(of_launch, lambda _, it: it.name == "EXIT" and not it.predicate)}
    return {f"tail {stretch}": dict(zip(FIELDS, found[stretch])) for stretch in STRETCHES}
