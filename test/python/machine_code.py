"""Machine code as nvdisasm prints it: which definitions of registers reach the matmuls that read them."""

import dataclasses
import re

BRANCH = re.compile(r"(?P<condition>@!?U?P\d+ +)?(?P<op>BRA|EXIT|RET)\b(?P<rest>.*)")
INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?P<condition>@!?U?P\d+ +)?(?P<op>[A-Z][A-Z0-9_.]*) *(?P<operands>[^;]*)"
)
RESULT = re.compile(r"(?:U?PT?\d*, )?R(\d+)\b")
MATMUL = re.compile(r"HGMMA\S* R\d+, R(?P<left>\d+), gdesc(?!.*tnspB)")
NO_RESULT = ("ST", "STS", "STG", "STL", "STAS", "RED", "BAR", "SYNCS", "LDGSTS", "HGMMA", "QGMMA", "R2UR")
LEFT = 4  # registers


@dataclasses.dataclass
class Block:
    lines: list[int]
    following: list[int] = dataclasses.field(default_factory=list)


def definitions_of_left_operands(text: str) -> dict[str, set[str]]:
    """For each register of a left operand, as "line of the matmul: register", the instructions that may have made what
    it holds there. Of matmuls in 16 bits whose right operand has what is summed over side by side: of scores."""
    lines = text.splitlines()
    read = {i: int(found["left"]) for i, line in enumerate(lines) if (found := MATMUL.search(line))}
    wanted = {left + i for left in read.values() for i in range(LEFT)}
    made = {i: _results(line) & wanted for i, line in enumerate(lines)}
    blocks = _blocks(lines)
    before: list[dict[int, set[int]]] = [{} for _ in blocks]
    found: dict[str, set[str]] = {}
    changed = set(range(len(blocks)))
    while changed:
        number = changed.pop()
        reaching = {register: set(places) for register, places in before[number].items()}
        for i in blocks[number].lines:
            for register in range(read[i], read[i] + LEFT) if i in read else ():
                places = reaching.get(register, set())
                found[f"{i}: R{register}"] = {INSTRUCTION.search(lines[p])[0] for p in places}
            for register in made[i]:
                conditional = INSTRUCTION.search(lines[i])["condition"]
                reaching[register] = {i} | (reaching.get(register, set()) if conditional else set())
        for other in blocks[number].following:
            for register, places in reaching.items():
                if not places <= before[other].get(register, set()):
                    before[other].setdefault(register, set()).update(places)
                    changed.add(other)
    return found


def _blocks(lines: list[str]) -> list[Block]:
    labels = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r"(\.L_\w+):", line))}
    ends = {i + 1 for i, line in enumerate(lines) if BRANCH.search(line)}
    starts = sorted({0, *labels.values(), *ends} - {len(lines)})
    numbers = {start: n for n, start in enumerate(starts)}
    blocks = [Block(list(range(a, b))) for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
    for number, block in enumerate(blocks):
        branch = BRANCH.search(lines[block.lines[-1]])
        if branch and (target := re.search(r"`\((\.L_\w+)\)", branch["rest"])):
            block.following.append(numbers[labels[target[1]]])
        goes_on = branch is None or branch["condition"] or re.search(r"\bU?P\d", branch["rest"])
        if goes_on and number + 1 < len(blocks):
            block.following.append(number + 1)
    return blocks


def _results(line: str) -> set[int]:
    """The registers that an instruction writes."""
    found = INSTRUCTION.search(line)
    if found is None or found["op"].split(".")[0] in NO_RESULT:
        return set()
    first = RESULT.match(found["operands"])
    if first is None:
        return set()
    op, count = found["op"], 1
    if op.startswith("LDSM"):
        count = int(op[-1]) if op[-2:] in (".2", ".4") else 1
    elif ".128" in op:
        count = 4
    elif ".64" in op or ".WIDE" in op or op == "CS2R":
        count = 2
    return set(range(int(first[1]), int(first[1]) + count))
