"""The command line: `irsppl bound | simulate | study | studies | models | experiment`.

Exit codes: 0 all is well, 1 results could not be written where they should (they are kept
elsewhere, and a line says where), 2 bad input (one line on standard error says what), 130
interrupted. Standard output holds the result alone (with --json, one JSON object): what the user's
own files print goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import irsppl.live.cli as live
from irsppl._text import without_nan

EXAMPLES = """\
examples:
  irsppl bound    --arms 'beta(3,1)' --arms 'beta(1,1)' --horizon 8 --penalty irs.v-zero
  irsppl simulate --arms 'normal(0,1,noise=1)x10' --horizon 500 --policy ts --policy irs.fh
  irsppl simulate --arms 'beta(1,1)x2' --horizon 60 --policy irs.index --truth 0.2,0.7 --json
  irsppl bound    --arms 'beta(1,1)x3' --horizon 50 --delay 10 --penalty irs.ff
  irsppl simulate --arms 'beta(1,1)x2' --costs 1,2.5 --budget 40 --policy irs.v-zero
  irsppl bound    models/conversion.py --horizon 50 --penalty irs.fh
  irsppl bound    revenue --horizon 50
  irsppl models
  irsppl study    quickstart --out results/ --dask local
  irsppl studies
  irsppl experiment create shop.db --arms 'beta(1,1)x3' --horizon 1000

