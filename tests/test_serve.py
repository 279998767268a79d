"""An experiment over HTTP: right answers, right refusals, nothing executed, nothing lost."""

import asyncio
import contextlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

import irsppl
from irsppl.live import experiment as experiment_module
from irsppl.live.codec import DamagedError

fastapi_client = pytest.importorskip("fastapi.testclient")
serve = pytest.importorskip("irsppl.live.serve")
direct = pytest.importorskip("irsppl.live.direct")
LABELS = ["<script>alert(1)</script>", "'; DROP TABLE irsppl_journal; --", "plain"]


@pytest.fixture
def experiment(tmp_path):
    belief = irsppl.BetaBernoulli([3.0, 1.0, 1.5], [1.0, 1.0, 2.5])
    bandit = irsppl.Bandit(belief, 20, labels=LABELS)
    with irsppl.Experiment.create(tmp_path / "shop.db", bandit, "ts", floor=0.05) as made:
        yield made


def client(experiment, host="127.0.0.1", **tokens):
    app = serve.make_app(experiment, local=not tokens, **tokens)
    return fastapi_client.TestClient(app, f"http://{host}:8000", raise_server_exceptions=False)


def test_what_is_no_number_is_null_and_labels_stay_what_they_are(tmp_path):
    labels = ["NaN", "BaNaNa"]
    belief = irsppl.NormalNormal([-9.0, -9.5], [1.0, 1.0], [1.0, 1.0])
    bandit = irsppl.Bandit(belief, 1, labels=labels)
    with irsppl.Experiment.create(tmp_path / "x.db", bandit) as made:
        found = client(made).get("/advice").json()
        assert [arm["label"] for arm in found["arms"]] == labels and found["best"] == "NaN"
        assert found["text"] == made.advise().text
        assert found["share"] is None  # of what is negative


