"""Proximal policy optimisation of a recurrent policy (Schulman et al. 2017; VER, section 4)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.distributed.group import Alone, Group, average_gradients
from tpsrl.rl.learning.auxiliary import Auxiliary, make_auxiliary
from tpsrl.rl.learning.entropy import coefficient_of
from tpsrl.rl.learning.feature_batch import FeatureBatch, FeatureSizes
from tpsrl.rl.learning.guarded_adam import GuardedAdam
from tpsrl.rl.learning.guarded_lamb import GuardedLamb
from tpsrl.rl.learning.observed import follow
from tpsrl.rl.learning.proximal import proximal_log_prob
from tpsrl.rl.learning.rates import adapted, batch_factor, desired_kl, rate_factor
from tpsrl.rl.learning.returns import explained_variance, gae, importance_weights
from tpsrl.rl.learning.sequences import Minibatch, minibatches
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.learning.teaching import Label, Teacher
from tpsrl.rl.learning.value_fit import fit_value, squared_errors
from tpsrl.rl.policy.actor_critic import VALUE_PARTS, ActorCritic, PolicyStep

# Returns the loss () of a policy on demonstrations, on a new batch at each call.
Imitation = Callable[[ActorCritic], torch.Tensor]

# Metrics averaged over mini-batches, in the order in which `_step` returns them.
_MEASURED = (
    "policy_loss",
    "value_loss",
    "entropy",
    "entropy_coef",
    "kl",
    "clip_fraction",
    "ratio",
    "importance_weight",
    "grad_norm",
    "imitation_loss",
    "correction",
    "teacher_loss",
    "auxiliary_loss",
    "action_change",
)
_KL = _MEASURED.index("kl")


@dataclasses.dataclass(frozen=True, slots=True)
class _Target:
    """Columns and weights that stay fixed during an update.

    Attributes:
        advantage: column of advantages
        weight: column of importance weights against sampling bias
        log_prob: column of log probabilities under the policy at the start of the update
        correction: column of proximal / behaviour, for rows collected by an older policy
        imitation_coef: weight of the imitation loss
        value_only: whether only the value is trained
        share: weight of this rank
        teacher_coef: weight of the distillation loss
        label: columns of the teacher's labels; None if their weight is 0
    """

    advantage: torch.Tensor
    weight: torch.Tensor
    log_prob: torch.Tensor
    correction: torch.Tensor
    imitation_coef: float
    value_only: bool
    share: float
    teacher_coef: float
    label: Label | None

    def labels(self, rows: torch.Tensor) -> Label:
        """Returns the teacher's labels of rows."""
        assert self.label is not None
        return Label(self.label.mean[rows], self.label.std[rows])


