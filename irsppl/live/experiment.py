"""`Experiment`: ask for a decision, tell its reward, at any time and from any process."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from irsppl._checks import as_count, as_key, one_of
from irsppl._fields import changed
from irsppl.bandit import Bandit
from irsppl.beliefs import sized
from irsppl.live import codec, models, store, views
from irsppl.live.beliefs import JaxBelief, joined, restricted
from irsppl.live.checks import as_number, check_text
from irsppl.live.decide import decide
from irsppl.live.errors import ConflictError, InputError, UnknownError
from irsppl.live.journal import Event
from irsppl.live.kept import Kept
from irsppl.live.state import TOLD, State, fold
from irsppl.policies import AgentPolicy, FunctionPolicy, find_policy

if TYPE_CHECKING:
    from irsppl.live.advice import Advice, ArmAdvice
    from irsppl.live.logs import OffPolicy


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision of an experiment.

    propensity: probability with which this arm was played, given the futures that were sampled.
    """

    id: str
    arm: int
    label: str
    propensity: float
    period: int

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Experiment(Kept):
    """A bandit that is played in earnest, kept in a database. Use `create` or `open`."""

    # ---- beginning and end
    @classmethod
    def create(
        cls,
        where: Any,
        bandit: Bandit,
        policy: Any = "irs.index",
        seed: int = 0,
        floor: float = 0.0,
    ) -> Experiment:
        """A new experiment in a file (SQLite) or at a database URL (PostgreSQL).

        floor: least probability of every open arm in each decision. seed: all decisions' random
        numbers follow from it and from the period.
        """
        if not isinstance(bandit, Bandit):
            raise ValueError(f"bandit must be an irsppl.Bandit, got {bandit!r}")
        if int(bandit.period) or bandit.pending:
            raise ValueError(
                f"bandit must be at its first period, got one at period {int(bandit.period)}: "
                "make a new Bandit from its belief and what remains"
            )
        for label in bandit.arm_labels:
            check_text("labels", label)
        name = policy if isinstance(policy, str) else None
        policy = find_policy(policy)
        if isinstance(policy, FunctionPolicy | AgentPolicy):
            raise ValueError(
                "policy must be a policy of irsppl, by name or as an object: a function cannot be "
                "stored, and code in a database is never run"
            )
        policy.verify(bandit)
        seed = as_count("seed", seed, minimum=0)
        if seed >= 2**63:
            raise ValueError(f"seed must be below 2**63, got {seed}")
        floor = as_number("floor", floor)
        if floor < 0 or floor * bandit.num_arms > 1:
            raise ValueError(
                f"floor must lie between 0 and 1 / {bandit.num_arms}, so that all arms can have "
                f"it, got {floor!r}"
            )
        from irsppl import __version__

        data, used = codec.pack_with_models(bandit)
        facts = {
            "uid": secrets.token_hex(4),
            "version": __version__,
            "bandit": np.frombuffer(data, np.uint8),
            "policy": policy,
            "policy_name": name or policy.name,
            "seed": seed,
            "floor": floor,
            "model": models.describe(used),
        }
        packed = codec.pack(facts)  # refuses what cannot be stored before anything is written
        place = store.Store(where, create=True)
        try:
            place.create(packed)
        except BaseException:
            place.close()
            raise
        made, _ = place.facts()
        self = cls(place, facts, bandit, made)
        description = facts["model"]
        self._library = models.Library(used, description, description and description["path"])
        return self

    @classmethod
    def open(
        cls, where: Any, model: Any = None, *, accept_changed_model: bool = False
    ) -> Experiment:
        """The experiment at `where`, as far as it has come.

        model: the file with the arms' NumPyro functions, where the experiment has such arms, and
        only there. A file that has changed since is refused, unless `accept_changed_model`: then
        all rewards so far are taken into account anew, under the changed model.
        """
        place = store.Store(where)
        try:
            place.check()
            made, data = place.facts()
            facts = codec.unpack(data, (), f"the record of {place.name}")
            description, agreed = facts["model"], None
            if description is not None:
                with place.transaction(write=False) as tx:
                    notes = store.of_kind(tx, "model")
                description = description | (json.loads(notes[-1].body or "{}") if notes else {})
            used, agreed = models.bring(description, model, accept_changed_model)
            bandit = codec.unpack(facts["bandit"].tobytes(), used, f"the bandit of {place.name}")
            differs = description is not None and (
                agreed or description["sha256"] != facts["model"]["sha256"]
            )
            if differs:
                belief = sized(models.rebuilt(bandit.belief, used), int(bandit.remaining))
                bandit = changed(bandit, belief=belief)
            self = cls(place, facts, bandit, made)
            self._library = models.Library(used, agreed or description, model, bool(differs))
            if agreed is not None:
                with self._writing(caught_up=False) as tx:
                    store.drop_snapshots(tx)
                    self._load(tx)
                    self._append(tx, self._apply("model", body=json.dumps(agreed)))
            self._look()
        except BaseException:
            place.close()
            raise
        return self

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self._look()
        return (
            f"Experiment({self._facts['policy_name']}, {len(state.open_arms)} open arms, period "
            f"{state.period} of {state.horizon}, {len(state.pending)} pending)"
        )

    # ---- ask
    @overload
    def ask(self, count: None = None, *, request: str | None = None) -> Decision: ...
    @overload
    def ask(self, count: int, *, request: str | None = None) -> list[Decision]: ...
    def ask(self, count: int | None = None, *, request: str | None = None) -> Any:
        """The next decision; with `count`, a list decided on the same rewards.

        Later ones of a list know the earlier as pending. request: a name for this question, so that
        one that is repeated gets its first answer.
        """
        many = 1 if count is None else as_count("count", count)
        if request is not None:
            check_text("request", request)
        with self._writing() as tx:
            if request is not None:
                before = store.asked_with(tx, request)
                if before is not None:
                    return self._answered(tx, before, count, request)
            made = self._ask(tx, count, many, request)
        return made[0] if count is None else made

    def _ask(self, tx: Any, count: int | None, many: int, request: str | None) -> list[Decision]:
        state, events = self._now, []
        if state.remaining < many:
            raise ConflictError(self._full(state, many))
        self._dirty = True
        for i in range(many):
            if state.remaining < 1:
                raise ConflictError(self._full(state, many))
            choice = decide(self._plan, state)
            if choice.arm < 0:
                raise ConflictError(
                    f"the policy would rather keep the {state.budget:g} that is left than play: "
                    "no arm is worth its price"
                )
            named: dict[str, Any] = {}
            if request is not None and i == 0:
                named = {"request": request, "body": json.dumps({"count": count})}
            played = {"arm": choice.arm, "propensity": choice.propensity}
            events.append(self._apply("ask", period=state.period, **played, **named))
        self._append(tx, *events)
        return [self._decision(event) for event in events]

    def _full(self, state: State, many: int) -> str:
        if state.remaining > 0:
            return f"count must be at most {state.remaining}, what remains to be played, got {many}"
        if state.money is not None and state.period < state.horizon:
            return f"nothing remains to be played: {state.budget:g} is left to spend"
        return f"nothing remains to be played: all {state.horizon} periods are over"

    def _answered(self, tx: Any, first: Event, count: int | None, request: str) -> Any:
        was = json.loads(first.body or "{}").get("count")
        if was != count:
            raise ConflictError(
                f"request {request!r} was for {was or 1} decision(s) before, now for {count or 1}"
            )
        events = store.between(tx, first.seq, first.seq + (was or 1) - 1)
        made = [self._decision(event) for event in events]
        return made[0] if count is None else made

    def _decision(self, event: Event) -> Decision:
        assert event.period is not None and event.arm is not None and event.propensity is not None
        label = self._now.labels[event.arm]
        return Decision(self._id(event.period), event.arm, label, event.propensity, event.period)

    def _id(self, period: int) -> str:
        return f"{self._facts['uid']}-{period}"

    def _period(self, id: Any, state: State) -> int:
        uid, _, number = str(id).partition("-") if isinstance(id, str) else ("", "", "")
        if uid != self._facts["uid"] or not (number.isascii() and number.isdecimal()):
            raise UnknownError(f"id must be that of a decision of this experiment, got {id!r}")
        if len(number) > 12 or str(int(number)) != number or int(number) >= state.period:
            raise UnknownError(f"id {id!r} is unknown: {state.period} decisions have been made")
        return int(number)

    # ---- tell
    def tell(self, id: Any, reward: Any = None, correct: bool = False) -> None:
        """The reward of a decision, at any time and in any order; or of several, {id: reward}.

        The same reward again is harmless, another one an error, unless `correct`: then the belief
        is what it would be had the reward been this from the first.
        """
        given = (
            dict(id) if isinstance(id, Mapping) else {id: reward} if isinstance(id, str) else None
        )
        if given is None:
            raise ValueError(f"id must be the text that ask gave, or a dict {{id: reward}}: {id!r}")
        rewards = {one: as_number("reward", value) for one, value in given.items()}
        with self._writing() as tx:
            state = self._now
            fresh: dict[int, float] = {}
            changed: dict[int, float] = {}
            for one, value in rewards.items():
                period = self._period(one, state)
                self._check_reward(state, period, value)
                if state.status[period] != TOLD:
                    fresh[period] = value
                elif state.rewards[period] != value:
                    if not correct:
                        raise ConflictError(
                            f"decision {one} was told the reward {state.rewards[period]:g} before; "
                            f"to replace it by {value:g} give correct=True"
                        )
                    changed[period] = value
            try:
                events = [self._apply("tell", period=p, reward=r) for p, r in fresh.items()]
                events += [self._apply("correct", period=p, reward=r) for p, r in changed.items()]
                if changed:  # snapshots hold what had been told before
                    store.append(tx, events)
                    store.drop_snapshots(tx)
                    self._load(tx)
                else:
                    self._append(tx, *events)
            except codec.DamagedError:
                raise
            except ValueError as error:  # possible by itself, but no belief follows from it
                raise InputError(str(error)) from None

    def _check_reward(self, state: State, period: int, reward: float) -> None:
        arm = state.arms[period]
        try:
            if arm >= self._first_arms and isinstance(state.held, JaxBelief):
                state.held.current().check_reward(arm, reward)  # a model of its own
            else:
                self._check_support(min(arm, self._first_arms - 1), reward)
            if abs(reward) > self._most:
                self._start.belief.as_rewards(0, reward)  # refuses it, and says why
        except ValueError as error:
            raise InputError(str(error)) from None

    def expire(self, after: float) -> list[str]:
        """Wait no longer for rewards of decisions that are older than `after` seconds.

        Their ids. The belief then learns nothing from them; a reward that comes after all is taken.
        """
        after = as_number("after", after)
        if after < 0:
            raise ValueError(f"after must be a number of seconds, at least 0, got {after!r}")
        with self._writing() as tx:
            limit = time.time() - after
            old = [period for period, asked in self._now.pending.items() if asked <= limit]
            self._append(tx, *[self._apply("expire", period=period) for period in old])
        return [self._id(period) for period in old]

    # ---- arms
    def add_arm(self, belief: Any, label: str) -> int:
        """One more arm from now on, of the same kind as the others; its number.

        belief: of one arm. A NumPyro arm must be a function in the experiment's own file, in the
        same representation as the others.
        """
        check_text("label", label)
        with self._writing() as tx:
            state = self._now
            if label in state.labels:
                raise ConflictError(f"label {label!r} is taken; labels: {', '.join(state.labels)}")
            if getattr(belief, "num_arms", None) != 1:
                raise ValueError(f"belief must be a belief of one arm, got {belief!r}")
            for constraint in self._start.limits:
                constraint.check_more_arms()
            if self._plan.floor * (len(state.open_arms) + 1) > 1:
                raise ValueError(f"a floor of {self._plan.floor:g} leaves no room for one more arm")
            joined(state.held.current(), belief)  # refuses what does not fit
            known = self._library.known
            data, used = codec.pack_with_models(belief, known)
            body: dict[str, Any] = {"label": label, "belief": data.hex()}
            if used[len(known) :]:
                functions = self._library.described(used[len(known) :])
                body |= {"first": len(known), "functions": functions}
            self._append(tx, self._apply("add", body=json.dumps(body)))
            self._plan.policy.verify(state.bandit())
            return state.num_arms - 1

    def retire_arm(self, label: str) -> None:
        """Decide for this arm no more. Rewards of its past decisions can still be told."""
        with self._writing() as tx:
            state = self._now
            if label not in state.labels:
                raise UnknownError(f"unknown label {label!r}; labels: {', '.join(state.labels)}")
            arm = state.labels.index(label)
            if not state.open[arm]:
                return
            left = [other for other in state.open_arms if other != arm]
            if not left:
                raise ConflictError(f"{label!r} is the last open arm: it cannot be retired")
            restricted(state.held.current(), left)  # refuses where arms cannot be told apart
            self._append(tx, self._apply("retire", arm=arm))

    # ---- looking
    @property
    def bandit(self) -> Bandit:
        """The bandit of the open arms, as play has come to it; `arm_labels` says which they are."""
        with self._store.lock:
            return self._look().bandit()

    @property
    def pending(self) -> list[str]:
        """Ids of the decisions whose reward is awaited, oldest first."""
        with self._store.lock:
            return [self._id(period) for period in sorted(self._look().pending)]

    @property
    def remaining(self) -> int:
        return self._look().remaining

    def arms(self) -> list[dict[str, Any]]:
        """What is known of every arm, retired ones included."""
        with self._store.lock:
            return views.arms(self._look())

    def status(self) -> dict[str, Any]:
        """Where the experiment is, in numbers and text."""
        facts = {
            "where": self._store.name,
            "policy": self._facts["policy_name"],
            "seed": self._plan.seed,
            "floor": self._plan.floor,
            "created_at": self.created_at,
        }
        with self._store.lock:
            return facts | views.status(self._look())

    def explain(self, id: str) -> dict[str, Any]:
        """Why a decision was made: what was believed then, and the decision drawn once more."""
        period = self._period(id, self._look())
        events = self.events()
        place = next(e.seq for e in events if e.kind == "ask" and e.period == period)
        event, then = events[place], fold(self._start, events[:place], self._library)
        return self._decision(event).to_dict() | views.explanation(self._plan, then, event)

    def reasons(self, last: int = 20) -> dict[int, str]:
        """Why each of the last decisions was made, in a sentence, by period."""
        last = as_count("last", last)
        return views.reasons(self._plan, self._start, self.events(), last, self._library)

    def advise(self, num_samples: int | None = None) -> Advice:
        """Is it worth going on? What stopping now could cost, and how fast that has been falling.

        num_samples: futures for the bound (default: as many as take a few seconds).
        """
        from irsppl.live.advice import advise

        with self._reading() as tx:
            state = self._catch_up(tx)
            if state.remaining < 1:
                raise ConflictError(self._full(state, 1))
            history = store.advice_history(tx)
            bandit, bounded, period = state.bandit(), state.bandit(awaited=True), state.period
        key = (self._plan.seed + period) & 0xFFFFFFFF
        advice = advise(bandit, key, num_samples, tuple(history), bounded)
        # Not part of the journal: it could be computed again. Often enough to see it fall.
        if not history or period - history[-1]["period"] >= state.horizon / 100:
            with self._writing() as tx:
                store.save_advice(tx, period, advice.loss, advice.bound)
        return advice

    def believed(self) -> tuple[ArmAdvice, ...]:
        """Of every arm, retired ones included: its mean, a 95 % interval, its chance to be best.

        The best is one of the open arms.
        """
        from irsppl.live.advice import described, draw_means

        with self._store.lock:
            state = self._look()
            belief, labels, playable = state.held.current(), state.labels, list(state.open)
            key = as_key((self._plan.seed + state.period) & 0xFFFFFFFF)
        mean = np.asarray(belief.predictive_mean(), np.float64)
        return described(labels, mean, draw_means(belief, key), playable)

    # ---- for others
    def log(self, format: str = "pandas") -> Any:
        """All decisions: a pandas frame, or format="obp" for the Open Bandit Pipeline."""
        one_of("format", format, ("pandas", "obp"))
        from irsppl.live import logs

        state = self._look()
        table = logs.frame(self.events(), state.labels, self._id)
        return table if format == "pandas" else logs.open_bandit(table, state.num_arms)

    def report(self, path: Any, num_samples: int | None = None) -> None:
        """Write a report as one HTML file that needs no other: numbers, pictures, the advice."""
        from irsppl.live.report import SHOWN, page

        state = self._look()
        advice = self.advise(num_samples) if state.remaining > 0 else None
        text = page(self.status(), self.log(), self.believed(), advice, self.reasons(SHOWN))
        pathlib.Path(path).write_text(text, encoding="utf-8")

    def evaluate(self, target: Any, seed: int = 0) -> dict[str, OffPolicy]:
        """What another policy would have earned per decision at the moments of this log.

        target: an arm's label, probabilities of the arms, or a policy. Estimates "ips" (inverse
        propensity), "snips" (self-normalised) and "dr" (doubly robust, with what was believed at
        each moment as the model of rewards); `.value`, `.stderr`, `.interval(level)`.
        """
        from irsppl.live import logs

        labels = self._look().labels
        past = self.events(), self._start, labels
        return logs.evaluate(*past, target, seed, self._library, made_by=self._plan)