def test_ask_tell_and_look(experiment):
    web = client(experiment)
    first = web.post("/decisions", json={"request": "visit"})
    assert first.status_code == 201
    assert set(first.json()) == {"id", "arm", "label", "propensity", "period"}
    assert web.post("/decisions", json={"request": "visit"}).json() == first.json()
    batch = web.post("/decisions", json={"count": 3}).json()["decisions"]
    assert [d["period"] for d in batch] == [1, 2, 3]
    for d in [first.json(), *batch[:2]]:
        assert web.post(f"/decisions/{d['id']}/reward", json={"reward": 1}).status_code == 200
    status = web.get("/status").json()
    assert status["told"] == 3 and status["pending"] == 1 and "where" not in status
    assert web.get(f"/decisions/{batch[0]['id']}").json()["replayed"]
    assert web.get("/log.csv").text.count("\n") == 5
    import pandas as pd

    answer = web.get("/log.parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(answer.content)), experiment.log())
    assert web.get("/health").json() == {"period": 4}
    assert "irsppl_pending 1\n" in web.get("/metrics").text
    assert "/decisions/{id}/reward" in web.get("/openapi.json").json()["paths"]
    added = web.post("/arms", json={"arm": "beta(2,1)", "label": "new"})
    assert added.status_code == 201 and added.json() == {"arm": 3}
    assert web.delete("/arms/plain").status_code == 200
    assert web.delete(f"/arms/{urllib.parse.quote(LABELS[0], safe='')}").status_code == 200
    assert [row["open"] for row in experiment.arms()] == [False, True, False, True]


def test_the_page(experiment, monkeypatch):
    monkeypatch.setattr(serve.Adviser, "look", lambda self, status: None)
    monkeypatch.setattr(serve.time, "monotonic", iter(range(0, 10**6, 1000)).__next__)
    web = client(experiment)
    experiment.ask(5)
    answer = web.get("/")
    assert answer.status_code == 200 and "5 of 20" in answer.text
    assert "<script>alert" not in answer.text and "&lt;script&gt;alert" in answer.text
    policy = answer.headers["content-security-policy"]
    nonce = policy.split("nonce-")[1].split("'")[0]
    assert answer.text.count("<script") == 1 and f'<script nonce="{nonce}">' in answer.text
    assert "default-src 'none'" in policy and "http://" not in answer.text
    experiment.tell(experiment.pending[0], 1)
    assert "reward so far</dt><dd>1<" in web.get("/").text


JSON, IS_JSON = b"{}", {"content-type": "application/json"}
BAD = [
    ("post", "/decisions", dict(content=b"{"), 422),
    ("post", "/decisions", dict(content=b""), 422),
    ("post", "/decisions", dict(content=b"[1]"), 422),
    ("post", "/decisions", dict(content=b"\xff\xfe"), 422),
    ("post", "/decisions", dict(json={"count": 0}), 422),
    ("post", "/decisions", dict(json={"count": -1}), 422),
    ("post", "/decisions", dict(json={"count": 1.5}), 422),
    ("post", "/decisions", dict(json={"count": "3"}), 422),
    ("post", "/decisions", dict(json={"count": True}), 422),
    ("post", "/decisions", dict(json={"count": 10**9}), 422),
    ("post", "/decisions", dict(json={"count": 21}), 409),
    ("post", "/decisions", dict(json={"request": ""}), 422),
    ("post", "/decisions", dict(json={"request": "x" * 201}), 422),
    ("post", "/decisions", dict(json={"request": 3}), 422),
    ("post", "/decisions", dict(json={"other": 1}), 422),
    ("post", "/decisions", dict(data={"count": "3"}), 415),
    ("post", "/decisions", dict(content=b"{}", headers={"content-type": "text/plain"}), 415),
    ("post", "/decisions", dict(content=b"x" * 70_000), 413),
    ("post", "/decisions", dict(headers={"host": "evil.example"}, json={}), 421),
    ("post", "/decisions/ID/reward", dict(content=b'{"reward": NaN}'), 422),
    ("post", "/decisions/ID/reward", dict(content=b'{"reward": Infinity}'), 422),
    ("post", "/decisions/ID/reward", dict(content=b'{"reward": 1e999}'), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 0.5}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": -1}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": "1"}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": None}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": [1]}), 422),
    ("post", "/decisions/ID/reward", dict(json={}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 0}), 409),
    ("post", "/decisions/ID/reward", dict(json={"reward": 1, "correct": "yes"}), 422),
    ("post", "/decisions/x-0/reward", dict(json={"reward": 1}), 404),
    ("post", "/decisions/ID9/reward", dict(json={"reward": 1}), 404),
    ("post", "/decisions/%27%3B%20DROP%20TABLE/reward", dict(json={"reward": 1}), 404),
    ("post", f"/decisions/{'x' * 50}/reward", dict(json={"reward": 1}), 422),
    ("get", "/decisions/..%2f..%2fetc%2fpasswd", {}, 404),
    ("get", "/../../etc/passwd", {}, 404),
    ("get", "/decisions/x-0", {}, 404),
    ("get", "/decisions/x-0%00", {}, 404),
    ("get", "/shop.db", {}, 404),
    ("get", "/docs", {}, 404),
    ("put", "/decisions", {}, 405),
    ("delete", "/arms/nobody", {}, 404),
    ("post", "/arms", dict(json={"arm": "beta(1,1)", "label": "plain"}), 409),
    ("post", "/arms", dict(json={"arm": "__import__('os')", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "poisson(1,1)", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "beta(1,1)", "label": ""}), 422),
    ("get", "/status", dict(headers={"host": "evil.example"}), 421),
    ("get", "/status", dict(headers={"host": "127.0.0.1.evil.example:8000"}), 421),
    ("get", "/", dict(headers={"host": "localhost.evil.example"}), 421),
    ("get", "/log.csv", dict(headers={"host": ""}), 421),
    ("get", "/log.csv", dict(headers={"host": "10.0.0.1:8000"}), 421),
    ("post", "/decisions", dict(content=b"null"), 422),
    ("post", "/decisions", dict(content=b'"text"'), 422),
    ("post", "/decisions", dict(content=b"{}{}"), 422),
    ("post", "/decisions", dict(content=b'{"count": 1e400}'), 422),
    ("post", "/decisions", dict(content=b'{"count": NaN}'), 422),
    ("post", "/decisions", dict(content=b'{"count": 1, "count": "x"}'), 422),
    ("post", "/decisions", dict(content=b"[" * 30_000), 400),
    ("post", "/decisions", dict(content=b'{"request": "\\ud800"}'), 422),
    ("post", "/decisions", dict(content=b'{"request": "\\u0000"}'), 422),
    ("post", "/decisions", dict(json={"request": ["visit"]}), 422),
    ("post", "/decisions", dict(json={"count": [3]}), 422),
    ("post", "/decisions", dict(json={"count": 10_001}), 422),
    ("post", "/decisions", dict(json={"count": 2**70}), 422),
    ("post", "/decisions", dict(json={"__class__": "os.system"}), 422),
    ("post", "/decisions", dict(content=b"{}", headers={}), 415),
    ("post", "/decisions", dict(files={"file": b"x"}), 415),
    ("post", "/decisions", dict(content=b"<a/>", headers={"content-type": "text/xml"}), 415),
    ("post", "/decisions", dict(content=JSON, headers={**IS_JSON, "content-length": "-1"}), 413),
    ("post", "/decisions", dict(content=JSON, headers={**IS_JSON, "content-length": "x"}), 413),
    ("post", "/decisions", dict(content=JSON, headers={**IS_JSON, "content-length": "9" * 9}), 413),
    ("post", "/decisions/ID/reward", dict(content=b"x" * 70_000), 413),
    ("post", "/decisions/ID/reward", dict(content=b'{"reward": -Infinity}'), 422),
    ("post", "/decisions/ID/reward", dict(content=b'{"reward": 1, "reward": 7}'), 422),
    ("post", "/decisions/ID/reward", dict(content=b"1"), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": True}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": {}}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 2}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 1e-300}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 1, "arm": 2}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 1, "correct": 1}), 422),
    ("post", "/decisions/ID/reward", dict(json={"reward": 0, "correct": False}), 409),
    ("post", "/decisions/ID/reward/", dict(json={"reward": 1}), 404),
    ("post", "/decisions/ID/rewards", dict(json={"reward": 1}), 404),
    ("post", "/decisions/ID%20/reward", dict(json={"reward": 1}), 404),
    ("post", "/decisions/%00/reward", dict(json={"reward": 1}), 404),
    ("post", "/decisions/-1/reward", dict(json={"reward": 1}), 404),
    ("post", "/decisions/0/reward", dict(json={"reward": 1}), 404),
    ("get", "/decisions/ID%20OR%201=1", {}, 404),
    ("get", "/decisions/<script>alert(1)</script>", {}, 404),
    ("get", f"/decisions/{'9' * 39}", {}, 404),
    ("get", "/decisions", {}, 405),
    ("get", "/redoc", {}, 404),
    ("get", "/%2e%2e/%2e%2e/etc/passwd", {}, 404),
    ("get", "/log.csv/../../etc/passwd", {}, 404),
    ("get", "/log.pickle", {}, 404),
    ("get", "/arms", {}, 405),
    ("put", "/decisions/ID/reward", dict(json={"reward": 1}), 405),
    ("patch", "/status", {}, 405),
    ("delete", "/", {}, 405),
    ("delete", "/decisions/ID", {}, 405),
    ("delete", "/arms/%27%3B%20DROP%20TABLE%20irsppl_journal", {}, 404),
    ("delete", f"/arms/{'x' * 201}", {}, 422),
    ("post", "/arms", dict(json={"arm": "beta(1,1)x2", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "beta(-1,1)", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "beta(nan,1)", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "", "label": "x"}), 422),
    ("post", "/arms", dict(json={"arm": "beta(1,1)", "label": "x" * 201}), 422),
    ("post", "/arms", dict(json={"arm": "/etc/passwd", "label": "x"}), 422),
    ("post", "/arms", dict(json={"label": "x"}), 422),
]


