"""What the exchanges between ranks cost in large runs: messages, bytes, and a model of the time. Nothing here is measured.

    python bench/python/exchange_model.py            prints the tables of docs/scale.md
    python bench/python/exchange_model.py --write    puts them there

The model follows each message. A message takes LATENCY, and its bytes at BANDWIDTH. Ranks of a node take NODE to meet in
shared memory. Gloo's all_gather is a ring: in each of its rounds a member waits for its neighbour's last block. Ranks come
to the exchange at the same time: what a late rank costs is its lateness, and every training that reduces gradients pays it
anyway.
"""

import argparse
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- exchange model: begin -->\n", "<!-- exchange model: end -->\n"
SIZES = (64, 512, 4096)
PER_NODE = 8
RECORD = 112
"""bytes, as agent/ranks/rank_record.hpp has it"""
LATENCY = 30e-6
"""seconds between two processes on two nodes, over TCP"""
LOCAL_LATENCY = 15e-6
"""the same on one node"""
BANDWIDTH = 1.25e9
"""bytes a second"""
NODE = 50e-6
"""seconds for the ranks of a node to meet in shared memory"""


def ring(nodes_of_members: list[int], block: int) -> tuple[int, int, float]:
    """Messages, bytes between nodes, seconds until the last member has all blocks."""
    members = len(nodes_of_members)
    before = [nodes_of_members[i - 1] for i in range(members)]
    is_far = [before[i] != nodes_of_members[i] for i in range(members)]
    takes = [(LATENCY if far else LOCAL_LATENCY) + block / BANDWIDTH for far in is_far]
    ready = [0.0] * members
    for _ in range(members - 1):
        ready = [max(ready[i], ready[i - 1]) + takes[i] for i in range(members)]
    rounds = members - 1
    return members * rounds, sum(is_far) * rounds * block, max(ready)


def over_gloo(ranks: int) -> tuple[int, int, float]:
    return ring([rank // PER_NODE for rank in range(ranks)], RECORD)


def through_leaders(ranks: int) -> tuple[int, int, float]:
    messages, data, seconds = ring(list(range(ranks // PER_NODE)), 1 + PER_NODE * RECORD)
    return messages, data, seconds + 2 * NODE


def through_store(ranks: int) -> tuple[int, float, float]:
    """Norms of sharded parameters: requests and bytes per second at the store, seconds between two looks of a rank."""
    from gradvane._ranks import norms

    pause = min(norms._LONG, max(norms._SHORTEST, 3 * ranks / norms.REQUESTS_A_SECOND))
    requests = 3 * ranks / pause
    each = norms._HEADER.size + norms.MOST_ITEMS * norms._ITEM.size
    return round(requests), requests * each, pause


def amount(data: float) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if data >= size:
            return f"{data / size:,.1f} {unit}"
    return f"{data:.0f} bytes"


def table() -> str:
    lines = ["| ranks | all over gloo | through the first rank of each node |", "|---|---|---|"]
    for ranks in SIZES:
        cells = [f"{messages:,} messages, {amount(data)} between nodes, {1e3 * seconds:,.2f} ms"
                 for messages, data, seconds in (over_gloo(ranks), through_leaders(ranks))]
        lines.append(f"| {ranks:,} | " + " | ".join(cells) + " |")
    lines += ["", "| ranks | requests per second at the store | at most | a rank looks every |", "|---|---|---|---|"]
    for ranks in SIZES:
        requests, data, pause = through_store(ranks)
        lines.append(f"| {ranks:,} | {requests:,} | {amount(data)} per second | {pause:.2f} s |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if not parser.parse_args().write:
        print(table(), end="")
        return
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