class PPO:
    """Updates a policy with one finished rollout at a time.

    Args:
        policy: the policy, whose parameters are changed in place; its `mask` gives the action
            dimensions that count
        settings: settings of the learner
        seed: seed of the order of sequences
        imitation: loss on demonstrations, added in each mini-batch with weight `imitation_coef`,
            which decays linearly to 0 at `imitation_until`
        group: ranks that train the same policy, each on its own rollouts; all must start with the
            same policy and make equally many updates
        teacher: teacher that labels each state of a rollout, for `teacher_coef`

    Attributes:
        rate: learning rate before the schedule's factor: with the schedule "adaptive" that of the
            next epoch, otherwise that of the settings

    Raises:
        UserError: the settings are inconsistent.
    """

    def __init__(
        self,
        policy: ActorCritic,
        settings: PPOSettings,
        seed: int = 0,
        imitation: Imitation | None = None,
        group: Group | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        settings.check()
        if settings.teacher_coef > 0.0 and teacher is None:
            raise UserError("teacher_coef: there is no teacher; set it to 0")
        if settings.imitation_coef > 0.0 and imitation is None:
            raise UserError("imitation_coef: there are no demonstrations to imitate; set it to 0")
        if settings.value_epochs and policy.critic is None:
            raise UserError(
                "value_epochs: there is no separate value network; set it to 0, or "
                "policy.critic=true"
            )
        self.policy, self.settings, self._imitation = policy, settings, imitation
        self.group: Group = group or Alone()
        self._parameters = {n: p for n, p in policy.named_parameters() if p.requires_grad}
        self._auxiliary = _auxiliary(policy, settings)
        if self._auxiliary is not None:
            self._parameters |= self._auxiliary.parameters()
        self._policy_parameters = [
            p for name, p in self._parameters.items() if not name.startswith(VALUE_PARTS)
        ]
        self.device = next(iter(self._parameters.values())).device
        self._teacher = None if teacher is None else teacher.to(self.device)
        self.generator = torch.Generator().manual_seed(seed)
        self.rate = settings.learning_rate
        self._desired_kl = settings.desired_kl
        self.optimizer = _optimizer(self._parameters, settings)
        self.entropy = coefficient_of(settings, self.device)

    def update(
        self,
        rollout: Rollout,
        progress: float = 0.0,
        value_only: bool = False,
        version: int | None = None,
    ) -> dict[str, float]:
        """Trains on a finished rollout; returns metrics, as means over its mini-batches.

        Metrics of mini-batches: policy and value loss, entropy and its coefficient, "kl" from the
        policy at the start (low-variance estimate: mean of ratio - 1 - log ratio), "clip_fraction"
        of ratios outside the clip range, mean ratio, importance weight, gradient norm before
        clipping, imitation loss, "correction" of steps by an older policy, teacher loss, auxiliary
        loss. Metrics of the rollout: explained variance, share of fresh rows, mean age in policy
        versions, learning rate, epochs made. The host does not wait for the device within the
        update, unless `target_kl` is set or the schedule is "adaptive".

        Args:
            rollout: a finished rollout
            progress: completed share of the training, in [0, 1]
            value_only: whether only the value's own parameters and their moments are changed. The
                other gradients are removed: gradients of zero would leave Adam with zero moments,
                whose bias correction makes the first real steps three times too long.
            version: version of the policy, as counted in the rollout; None: the newest that
                collected

        Raises:
            RunError: a loss is not finite; parameters and optimizers stay as the last finite
                mini-batch left them.
        """
        settings = self.settings
        factor = rate_factor(settings.schedule, progress)
        batch = rollout.size * self.group.size / settings.minibatches
        factor *= batch_factor(batch, settings.base_batch, progress)
        self._desired_kl = desired_kl(settings.desired_kl, settings.final_kl, progress)
        begun_with = self.rate * factor
        explained = self._estimate(rollout)
        coefficient = 0.0 if value_only else settings.imitation_coef * self._decay(progress)
        version = _newest(rollout) if version is None else version
        target = self._target(rollout, version, coefficient, value_only, progress)
        self.optimizer.reset()
        total, epochs = torch.zeros(len(_MEASURED), device=self.device), 0
        over = False
        while not over:
            self._set_rates(factor)
            before = total[_KL].clone()
            for part in minibatches(rollout, settings.minibatches, self.generator):
                total += self._step(rollout, part, target)
            epochs += 1
            over = epochs == settings.epochs
            if settings.target_kl is not None or self._adaptive:
                moved = total[_KL] - before
                self.group.average([moved], target.share)
                kl = float(moved) / settings.minibatches
                over |= settings.target_kl is not None and not kl <= settings.target_kl
                self._adapt(kl, over, value_only)
        if settings.value_epochs:
            args = (target.weight, self.optimizer, settings.value_epochs, settings.norm_limit)
            fit_value(self.policy, rollout, *args, self.generator, self.group, target.share)
        self.optimizer.zero_grad()
        self.group.average([total], target.share)
        mean = (total / (epochs * settings.minibatches)).tolist()
        if bool(self.optimizer.tripped):
            raise RunError(_complaint(self.policy, rollout))
        # At the end, since during the update the policy must normalise observations as it did
        # when it collected them.
        follow(self.policy, rollout, self.group)
        return dict(zip(_MEASURED, mean, strict=True)) | {
            "imitation_coef": coefficient,
            "teacher_coef": target.teacher_coef,
            "explained_variance": explained,
            "fresh": rollout.num_fresh / len(rollout.rows),
            "age": _age(rollout, version),
            "learning_rate": begun_with,
            "epochs": float(epochs),
        }

    @property
    def _adaptive(self) -> bool:
        return self.settings.schedule == "adaptive"

    def _decay(self, progress: float) -> float:
        """Returns the remaining share of the imitation loss's weight."""
        until = self.settings.imitation_until
        return max(0.0, 1.0 - progress / until) if until > 0.0 else 0.0

    def _set_rates(self, factor: float) -> None:
        """Sets the learning rates of the next steps; `factor` is that of the schedule."""
        of_value = self.settings.value_learning_rate
        self.optimizer.set_rates(
            self.rate * factor, None if of_value is None else of_value * factor
        )

    def _adapt(self, kl: float, last: bool, value_only: bool) -> None:
        """Adapts the learning rate after an epoch.

        The KL after the first of several epochs is always small, so the rate may rise only after
        the last epoch; it may fall after each.
        """
        settings = self.settings
        if self._adaptive and not value_only:
            bounds = settings.rate_min, settings.rate_max
            self.rate = adapted(self.rate, kl, self._desired_kl, bounds, may_rise=last)

    @property
    def shuffle(self) -> torch.Tensor:
        """State of the random order of mini-batches, the only state that differs between ranks."""
        return self.generator.get_state()

    @shuffle.setter
    def shuffle(self, state: torch.Tensor) -> None:
        self.generator.set_state(state.cpu())

    def state_dict(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Returns the state for an exact resumption, without the policy: tensors, and JSON data."""
        tensors = {"shuffle": self.shuffle}
        tensors |= {f"entropy.{k}": v for k, v in self.entropy.state_dict().items()}
        tensors |= {f"adam.{k}": v for k, v in self.optimizer.state_dict().items()}
        if self._auxiliary is not None:
            tensors |= self._auxiliary.state_dict()
        note = {"parameters": len(self._parameters)}
        return tensors, note | ({"rate": self.rate} if self._adaptive else {})

    def load_state_dict(self, tensors: dict[str, torch.Tensor], note: dict[str, Any]) -> None:
        """Restores the learner exactly from `state_dict`; the settings are those of this object.

        An adapted learning rate is clamped to the bounds of the settings.

        Raises:
            UserError: the state does not fit this policy, or is damaged.
        """
        own, about = self.state_dict()
        if note.get("parameters") != about["parameters"]:
            saved = f"{note.get('parameters')} parameters in the checkpoint"
            raise UserError(f"learner: {saved}, {about['parameters']} here")
        for name in sorted(own.keys() ^ tensors.keys()):
            raise UserError(f"learner: the checkpoint {_which(name in own)} {name}")
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise UserError(
                    f"learner: {name} is of shape {tuple(tensors[name].shape)} in the checkpoint, "
                    f"{tuple(tensor.shape)} here"
                )
            given = tensors[name]
            # Without a bonus, the logarithm of the coefficient is -inf in both.
            if given.dtype != tensor.dtype or not (given.isfinite() | given.eq(tensor)).all():
                raise UserError(f"learner: {name} in the checkpoint is damaged")
            if name.startswith("adam.exp_avg_sq.") and (given < 0).any():
                raise UserError(f"learner: {name} in the checkpoint is below 0")
        self.shuffle = tensors["shuffle"]
        self.entropy.load_state_dict(_under("entropy.", tensors))
        self.optimizer.load_state_dict(_under("adam.", tensors))
        if self._auxiliary is not None:
            self._auxiliary.load_state_dict(_under(self._auxiliary.prefix, tensors))
        if self._adaptive:
            rate = float(note.get("rate", self.rate))
            self.rate = min(max(rate, self.settings.rate_min), self.settings.rate_max)

    def _target(
        self,
        rollout: Rollout,
        version: int,
        imitation_coef: float,
        value_only: bool,
        progress: float,
    ) -> _Target:
        """Computes the fixed columns and weights for an update by this version of the policy."""
        batch = len(rollout.rows) // self.settings.minibatches
        log_prob = rollout.log_prob
        if self.settings.surrogate:  # only the surrogate uses it
            log_prob = proximal_log_prob(self.policy, rollout, version, batch)
        correction = (log_prob - rollout.log_prob).exp().clamp(max=self.settings.correction_max)
        advantage, weight = self._advantage(rollout), self._weight(rollout)
        share = 1.0 if self.settings.equal_ranks else float(rollout.num_fresh)
        coefficient = 0.0 if value_only else self.settings.teacher_coef
        if self.settings.teacher_falls:
            coefficient *= max(0.0, 1.0 - progress)
        label = None
        if coefficient > 0.0 and self._teacher is not None:
            label = self._teacher.label(rollout.observation)
        return _Target(
            advantage,
            weight,
            log_prob,
            correction,
            imitation_coef,
            value_only,
            share,
            coefficient,
            label,
        )

    def _estimate(self, rollout: Rollout) -> float:
        """Writes advantages and returns of fresh rows into the rollout.

        Returns:
            The explained variance.
        """
        rows = rollout.rows[: rollout.num_fresh]
        if not len(rows):
            return 0.0
        index = torch.as_tensor(rows, device=rollout.device)
        value = rollout.value[index].cpu().numpy()
        column = (rollout.reward, rollout.bootstrap, rollout.terminated, rollout.truncated)
        reward, bootstrap, terminated, truncated = (part[rows] for part in column)
        steps = (reward, value, bootstrap, terminated, truncated, rollout.env[rows])
        settings = self.settings
        advantage, returns = gae(*steps, settings.gamma, settings.gae_lambda)
        if settings.value_lambda is not None:
            _, returns = gae(*steps, settings.gamma, settings.value_lambda)
        rollout.advantage[index] = torch.as_tensor(advantage, device=rollout.device)
        rollout.returns[index] = torch.as_tensor(returns, device=rollout.device)
        return explained_variance(value, returns)

    def _advantage(self, rollout: Rollout) -> torch.Tensor:
        """Returns the advantage column, normalised over all ranks if the settings say so."""
        if not self.settings.normalise_advantage:
            return rollout.advantage
        chosen = rollout.advantage[torch.as_tensor(rollout.rows, device=rollout.device)].double()
        mean = chosen.mean()
        self.group.average([mean], len(chosen))
        variance = (chosen - mean).square().mean()
        self.group.average([variance], len(chosen))
        return (rollout.advantage - mean.float()) / (variance.sqrt().float() + 1e-8)

    def _weight(self, rollout: Rollout) -> torch.Tensor:
        """Returns a column of importance weights, 1 for stale rows."""
        rows = rollout.rows[: rollout.num_fresh]
        weight = np.ones(rollout.capacity, np.float32)
        steps, envs = self.group.totals([len(rows), rollout.num_envs])
        weight[rows] = importance_weights(
            rollout.env[rows],
            steps / envs,
            self.settings.importance_max,
            self.settings.importance_renormalise,
        )
        return torch.as_tensor(weight, device=rollout.device)

    def _step(self, rollout: Rollout, part: Minibatch, target: _Target) -> torch.Tensor:
        """Makes one gradient step; returns the metrics of `_MEASURED`, computed before the step."""
        settings, rows = self.settings, part.rows
        observation = {name: t.index_select(0, rows) for name, t in rollout.observation.items()}
        previous = rollout.previous_action.index_select(0, rows)
        step = self.policy.evaluate(observation, previous, part.pack)
        mean, std, value = step.mean.float(), step.std.float(), step.value.float()
        log_prob = self.policy.log_prob(mean, std, rollout.action.index_select(0, rows))
        entropy = self.policy.entropy(mean, std)
        weights, alpha = target.weight[rows], self.entropy.value

        log_ratio = log_prob - target.log_prob[rows]
        ratio, correction = log_ratio.exp(), target.correction[rows]
        surrogate = clipped_loss(ratio, target.advantage[rows], settings.clip)
        policy_loss = (weights * correction * surrogate).mean()
        held = (rollout.value[rows], settings.clip) if settings.clip_value_loss else None
        errors = squared_errors(value, rollout.returns[rows], held)
        value_loss = (weights * errors).mean()
        bonus = (weights * entropy).mean()
        loss = settings.value_coef * value_loss
        imitation, taught, auxiliary = (
            torch.zeros_like(loss),
            loss.new_zeros(()),
            loss.new_zeros(()),
        )
        if not target.value_only and settings.surrogate:
            loss = loss + policy_loss - alpha * bonus
        jump = (mean - previous.clamp(-1.0, 1.0))[:, self.policy.amounts]
        change = jump.square().sum(1).mean()
        if not target.value_only and settings.smooth_coef > 0.0:
            loss = loss + settings.smooth_coef * change
        if target.label is not None and self._teacher is not None:
            weight = settings.switch_weight
            taught = self._teacher.distance(mean, target.labels(rows), self.policy.mask, weight)
            loss = loss + target.teacher_coef * taught
        if self._auxiliary is not None and not target.value_only:
            auxiliary = self._auxiliary.loss(self._features(rollout, part, step, observation))
            loss = loss + self._auxiliary.coefficient * auxiliary
        if target.imitation_coef > 0.0 and self._imitation is not None:
            imitation = self._imitation(self.policy)
            loss = loss + target.imitation_coef * imitation

        self.optimizer.zero_grad()
        loss.backward()
        if target.value_only:
            for parameter in self._policy_parameters:
                parameter.grad = None
        parameters = self._parameters.values()
        mean_loss = average_gradients(self.group, parameters, target.share, loss)
        norm = nn.utils.clip_grad_norm_(parameters, settings.norm_limit)
        self.optimizer.watch(mean_loss, norm)
        self.optimizer.step()
        if not target.value_only:
            slack = (weights * (entropy.detach() - self.entropy.target)).mean()
            self.group.average([slack], target.share)
            self.entropy.update(slack, self.optimizer.tripped)

        with torch.no_grad():
            kl = (ratio - 1.0 - log_ratio).mean()
            outside = ((ratio - 1.0).abs() > settings.clip).float().mean()
            measured = [policy_loss, value_loss, entropy.mean(), alpha, kl, outside]
            measured += [ratio.mean(), weights.mean(), norm, imitation, correction.mean()]
            measured += [taught, auxiliary, change]
            return torch.stack(measured)

    def _features(
        self,
        rollout: Rollout,
        part: Minibatch,
        step: PolicyStep,
        observation: dict[str, torch.Tensor],
    ) -> FeatureBatch:
        """Returns the auxiliary loss's inputs for a mini-batch."""
        return FeatureBatch.of(
            step.features.float(),
            None if step.vision is None else step.vision.float(),
            rollout.action.index_select(0, part.rows),
            observation,
            part.pack.batch_sizes,
            self.generator,
        )


def _optimizer(parameters: Mapping[str, torch.Tensor], settings: PPOSettings) -> GuardedAdam:
    """Creates the optimizer of the settings."""
    of_value = [name for name in parameters if name.startswith(VALUE_PARTS)]
    given = (parameters, settings.learning_rate, settings.adam_eps, of_value)
    if settings.optimizer == "lamb":
        return GuardedLamb(*given, settings.weight_decay, settings.trust_min)
    return GuardedAdam(*given)


def clipped_loss(ratio: torch.Tensor, advantage: torch.Tensor, clip: float) -> torch.Tensor:
    """Returns PPO's loss (k,) for ratios (k,) of new to old probability.

    Schulman et al. 2017, equation 7.
    """
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return -torch.minimum(ratio * advantage, clipped * advantage)


def _auxiliary(policy: ActorCritic, settings: PPOSettings) -> Auxiliary | None:
    """Creates the auxiliary loss of the settings, None for none."""
    name = settings.auxiliary_name
    if name is None:
        return None
    trunk = policy.trunk
    vision = None if trunk.encoder is None else trunk.vision_size
    shapes, memory = policy.spec.observations, trunk.recurrent is not None
    sizes = FeatureSizes(trunk.size, vision, policy.spec.action_size, shapes, memory)
    made = make_auxiliary(name, sizes, settings.auxiliary_coef)
    made.loss.to(policy.mask.device)
    return made


def _newest(rollout: Rollout) -> int:
    """Returns the newest policy version that collected rows."""
    return int(rollout.version[rollout.rows].max())


def _age(rollout: Rollout, version: int) -> float:
    """Returns the mean number of versions by which the rows' policies are older than `version`."""
    return float(version - rollout.version[rollout.rows].mean())


def _complaint(policy: ActorCritic, rollout: Rollout) -> str:
    """Returns the error text for a loss that is not finite, naming the first such input."""
    rows = torch.as_tensor(rollout.rows, device=rollout.device)
    seen = {f"observation {name}": t[rows] for name, t in rollout.observation.items()}
    seen["reward"] = torch.as_tensor(rollout.reward[rollout.rows])
    for name in ("action", "memory", "value", "log_prob", "advantage"):
        seen[name.replace("_", " ")] = getattr(rollout, name)[rows]
    seen |= {f"parameter {name}": p.detach() for name, p in policy.named_parameters()}
    guilty = [name for name, t in seen.items() if not bool(torch.isfinite(t).all())]
    cause = f"nor is {guilty[0]}" if guilty else "although all of its inputs are"
    return f"the loss of a mini-batch is not finite, {cause}; the policy is unchanged"


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensors whose name starts with a prefix, by name without the prefix."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _which(own: bool) -> str:
    return "lacks" if own else "has an unknown entry"
