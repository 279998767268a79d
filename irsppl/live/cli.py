"""`irsppl experiment ...` and `irsppl serve`: a running experiment from the command line."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

EXAMPLES = """\
examples:
  irsppl experiment create shop.db --arms 'beta(1,1)x3' --horizon 1000 --policy irs.index --seed 1
  irsppl experiment ask shop.db --json
  irsppl experiment tell shop.db ID 1
  irsppl experiment status shop.db
  irsppl experiment advise shop.db
  irsppl experiment log shop.db --out shop.csv
  irsppl experiment report shop.db shop.html
  irsppl experiment arms shop.db --add 'beta(1,1)' --label new

FILE is a SQLite file or a postgresql:// URL. Arms in a NumPyro file: give --model that file.
"""

SERVING = """\
Answer over HTTP (JSON), and show a page at /. Any address but a loopback one needs two tokens in
the environment: IRSPPL_TOKEN to ask and tell, IRSPPL_ADMIN_TOKEN to administer.
"""


def add_commands(commands: Any, add_bandit: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `experiment` to the commands; `add_bandit` adds the options that describe one."""
    style = argparse.RawDescriptionHelpFormatter
    summary = "run an experiment in earnest: decisions now, rewards when they come"
    experiment = commands.add_parser(
        "experiment", help=summary, description=summary, epilog=EXAMPLES, formatter_class=style
    )
    serving = "answer over HTTP, and show a page"
    serve = commands.add_parser("serve", help=serving, description=SERVING, formatter_class=style)
    serve.add_argument("file", metavar="FILE", help="a SQLite file or a postgresql:// URL")
    serve.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    serve.add_argument("--port", type=int, default=8000, help="default: 8000")
    serve.add_argument("--model", help="the .py file with the arms' NumPyro functions")
    serve.add_argument("--json", action="store_true", help=argparse.SUPPRESS)

    actions = experiment.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, summary: str, opens: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=summary, description=summary, epilog=EXAMPLES, formatter_class=style
        )
        made.add_argument("file", metavar="FILE", help="a SQLite file or a postgresql:// URL")
        if opens:
            made.add_argument("--model", help="the .py file with the arms' NumPyro functions")
            made.add_argument("--accept-changed-model", action="store_true")
            made.add_argument("--json", action="store_true", help="one JSON object")
        return made

    create = action("create", "begin an experiment", opens=False)
    add_bandit(create)
    create.add_argument("--policy", default="irs.index", help="default: irs.index")
    create.add_argument("--floor", type=float, default=0.0, help="least probability of every arm")
    create.add_argument("--labels", help="names of the arms, as red,blue")

    ask = action("ask", "the next decision")
    ask.add_argument("--count", type=int, help="so many at once")
    ask.add_argument("--request", help="repeated with the same text, it gets the same answer")

    tell = action("tell", "the reward of a decision")
    tell.add_argument("id", metavar="ID")
    tell.add_argument("reward", metavar="REWARD", type=float)
    tell.add_argument("--correct", action="store_true", help="replace a reward told before")

    action("status", "where the experiment is")
    explain = action("explain", "why a decision was made")
    explain.add_argument("id", metavar="ID")
    advise = action("advise", "is it worth going on?")
    advise.add_argument("--samples", type=int, help="futures for the bound")

    log = action("log", "all decisions, as a table")
    log.add_argument("--out", metavar="FILE", help="write a .csv or .parquet file")

    report = action("report", "a report in one HTML file")
    report.add_argument("out", metavar="HTML")
    report.add_argument("--samples", type=int, help="futures for the bound")

    expire = action("expire", "wait no longer for old rewards")
    expire.add_argument("--after", type=float, required=True, metavar="SECONDS")

    arms = action("arms", "the arms; add or retire one")
    arms.add_argument("--add", metavar="ARM", help="such as 'beta(1,1)'")
    arms.add_argument("--label", help="of the arm that is added")
    arms.add_argument("--retire", metavar="LABEL")


