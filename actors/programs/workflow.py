"""The source of the flex route: one bounded workflow that runs inside the sandbox.

It is data: dspy.Flex runs it in the sandbox and dspy.GEPA rewrites it; a rewritten source is another version.
"""

from __future__ import annotations

WORKFLOW_VERSION = "1"

WORKFLOW = '''\
class Workflow(dspy.Module):
    """Names search terms, collects matching passages from the files in plain Python, answers with citations."""

    PASSAGES_CHARS = 16000
    CONTEXT_LINES = 1
    LINE_CHARS = 400
    KEPT_HITS = 4000
    KEPT_ALIKE = 3

    def __init__(self):
        super().__init__()
        self.name_terms = dspy.Predict(dspy.Signature(
            "task: str, manifest: str -> terms: list[str]",
            "Name 3 to 12 words or short phrases that lines answering the task would contain, most telling first. "
            "Word stems are enough; upper and lower case do not matter. Add synonyms the files may use instead.",
        ))
        self.answer = dspy.Predict(dspy.Signature(
            "task: str, history: str, memory: str, passages: str -> answer: str",
            "Answer the task from the passages, each line of which begins with its path:line. Cite the lines that "
            "support the answer as path:line. Say plainly when the passages do not answer it.",
        ))

    def forward(self, task, history, memory, manifest):
        named = self.name_terms(task=task, manifest=manifest[:4000]).terms
        terms = [term.strip().lower() for term in named if isinstance(term, str) and term.strip()][:16]
        passages = self.collect(terms)
        found = self.answer(task=task, history=history[-4000:], memory=memory[-4000:], passages=passages)
        return dspy.Prediction(answer=found.answer)

    def collect(self, terms):
        """The passages that hold most of the terms; of lines alike but for their digits, the first few of each file."""
        import heapq
        count, heap, frequency, alike = 0, [], {}, {}
        for path in self.files():
            for number, line in self.lines(path):
                low = line.lower()
                held = [term for term in terms if term in low]
                if not held:
                    continue
                for term in held:
                    frequency[term] = frequency.get(term, 0) + 1
                shape = self.shape(path, line)
                if shape in alike:
                    alike[shape] = (alike[shape][0] + 1, number)
                    if alike[shape][0] > self.KEPT_ALIKE:
                        continue
                elif len(alike) < 100000:
                    alike[shape] = (1, number)
                count += 1
                key = (len(held), -count, path, number)
                if len(heap) < self.KEPT_HITS:
                    heapq.heappush(heap, (key, held, line))
                else:
                    heapq.heappushpop(heap, (key, held, line))
        rare = {term: 1.0 / (1 + count) for term, count in frequency.items()}
        ranked = sorted(heap, key=lambda hit: (-sum(0.05 + rare[term] for term in hit[1]), -hit[0][1]))
        taken, spread = {}, []
        for place, hit in enumerate(ranked):  # so that no file and no kind of line crowds out the others
            score = -sum(0.05 + rare[term] for term in hit[1])
            for kind, less in ((hit[0][2], 0.97), (self.shape(hit[0][2], hit[2]), 0.4)):
                score *= less ** taken.get(kind, 0)
                taken[kind] = taken.get(kind, 0) + 1
            spread.append((score, place, hit))
        return self.numbered([hit for _, _, hit in sorted(spread)], alike)

    def shape(self, path, line):
        import re
        return path, re.sub(r"(?<![A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{6,}|[0-9]+", "0", line[:300])

    def numbered(self, ranked, alike):
        wanted, size = {}, 0
        for (_, _, path, number), _, line in ranked:
            chosen = wanted.setdefault(path, set())
            near = set(range(number - self.CONTEXT_LINES, number + self.CONTEXT_LINES + 1)) - chosen
            size += (len(path) + min(len(line), self.LINE_CHARS) + 10) * len(near)
            if size > self.PASSAGES_CHARS:
                break
            chosen |= near
        shown, left = [], self.PASSAGES_CHARS
        for path, numbers in wanted.items():
            last = max(numbers, default=0)
            for number, line in self.lines(path):
                if number > last or left <= 0:
                    break
                if number in numbers:
                    text = "%s:%d: %s" % (path, number, line.rstrip()[:self.LINE_CHARS])
                    count, final = alike.pop(self.shape(path, line), (0, 0))
                    if count > self.KEPT_ALIKE:
                        text += " [%d lines like this one, up to line %d]" % (count, final)
                    left -= len(text) + 1
                    shown.append(text)
        return "\\n".join(shown) or "(no line of any file contains one of the terms)"

    def files(self):
        import os
        for folder, folders, names in os.walk("."):
            folders.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), ".")
                if os.path.isfile(path) and not os.path.islink(path):
                    yield path

    def lines(self, path):
        try:
            with open(path, "rb") as file:
                if b"\\0" in file.read(4096):
                    return
            with open(path, encoding="utf-8", errors="replace") as file:
                for number, line in enumerate(file, 1):
                    yield number, line
        except OSError:
            return
'''