def test_bad_requests(experiment):
    """Each its 4xx; afterwards the experiment is as before."""
    assert len(BAD) >= 100
    web = client(experiment)
    one = experiment.ask()
    experiment.tell(one.id, 1)
    before = experiment.status()
    wrong = []
    for method, path, options, code in BAD:
        options = dict(options)
        if "content" in options:
            options.setdefault("headers", IS_JSON)
        answer = web.request(method, path.replace("ID", one.id), **options)
        if answer.status_code != code:
            wrong.append((method, path, str(options)[:90], answer.status_code, answer.text[:90]))
        assert "Traceback" not in answer.text and "/tmp" not in answer.text
    assert wrong == []
    assert experiment.status() == before
    assert experiment.events()[-1].kind == "tell"


def test_tokens(experiment):
    token, admin = "t" * 20, "a" * 20
    web = client(experiment, "shop.example", token=token, admin_token=admin)
    for given in (
        None,
        "",
        "Bearer",
        "Bearer x",
        f"bearer {token}",
        f"Bearer {token} "[:-2],
        token,
    ):
        headers = {} if given is None else {"authorization": given}
        for path in ("/", "/status", "/log.csv", "/metrics", "/advice"):
            assert web.get(path, headers=headers).status_code == 401
        assert web.post("/decisions", json={}, headers=headers).status_code == 401
    user, boss = ({"authorization": f"Bearer {one}"} for one in (token, admin))
    assert web.get("/health").status_code == 200
    assert web.post("/decisions", json={}, headers=user).status_code == 201
    arm = {"arm": "beta(1,1)", "label": "x"}
    assert web.post("/arms", json=arm, headers=user).status_code == 403
    assert web.delete("/arms/plain", headers=user).status_code == 403
    assert web.post("/arms", json=arm, headers=boss).status_code == 201
    assert web.get("/status", headers=boss).status_code == 200
    # A browser sends a token as a password: good for looking, and for nothing else.
    assert 'Basic realm="irsppl"' in web.get("/").headers["www-authenticate"]
    for password, code in ((token, 200), (admin, 200), ("x", 401), ("", 401)):
        assert web.get("/status", auth=("anyone", password)).status_code == code
        assert web.post("/decisions", json={}, auth=("anyone", password)).status_code == 401
    assert web.get("/status", headers={"authorization": "Basic ???"}).status_code == 401