arms: beta(alpha,beta) with 0/1 rewards, normal(mean,sd,noise=sd of a reward), poisson(shape,rate),
exponential(shape,rate), nig(mean,precision,shape,rate); x10 repeats an arm ten times.
"""


_SMALL = re.compile(r"-[\d.]+e[+-]?\d+", re.IGNORECASE)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    import irsppl

    def command(name: str, summary: str, **options: Any) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )

    parser = _Parser(
        prog="irsppl",
        description="Finite-horizon Bayesian bandits: what policies earn, and what none can beat.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"irsppl {irsppl.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    bound = command("bound", "an upper bound on what any policy can earn")
    _add_bandit(bound)
    bound.add_argument("--penalty", action="append", help="repeatable (default: irs.v-zero)")
    bound.add_argument("--samples", type=int, default=20_000, help="futures (default: 20000)")
    bound.add_argument("--out", metavar="FILE", help="also write the JSON object to this file")

    simulate = command("simulate", "play policies on the same random futures")
    _add_bandit(simulate)
    simulate.add_argument("--policy", action="append", help="repeatable (default: ts)")
    simulate.add_argument("--replications", type=int, default=20_000, help="default: 20000")
    simulate.add_argument("--truth", metavar="MEANS", help="fixed true means, as 0.2,0.7")
    simulate.add_argument("--per-period", action="store_true", help="also each period's regret")
    simulate.add_argument("--out", metavar="FILE", help="also write all data here (NetCDF)")

    study = command("study", "run a named study, or go on with it: table, figure, data")
    study.add_argument("study", metavar="STUDY", help="a name (see irsppl studies) or a .py file")
    study.add_argument("--replications", type=int, help="default: as the study says")
    study.add_argument("--out", default="results", metavar="FOLDER", help="default: results")
    study.add_argument("--compare", action="store_true", help="beside the paper's figures, with z")
    study.add_argument(
        "--shared-stream",
        action="store_true",
        help="a demonstration, not for use: what one random stream for means and rewards gives",
    )
    study.add_argument(
        "--dask", metavar="WHERE", help="a Dask scheduler's address, or local: all cores here"
    )
    _add_common(study)

    live.add_commands(commands, _add_bandit)

    studies = command("studies", "list the named studies")
    studies.add_argument("--json", action="store_true", help="one JSON object on standard output")

    models = command("models", "list the arm models and examples that come with irsppl")
    models.add_argument("model", nargs="?", metavar="NAME", help="print this one, to copy from")
    models.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _add_bandit(parser: argparse.ArgumentParser) -> None:
    summary = "a .py file with NumPyro functions, one per arm, or a name (see irsppl models)"
    parser.add_argument("model", nargs="?", help=summary)
    parser.add_argument("--arms", action="append", help="such as 'beta(3,1)'; repeatable")
    parser.add_argument("--horizon", type=int, help="periods to play (optional with a budget)")
    parser.add_argument("--delay", metavar="D", help="a reward comes so late: 5, or 0,5,inf")
    parser.add_argument("--costs", metavar="C", help="price of a pull of each arm, as 1,2.5")
    parser.add_argument("--budget", type=float, help="what all pulls together may cost")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


# ------------------------------------------------------------------ commands


def _bandit(args: argparse.Namespace) -> Any:
    from irsppl.bandit import Bandit
    from irsppl.studies import parse_arms

    if (args.model is None) == (args.arms is None):
        raise ValueError("give either --arms, such as --arms 'beta(3,1)', or a model file")
    if args.arms is not None:
        belief, labels = parse_arms(args.arms), None
    else:
        belief, labels = _read_model(args.model)
    if getattr(args, "labels", None) is not None:  # of `experiment create`
        labels = [part.strip() for part in args.labels.split(",")]
    if args.horizon is None and args.budget is None:
        raise ValueError("give --horizon, or --costs and --budget")
    delay = _numbers("--delay", args.delay)
    return Bandit(
        belief,
        args.horizon,
        delay=delay[0] if delay is not None and len(delay) == 1 else delay,
        costs=_numbers("--costs", args.costs),
        budget=args.budget,
        labels=labels,
    )


def _read_model(path: str) -> tuple[Any, Any]:
    """(belief, labels) from a file of NumPyro functions, or one of the zoo by its name."""
    from irsppl.beliefs.from_numpyro import from_numpyro, from_numpyro_joint
    from irsppl.models import load_model_file
    from irsppl.shipped import find_model

    model = load_model_file(find_model(path))
    options = {"values": model.values, "mean": model.mean, "reward_site": model.reward_site}
    read: Any = from_numpyro_joint if model.joint else from_numpyro
    arms = model.functions[0] if len(model.functions) == 1 else model.functions
    return read(arms, num_arms=model.num_arms, **options), model.labels


def _bound(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from irsppl._text import text_table
    from irsppl.bounds import bound
    from irsppl.studies.store import write_atomically

    _check_out(args)
    bandit = _bandit(args)
    late = bandit.arrivals.late
    penalties = args.penalty or ["irs.v-zero-separable" if late else "irs.v-zero"]
    bounds = bound(bandit, penalties, args.seed, args.samples)
    assert isinstance(bounds, dict)
    figures = ("value", "stderr", "regret_bound", "regret_stderr", "exact", "approximate")
    result = _instance(args, bandit) | {
        "samples": args.samples,
        "bounds": {name: {n: getattr(b, n) for n in figures} for name, b in bounds.items()},
        "tightest": bounds.tightest.penalty,
    }
    if args.out is not None:
        _keep(args, lambda path: write_atomically(path, (_json(result) + "\n").encode()))

    def cell(value: float, stderr: float, exact: bool) -> str:
        # Not from the error alone: few samples may be alike by chance.
        return f"{value:.4f} ({'exact' if exact and stderr == 0 else f'{stderr:.4f}'})"

    rows = [
        [name, cell(b.value, b.stderr, b.exact), cell(b.regret_bound, b.regret_stderr, b.exact)]
        for name, b in bounds.items()
    ]
    table = text_table(["penalty", "value at most (s.e.)", "regret at least (s.e.)"], rows)
    return result, f"{bandit}\n\n{table}"


def _simulate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from irsppl._text import text_table
    from irsppl.results import summary
    from irsppl.simulation import simulate
    from irsppl.studies.report import write_netcdf

    _check_out(args)
    bandit = _bandit(args)
    policies, truth = args.policy or ["ts"], _numbers("--truth", args.truth)
    run = (bandit, policies, args.seed, args.replications, truth)
    data = simulate(*run, per_period=args.per_period)
    table = summary(data)
    root = math.sqrt(data.sizes["replication"])
    result = _instance(args, bandit) | {"replications": args.replications, "policies": {}}
    if truth is not None:
        result["truth"] = data["true_mean"].values.tolist()
    for name, row in table.iterrows():
        one = data.sel(policy=name)
        result["policies"][name] = {
            "value": row["value"],
            "value_stderr": row["value s.e."],
            "reward": float(one["reward"].mean()),
            "reward_stderr": float(one["reward"].std(ddof=1)) / root,
            "regret": row["regret"],
            "regret_stderr": row["regret s.e."],
            "pulls": one["pulls"].mean("replication").values.tolist(),
        }
        if args.per_period:
            result["policies"][name]["period_regret"] = one["period_regret"].values.tolist()
    if args.out is not None:
        _keep(args, lambda path: write_netcdf(data, path))
    rows = [
        [
            name,
            f"{row['regret']:.4f} ({row['regret_stderr']:.4f})",
            f"{row['value']:.4f} ({row['value_stderr']:.4f})",
            f"{row['reward']:.4f} ({row['reward_stderr']:.4f})",
            " ".join(f"{pulls:.1f}" for pulls in row["pulls"]),
        ]
        for name, row in result["policies"].items()
    ]
    headers = ["policy", "regret (s.e.)", "value (s.e.)", "reward (s.e.)", "mean pulls of each arm"]
    text = f"{bandit}, {args.replications} replications\n\n{text_table(headers, rows)}"
    if args.per_period:
        names = list(result["policies"])
        lost = [result["policies"][name]["period_regret"] for name in names]
        rows = [[str(t), *(f"{p[t]:.4f}" for p in lost)] for t in range(len(lost[0]))]
        text += "\nmean regret of each period\n\n" + text_table(["period", *names], rows)
    return result, text


def _study(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from irsppl._cluster import connected
    from irsppl.studies import comparison, find_study, report, run_study, study_table

    study = find_study(args.study)
    if study.left_out:
        _note(f"left out, because this version does not have them: {', '.join(study.left_out)}")
    with connected(args.dask) if args.dask is not None else contextlib.nullcontext() as client:
        options = {"compare": args.compare, "shared_stream": args.shared_stream, "client": client}
        result = run_study(study, args.replications, args.out, args.seed, **options)
    data, folder = result.data, result.folder
    table = study_table(data)
    files = sorted(str(path) for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    summary: dict[str, Any] = {
        "study": study.name,
        "title": study.title,
        "horizon": study.periods,
        "replications": data.attrs["replications"],
        "seed": args.seed,
        "left_out": list(study.left_out),
        "table": {name: dict(row) for name, row in table.iterrows()},
        "no_bound": data.attrs["no_bound"].splitlines(),
        "files": files,
        "pieces_computed": result.computed,
        "pieces_reused": result.reused,
    }
    title = f"{study.title}, {study.horizon_text()}, {summary['replications']} replications"
    text = report.table_text(table, title) + report.table_notes(table, data)
    if args.compare:
        beside = comparison(study, data)
        summary["compare"] = beside.to_dict("records")
        text += "\n" + report.comparison_text(beside, "beside the printed figures")
    elif args.shared_stream:
        _note("add --compare to see the shared stream beside the printed figures")
    return summary, text + "\nwritten: " + ", ".join(files) + "\n"


def _studies(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from irsppl._text import text_table
    from irsppl.studies import STUDIES

    listed = {
        name: {
            "title": study.title,
            "arms": study.definition()["arms"],
            "horizon": study.horizon,
            "replications": study.replications,
            "policies": list(study.policies),
            "penalties": list(study.penalties),
            "left_out": list(study.left_out),
        }
        for name, study in STUDIES.items()
    }
    rows = [[name, str(s.horizon), str(s.replications), s.title] for name, s in STUDIES.items()]
    return {"studies": listed}, text_table(["study", "horizon", "replications", "what it is"], rows)


def _models(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from irsppl.shipped import listing, source

    return listing() if args.model is None else source(args.model)


def _instance(args: argparse.Namespace, bandit: Any) -> dict[str, Any]:
    return {
        "command": args.command,
        "arms": args.arms or args.model,
        "num_arms": bandit.num_arms,
        "horizon": bandit.horizon,
        "seed": args.seed,
    }


def _numbers(name: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in re.split(r"\s*,\s*|\s+", text.strip())]
    except ValueError:
        raise ValueError(f"{name} must be numbers such as 0.2,0.7, got {text!r}") from None


# ------------------------------------------------------------------ in and out


def _check_out(args: argparse.Namespace) -> None:
    """Refuse a file that cannot be written before any work is done for it."""
    from irsppl.studies.store import check_writable

    if args.out is not None:
        try:
            check_writable(pathlib.Path(args.out))
        except ValueError as error:
            raise ValueError(f"--out: {error}") from None


def _keep(args: argparse.Namespace, write: Callable[[pathlib.Path], None]) -> None:
    """Write results; where that fails in the end (a full disk, a lost folder), keep them."""
    wanted = pathlib.Path(args.out)
    try:
        return write(wanted)
    except OSError as error:
        args.code, why = 1, error
    for folder in (pathlib.Path.cwd(), pathlib.Path(tempfile.gettempdir())):
        # A name that nothing has: results of another run may lie there.
        kept = folder / f"irsppl-kept-{os.getpid()}-{wanted.name}"
        with contextlib.suppress(OSError):
            write(kept)
            return _note(f"error: could not write {wanted} ({why}); the results are in {kept}")
    _note(
        f"error: could not write {wanted} ({why}), nor anywhere else; the result follows in short"
    )


@contextlib.contextmanager
def _own_output() -> Iterator[None]:
    """Standard output for results alone: what anybody else prints meanwhile goes to standard error.

    Both Python's own and the file descriptor, for the user's file may print through either.
    """
    results = sys.stdout
    try:
        real = os.dup(results.fileno())
    except (OSError, ValueError):  # not a file: captured in a test, or a notebook
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    results.flush()
    try:
        os.dup2(sys.stderr.fileno(), results.fileno())
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(real, results.fileno())
        os.close(real)


def _end_at_once(*_: Any) -> None:
    """What Ctrl-C does: end here and now.

    Raised as an exception it could arrive in a destructor, where it is lost, or leave threads
    behind that the ending interpreter tears out of compiled code, which aborts or hangs. Nothing
    can be lost: a finished piece of a study is whole on disk.
    """
    with contextlib.suppress(Exception):
        for child in getattr(sys.modules.get("multiprocessing"), "active_children", list)():
            child.terminate()
    advice = "; run it again to go on" if "study" in sys.argv[1:2] else ""
    os.write(2, f"\nirsppl: interrupted{advice}\n".encode())
    os._exit(130)


def _json(result: dict[str, Any]) -> str:
    return json.dumps(without_nan(result), allow_nan=False)


def _one_line(message: Any) -> str:
    return " ".join(str(message).split())


def _note(message: str) -> None:
    print(f"irsppl: {message}", file=sys.stderr)


_COMMANDS = {
    "bound": _bound,
    "simulate": _simulate,
    "study": _study,
    "studies": _studies,
    "models": _models,
    "experiment": lambda args: live.run(args, _bandit),
    "serve": live.run_server,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    # argparse would take "-1e-3" for an option.
    arguments = [f" {text}" if _SMALL.fullmatch(text) else text for text in given]
    if "--truth" in arguments[:-1]:  # argparse would take "-1,2" for an option
        i = arguments.index("--truth")
        arguments[i : i + 2] = [f"--truth={arguments[i + 1]}"]
    args = _parser().parse_args(arguments)  # bad usage ends here, with code 2
    args.code = 0
    # Where the shell said to ignore it (a job in the background), that stands.
    if argv is None and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        with _own_output(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _note(f"warning: {_one_line(message)}")
            result, text = _COMMANDS[args.command](args)
        print(_json(result) if args.json else text.rstrip("\n"), flush=True)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return args.code
    except (ValueError, OSError) as error:
        _note(f"error: {_one_line(error)}")
        return 2
    except SystemExit as error:
        file = args.study if args.command == "study" else args.model
        _note(f"error: {file} ends the program: sys.exit({error.code!r}); a model file must not")
        return 2
    except KeyboardInterrupt:
        _note("interrupted" + ("; run it again to go on" if args.command == "study" else ""))
        return 130
    return args.code
