"""What the pages say can be pasted: every Python block of a page runs, in order, in one namespace.

A block that cannot run says so in a comment before it: `<!-- not run: the reason -->`. A text block
right below is what it prints: such a page runs at its own sizes, and its numbers are compared. On
all other pages sizes are cut down; there, what is tested is that the code works as written.
"""

import argparse
import contextlib
import io
import pathlib
import re

import distributed
import pytest

from irsppl.cli import EXAMPLES, _parser
from irsppl.shipped import shipped

ROOT = pathlib.Path(__file__).parent.parent
BLOCK = re.compile(
    r"(<!-- not run: (?P<why>.+?) -->\n+)?```python\n(?P<code>.*?)```"
    r"(\n\n```text\n(?P<printed>.*?)```)?",
    re.DOTALL,
)
DOCS = sorted((ROOT / "docs").rglob("*.md"))


def blocks(path):
    return list(BLOCK.finditer(path.read_text()))


PAGES = [path for path in [ROOT / "README.md", *DOCS] if blocks(path)]
PRINTING = [path for path in PAGES if any(found["printed"] is not None for found in blocks(path))]
# A page's workers; those of `examples/many_machines.py` and `test_cluster.py` are processes.
IN_THIS_PROCESS = {"n_workers": 1, "processes": False}
# What stands for the user's experiment, and horizons whose length is not the point here.
STANDS_FOR = {"reward = ...": "reward = 1", "100_000": "400", "20_000)": "100)"}


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Few samples whatever a page asks for, and files in a folder of their own."""
    import irsppl.studies

    def at_most(module, name, sizes):
        function = getattr(module, name)

        def called(*args, **options):
            return function(*args[:2], **(options | sizes))

        monkeypatch.setattr(module, name, called)

    at_most(irsppl, "bound", {"num_samples": 20})
    at_most(irsppl, "simulate", {"num_replications": 20})
    at_most(irsppl, "certify", {"num_samples": 40, "num_replications": 40})
    at_most(irsppl.studies, "run_study", {"replications": 20})
    cluster = distributed.LocalCluster
    monkeypatch.setattr(
        distributed, "LocalCluster", lambda **given: cluster(**given | IN_THIS_PROCESS)
    )
    monkeypatch.chdir(tmp_path)


def run_page(path):
    """(block, what it printed) of every block that runs."""
    namespace = {"__name__": "page"}
    for found in blocks(path):
        if found["why"]:
            continue
        code = found["code"]
        for written, meant in STANDS_FOR.items():
            code = code.replace(written, meant)
        line = path.read_text()[: found.start("code")].count("\n")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * line + code, str(path), "exec"), namespace)
        yield found, out.getvalue()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("path", [p for p in PAGES if p not in PRINTING], ids=lambda p: p.stem)
def test_python_on_a_page_runs_as_pasted(path):
    for _ in run_page(path):
        pass


NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def check_printed(printed, stored):
    """Words as they stand; numbers within 2 %, because another processor rounds otherwise."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", stored).split()
    for here, there in zip(NUMBER.findall(printed), NUMBER.findall(stored), strict=True):
        assert float(here) == pytest.approx(float(there), rel=0.02, abs=0.02), printed


@pytest.mark.parametrize("path", PRINTING, ids=lambda p: p.stem)
def test_a_page_prints_what_it_says(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for found, printed in run_page(path):
        if found["printed"] is not None:
            check_printed(printed, found["printed"])


def options(parser=None):
    """Every option of every command, and of the commands below it."""
    parser = _parser() if parser is None else parser
    found = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {o for command in action.choices.values() for o in options(command)}
    return {option for option in found if option.startswith("--")}


def test_the_page_on_the_command_line_has_every_option_and_no_other():
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)) == options()


def test_commands_on_the_pages_can_be_parsed():
    """Every `irsppl ...` in a code block of a page or in --help: options and files exist."""
    texts = [EXAMPLES, *(p.read_text() for p in PAGES), (ROOT / "docs/command-line.md").read_text()]
    commands = [
        line.removeprefix("$ ").strip()
        for text in texts
        for line in text.splitlines()
        if re.match(r"(\$ |  )?irsppl (bound|simulate|study|studies)\b", line)
    ]
    assert len(commands) > 10
    import shlex

    for command in commands:
        args = _parser().parse_args(shlex.split(command)[1:])
        model = getattr(args, "model", None)
        known = model is None or model in shipped("models")
        assert known or (ROOT / model).is_file(), command


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.stem)
def test_links_and_files_named_on_a_page_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / target).exists(), target
    for name in re.findall(r"`(?:python )?((?:examples|models|tests|benchmarks)/[\w/]+\.py)", text):
        assert (ROOT / name).exists(), name
