"""Loops and paths in what `nvdisasm -c` prints: the way of a whole warp through the machine code.

A warp whose threads agree takes one way at every branch. So BRA.DIV, which leaves for code that
handles threads that differ, is never taken here, and that code is not reached. A call of a function
comes back; ptxas for sm_80 also leaves loops by "calling" a label, which is a jump.
"""

import re
from dataclasses import dataclass, field

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),")
LABEL = re.compile(r"^(\.L_x_\d+|\$[^:\s]+):")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
TARGET = re.compile(r"`\(([^)]+)\)")
REGISTER = re.compile(r"\bR(\d+)\b")
WIDE_ADDRESS = re.compile(r"\[R(\d+)(?:\.64)?(?:\+(-?0x[0-9a-f]+|-?\d+))?\]")
# Ways to go on that nothing here follows: rather no number than a wrong one.
UNKNOWN = ("BRX", "BRXU", "JMP", "JMX", "JMXU", "RTT", "KILL")


class SassError(Exception):
    """The machine code is not of the shape that is known here."""


@dataclass(frozen=True)
class Instruction:
    predicate: str  # "P0", "!P0", or empty
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def target(self) -> str:
        found = TARGET.search(self.operands)
        return found[1] if found else ""

    @property
    def is_jump(self) -> bool:
        if self.name == "CALL":
            return self.target.startswith(".L_x_")
        return self.name == "BRA" and ".DIV" not in self.opcode

    @property
    def is_conditional(self) -> bool:
        # A branch may name its predicate before its label too: BRA P2, or BRA.U UP0.
        return bool(self.predicate or self.operands.split("`")[0].strip())

    @property
    def is_call(self) -> bool:
        """Of a function, and always."""
        return self.name == "CALL" and not self.is_jump and not self.predicate

    @property
    def is_wide_load(self) -> bool:
        return self.name == "LDG" and "128" in self.opcode.split(".")

    @property
    def is_prefetch(self) -> bool:
        return self.name == "CCTL" and any(part.startswith("PF") for part in self.opcode.split("."))

    @property
    def is_local(self) -> bool:
        return self.name in ("LDL", "STL")

    def registers(self) -> set[int]:
        return {int(number) for number in REGISTER.findall(self.operands)}