def run(args: argparse.Namespace, make_bandit: Callable[[Any], Any]) -> tuple[dict[str, Any], str]:
    """One command: what --json prints, and what a person reads."""
    import irsppl

    if args.action == "create":
        bandit = make_bandit(args)
        made = irsppl.Experiment.create(args.file, bandit, args.policy, args.seed, args.floor)
        with made as experiment:
            return experiment.status(), f"created {experiment}"
    opened = irsppl.Experiment.open(
        args.file, _file(args.model), accept_changed_model=args.accept_changed_model
    )
    with opened as experiment:
        return _ACTIONS[args.action](experiment, args)


def _file(model: str | None) -> pathlib.Path | None:
    """As `create` finds it: a path, or the name of a model that comes with irsppl."""
    from irsppl.shipped import find_model

    return None if model is None else find_model(model)


def run_server(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    import os

    import irsppl

    try:
        from irsppl.live.serve import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"serving needs {error.name}: pip install 'irsppl[serve]'") from None
    with irsppl.Experiment.open(args.file, _file(args.model)) as experiment:
        tokens = (os.environ.get("IRSPPL_TOKEN"), os.environ.get("IRSPPL_ADMIN_TOKEN"))
        serve(experiment, args.host, args.port, *tokens)
    return {"stopped": True}, "stopped"


def _ask(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    found = experiment.ask(args.count, request=args.request)
    made = [found] if args.count is None else found
    lines = [f"{one.id}\t{one.label}\t(probability {one.propensity:.3g})" for one in made]
    decisions = [one.to_dict() for one in made]
    return decisions[0] if args.count is None else {"decisions": decisions}, "\n".join(lines)


def _tell(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    experiment.tell(args.id, args.reward, correct=args.correct)
    result = {"id": args.id, "reward": args.reward, "pending": len(experiment.pending)}
    return result, f"{args.id} earned {args.reward:g}; {result['pending']} pending"


def _status(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    status = experiment.status()
    money = "" if status["budget"] is None else f", {status['budget']:g} left to spend"
    head = (
        f"period {status['period']} of {status['horizon']}, {status['pending']} pending, "
        f"{status['expired']} expired, reward {status['reward']:g} so far{money}"
    )
    return status, f"{head}\n\n{_table(status['arms'])}"


def _table(rows: list[dict[str, Any]]) -> str:
    from irsppl._text import text_table

    names = ["label", "open", "pulls", "pending", "reward", "mean", "sd"]
    return text_table(names, [[_cell(row[name]) for name in names] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _explain(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    found = experiment.explain(args.id)
    return found, found["told"]


def _advise(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    advice = experiment.advise(args.samples)
    return advice.to_dict(), advice.text


def _log(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    table = experiment.log()
    if args.out is None:
        return {"log": table.to_dict("records")}, table.to_csv(index=False)
    path = pathlib.Path(args.out)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        raise ValueError(f"--out must end in .csv or .parquet, got {args.out!r}")
    return {"decisions": len(table), "out": str(path)}, f"{len(table)} decisions in {path}"


def _report(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    experiment.report(args.out, args.samples)
    return {"out": args.out}, f"written: {args.out}"


def _expire(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    old = experiment.expire(args.after)
    return {"expired": old}, f"{len(old)} expired"


def _arms(experiment: Any, args: Any) -> tuple[dict[str, Any], str]:
    if (args.add is None) != (args.label is None):
        raise ValueError("--add and --label belong together: an arm and its name")
    with experiment.together():  # both or neither
        if args.add is not None:
            from irsppl.studies import parse_arms

            experiment.add_arm(parse_arms(args.add), args.label)
        if args.retire is not None:
            experiment.retire_arm(args.retire)
    rows = experiment.arms()
    return {"arms": rows}, _table(rows)


_ACTIONS = {
    "ask": _ask,
    "tell": _tell,
    "status": _status,
    "explain": _explain,
    "advise": _advise,
    "log": _log,
    "report": _report,
    "expire": _expire,
    "arms": _arms,
}