@pytest.mark.parametrize("error", [RuntimeError, ValueError, DamagedError, OSError])
def test_what_goes_wrong_inside_stays_inside(experiment, monkeypatch, error):
    def fail(*given, **named):
        raise error("secret of the house")

    for name in ("status", "ask", "tell"):
        monkeypatch.setattr(experiment, name, fail)
    web = client(experiment)
    answers = [web.get("/status"), web.post("/decisions", json={})]
    answers.append(web.post("/decisions/x-0/reward", json={"reward": 1}))
    for answer in answers:
        assert answer.status_code == 500 and answer.json() == {"detail": "internal error"}


@pytest.mark.parametrize(
    "host, token, admin, told",
    [
        ("0.0.0.0", None, None, "two tokens"),
        ("0.0.0.0", "t" * 20, None, "two tokens"),
        ("shop.example", None, "a" * 20, "two tokens"),
        ("0.0.0.0", "short", "a" * 20, "16 characters"),
        ("0.0.0.0", "t" * 20, "t" * 20, "must differ"),
    ],
)
def test_an_open_address_needs_tokens(experiment, host, token, admin, told):
    with pytest.raises(ValueError, match=told):
        serve.serve(experiment, host, 0, token, admin)


def test_metrics_are_prometheus_text(experiment):
    """Every line by the grammar; a label is a label whatever is in it."""
    experiment.add_arm(irsppl.BetaBernoulli([1.0], [1.0]), label='a"b\\c')
    answer = client(experiment).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    sample = r'irsppl_[a-z_]+(\{arm="(?:[^"\\\n]|\\["\\n])*"\})? -?\d+(\.\d+)?(e-?\d+)?'
    kind = r"# TYPE irsppl_[a-z_]+ (counter|gauge)"
    lines = answer.text.splitlines()
    assert answer.text.endswith("\n") and all(re.fullmatch(f"{sample}|{kind}", x) for x in lines)
    assert r'irsppl_arm_pulls{arm="a\"b\\c"} 0' in lines