@dataclass
class Code:
    """One section: a kernel, and behind it the functions that only it calls."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def parse(text: str) -> list[Code]:
    sections: list[Code] = []
    for line in text.splitlines():
        if found := SECTION.match(line):
            sections.append(Code(found[1]))
        elif not sections:
            continue
        elif found := LABEL.match(line):
            sections[-1].labels[found[1]] = len(sections[-1].instructions)
        elif found := INSTRUCTION.match(line):
            sections[-1].instructions.append(
                Instruction(found[1] or "", found[2], found[3].strip()))
    return [code for code in sections if code.instructions]


@dataclass
class Block:
    """Instructions [begin, end) that run one after the other."""

    begin: int
    end: int
    next: list[int] = field(default_factory=list)  # where it may go on: other blocks' begin


def blocks_of(code: Code, entry: int) -> dict[int, Block]:
    """The blocks that a whole warp can reach from `entry`, by their first instruction."""
    heads = set(code.labels.values())
    blocks: dict[int, Block] = {}
    open_heads = [entry]
    while open_heads:
        head = open_heads.pop()
        if head in blocks:
            continue
        at = head
        goes_on: list[int] = []
        while True:
            if at >= len(code.instructions):
                raise SassError(f"{code.name}: the code ends in the middle of a way")
            it = code.instructions[at]
            at += 1
            if it.name in UNKNOWN:
                raise SassError(f"{code.name}: {it.opcode} is not understood here")
            if it.is_jump:
                if it.target not in code.labels:
                    raise SassError(f"{code.name}: no label {it.target}")
                goes_on = [code.labels[it.target]] + ([at] if it.is_conditional else [])
                break
            if it.name in ("EXIT", "RET"):
                goes_on = [at] if it.predicate else []
                break
            if at in heads:
                goes_on = [at]
                break
        blocks[head] = Block(head, at, goes_on)
        open_heads += goes_on
    return blocks


def dominators(blocks: dict[int, Block], entry: int) -> dict[int, set[int]]:
    """For each block those that every way from `entry` to it passes, itself included."""
    order: list[int] = []  # reverse postorder
    seen = {entry}
    stack = [(entry, iter(blocks[entry].next))]
    while stack:
        head, rest = stack[-1]
        for to in rest:
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(blocks[to].next)))
                break
        else:
            order.append(head)
            stack.pop()
    order.reverse()
    before: dict[int, list[int]] = {head: [] for head in blocks}
    for head, block in blocks.items():
        for to in block.next:
            before[to].append(head)
    result: dict[int, set[int]] = {entry: {entry}}
    changed = True
    while changed:
        changed = False
        for head in order[1:]:
            known = [result[other] for other in before[head] if other in result]
            mine = set.intersection(*known) | {head}
            if result.get(head) != mine:
                result[head] = mine
                changed = True
    return result


@dataclass
class Loop:
    code: Code
    blocks: dict[int, Block]  # all of the code's
    dominators: dict[int, set[int]]
    head: int
    latches: set[int] = field(default_factory=set)  # blocks that jump back to the head
    body: set[int] = field(default_factory=set)

    def indices(self) -> list[int]:
        return [i for head in sorted(self.body)
                for i in range(self.blocks[head].begin, self.blocks[head].end)]

    def instructions(self) -> list[Instruction]:
        return [self.code.instructions[i] for i in self.indices()]

    def paths(self, through: str = "") -> list[list[Instruction]]:
        """The ways from the head back to it that call no function: of each length one, the shortest
        first. A loop inside this one is passed at most once.
        @param through  only ways that hold an instruction of this name"""
        ways: dict[int, dict[tuple[bool, int], tuple[int, ...]]] = {}

        def from_block(head: int) -> dict[tuple[bool, int], tuple[int, ...]]:
            if head in ways:
                return ways[head]
            block = self.blocks[head]
            own = self.code.instructions[block.begin:block.end]
            holds = not through or any(it.name == through for it in own)
            found: dict[tuple[bool, int], tuple[int, ...]] = {}
            if not any(it.is_call for it in own):
                if head in self.latches:
                    found[holds, len(own)] = (head,)
                for to in block.next:
                    if to in self.body and to not in self.dominators[head]:
                        for (held, length), rest in from_block(to).items():
                            found.setdefault((holds or held, len(own) + length), (head, *rest))
            ways[head] = found
            return found

        return [[it for head in way
                 for it in self.code.instructions[self.blocks[head].begin:self.blocks[head].end]]
                for (holds, _), way in sorted(from_block(self.head).items()) if holds]


def loops(code: Code, entry: int = 0) -> list[Loop]:
    """Natural loops: a jump to a block that every way to the jump has passed. One a head."""
    blocks = blocks_of(code, entry)
    passed = dominators(blocks, entry)
    before: dict[int, list[int]] = {head: [] for head in blocks}
    for head, block in blocks.items():
        for to in block.next:
            before[to].append(head)
    found: dict[int, Loop] = {}
    for latch, block in blocks.items():
        for head in block.next:
            if head not in passed[latch]:
                continue
            loop = found.setdefault(head, Loop(code, blocks, passed, head, body={head}))
            loop.latches.add(latch)
            pending = [latch]
            while pending:
                inside = pending.pop()
                if inside not in loop.body:
                    loop.body.add(inside)
                    pending += before[inside]
    return sorted(found.values(), key=lambda loop: (len(loop.body), loop.head))


def innermost(candidates: list[Loop], wanted) -> list[Loop]:
    """Of the loops that hold the same instructions for which `wanted` is true, the smallest."""
    found: dict[tuple[int, ...], Loop] = {}
    for loop in candidates:  # the smallest first
        held = tuple(i for i in loop.indices() if wanted(loop.code.instructions[i]))
        if held:
            found.setdefault(held, loop)
    return list(found.values())


def loads_in_flight(path: list[Instruction]) -> int:
    """How many 128-bit loads a path issues before it touches a register that one of them fills."""
    filled: set[int] = set()
    loads = 0
    for it in path:
        if it.is_wide_load:
            first = REGISTER.match(it.operands)
            if not first:
                raise SassError(f"a load into no register: {it.opcode} {it.operands}")
            mine = set(range(int(first[1]), int(first[1]) + 4))
            address = WIDE_ADDRESS.search(it.operands)
            used = {int(address[1]), int(address[1]) + 1} if address else set()
            if (mine | used) & filled:
                break
            filled |= mine
            loads += 1
        elif it.registers() & filled:
            break
    return loads


def load_stride(loads: list[Instruction]) -> int:
    """The distance between loads from one address register; 0 where there is no one distance."""
    found = [WIDE_ADDRESS.search(it.operands) for it in loads]
    if not all(found) or len({match[1] for match in found}) != 1:
        return 0
    offsets = sorted(int(match[2] or "0", 0) for match in found)
    strides = {b - a for a, b in zip(offsets, offsets[1:])}
    return strides.pop() if len(strides) == 1 else 0