def test_a_body_without_a_length_is_limited_too(experiment):
    parts = (b" " * 1000 for _ in range(1000))
    answer = client(experiment).post("/decisions", content=parts, headers=IS_JSON)
    assert answer.status_code == 413 and experiment.status()["period"] == 0


def test_what_waits_together_is_answered_apart(experiment, monkeypatch):
    """Questions and rewards of one lot, a wrong one and one that breaks off among them."""
    first, writes = experiment.ask(), []
    transaction = experiment._store.transaction

    def counted(write=True):
        writes.append(write)
        return transaction(write)

    async def lot(desk, *given):
        return await asyncio.gather(*given, return_exceptions=True)

    monkeypatch.setattr(experiment._store, "transaction", counted)
    desk, good = direct.Desk(experiment), direct.Tell(reward=1)
    ask = direct.Ask(count=None, request=None)
    found = asyncio.run(
        lot(desk, desk.ask(ask), desk.tell("x-0", good), desk.tell(first.id, good), desk.ask(ask))
    )
    assert writes == [True]
    assert [found[0]["period"], found[3]["period"]] == [1, 2] and found[2]["reward"] == 1
    assert isinstance(found[1], direct.UnknownError)
    # A failure that leaves a trace: the lot is undone, and each is done for itself.
    decide, calls = experiment_module.decide, []

    def breaks_off(plan, state):
        calls.append(state.period)
        if len(calls) in (2, 5):  # the second of the lot, and when it is alone
            raise RuntimeError("broken off")
        return decide(plan, state)

    monkeypatch.setattr(experiment_module, "decide", breaks_off)
    found = asyncio.run(lot(desk, *(desk.ask(ask) for _ in range(3))))
    assert calls == [3, 4, 4, 3, 4, 4]
    assert [type(one) for one in found] == [dict, RuntimeError, dict]
    assert experiment.status()["period"] == 5 and len(experiment.log()) == 5


def test_a_server_process(tmp_path, experiment):
    """`irsppl serve` for real: clients that ask and tell when it is told to stop have lost nothing
    that was acknowledged, and the process ends by itself."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0] * 2, [1.0] * 2), 100_000)
    where = tmp_path / "long.db"
    irsppl.Experiment.create(where, bandit, "ts").close()
    command = [sys.executable, "-m", "irsppl", "serve", str(where), "--port", str(port)]
    server = subprocess.Popen(command, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    asked, told, broken = [], [], []

    def call(web, path, given):
        web.request("POST", path, json.dumps(given), IS_JSON)
        answer = web.getresponse()
        data = json.loads(answer.read())
        if answer.status not in (200, 201):
            broken.append(answer.status)
        return data

    def visit():
        web = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while True:
                made = call(web, "/decisions", {})
                asked.append((made["period"], made["arm"]))
                call(web, f"/decisions/{made['id']}/reward", {"reward": made["period"] % 2})
                told.append(made["period"])
        except (OSError, http.client.HTTPException):
            return  # the server has gone

    try:
        for _ in range(600):
            assert server.poll() is None
            try:
                with contextlib.closing(socket.create_connection(("127.0.0.1", port), 1)):
                    break
            except OSError:
                time.sleep(0.1)
        threads = [threading.Thread(target=visit) for _ in range(4)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while len(told) < 40 and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) in (0, -signal.SIGTERM)  # as whoever it was told to stop by
    for thread in threads:
        thread.join()
    assert len(told) >= 40 and broken == []
    with irsppl.Experiment.open(where) as after:
        table = after.log()
    rows = dict(zip(table["period"], table["arm"], strict=True))
    assert sorted(rows) == list(range(len(rows)))
    assert all(rows[period] == arm for period, arm in asked)
    known = dict(zip(table["period"], table["reward"], strict=True))
    assert all(known[period] == period % 2 for period in told)
