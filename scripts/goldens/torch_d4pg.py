"""The D4PG agent of agents/d4pg in PyTorch, the reference of the goldens and
of the learner benchmarks. Same parameter names, same formulas;
the configuration has every key of docs/workload_probe.md.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

import torch_environment

CONVOLUTIONS = {  # kind: (channels, kernel, stride) each
    "state": [],
    "nature": [(32, 8, 4), (64, 4, 2), (64, 3, 1)],
    "drq": [(32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1)],
    "light": [(16, 8, 4), (32, 4, 2)],
}


def convolutions(encoder):
    if encoder["kind"] != "custom":
        return CONVOLUTIONS[encoder["kind"]]
    return list(zip(encoder["channels"], encoder["kernels"], encoder["strides"]))


class Encoder(nn.Module):
    """Pixels [B, H, W, C] u8 to features [B, F]; vectors pass. Returns what the
    heads read: the features, and the state [B, S] that comes with pixels,
    unless there is none or a shared embedding has read it."""

    def __init__(self, config, observation, state_size):
        super().__init__()
        layers, size = [], list(observation)
        for channels, kernel, stride in convolutions(config["encoder"]):
            layers += [nn.Conv2d(size[-1], channels, kernel, stride), nn.ReLU()]
            size = [(size[0] - kernel) // stride + 1,
                    (size[1] - kernel) // stride + 1, channels]
        self.feature_size = math.prod(size)
        self.convnet = nn.Sequential(*layers) if layers else None
        self.trunk = None
        if config["shared_embedding"]:
            self.trunk = nn.Sequential(
                *embedding(self.feature_size + state_size,
                           config["embedding_size"],
                           config.get("embedding_activation", "tanh")))
            self.feature_size = config["embedding_size"]

    def forward(self, x, state, dtype):
        if self.convnet is not None:
            # channels last in memory: the permutations move nothing
            x = x.permute(0, 3, 1, 2).to(dtype) * (1 / 255) - 0.5
            x = self.convnet(x).permute(0, 2, 3, 1).flatten(1)
        states = [] if state is None else [state]
        if self.trunk is None:
            return [x, *states]
        return [self.trunk(torch.cat([x, *states], 1))]


def embedding(in_size, size, activation="tanh"):
    return [nn.Linear(in_size, size), nn.LayerNorm(size),
            nn.ELU() if activation == "elu" else nn.Tanh()]


def head(config, in_size, hidden_sizes, out):
    activation = nn.ELU if config["activation"] == "elu" else nn.ReLU
    layers = embedding(in_size, hidden_sizes[0])
    for a, b in zip(hidden_sizes, hidden_sizes[1:]):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers, nn.Linear(hidden_sizes[-1], out))


class Network(nn.Module):
    """Trunk (pixels only, unless it is shared) and head of the policy or the
    critic."""

    def __init__(self, config, feature_size, hidden_sizes, more_inputs, out):
        super().__init__()
        self.trunk = None
        if config["encoder"]["kind"] != "state" and not config["shared_embedding"]:
            self.trunk = nn.Sequential(
                *embedding(feature_size, config["embedding_size"],
                           config.get("embedding_activation", "tanh")))
            feature_size = config["embedding_size"]
        self.head = head(config, feature_size + more_inputs, hidden_sizes, out)

    def forward(self, features, *more):
        x = features if self.trunk is None else self.trunk(features)
        return self.head(torch.cat([x, *more], 1) if more else x)


class Representation(nn.Module):
    """MR.Q's encoder of state and action (arXiv:2501.16142, section 4.2), and
    with `has_predictor` the linear layer that predicts from its output."""

    def __init__(self, workload, has_predictor):
        super().__init__()
        sizes = workload["agent"]["representation"]
        z_s_size = workload["agent"]["networks"]["embedding_size"]
        self.action = nn.Sequential(
            nn.Linear(workload["action_size"], sizes["action_embedding_size"]),
            nn.ELU())
        layers, size = [], z_s_size + sizes["action_embedding_size"]
        for hidden in sizes["hidden_sizes"]:
            layers += [nn.Linear(size, hidden), nn.LayerNorm(hidden), nn.ELU()]
            size = hidden
        self.joint = nn.Sequential(*layers,
                                   nn.Linear(size, sizes["state_action_size"]))
        if has_predictor:
            self.predictor = nn.Linear(sizes["state_action_size"],
                                       z_s_size + len(REWARD_BINS) + 1)

    def forward(self, z_s, action):
        return self.joint(torch.cat([z_s, self.action(action)], 1))


class Networks(nn.Module):
    def __init__(self, workload, has_encoder=True, is_online=True):
        super().__init__()
        networks = workload["agent"]["networks"]
        state_size = workload.get("state_size", 0)
        encoder = Encoder(networks, workload["observation"], state_size)
        if has_encoder:
            self.encoder = encoder
        # of the heads; a shared embedding has read the state
        extra_size = 0 if networks["shared_embedding"] else state_size
        self.policy = Network(networks, encoder.feature_size,
                              networks["policy_hidden_sizes"], extra_size,
                              workload["action_size"])
        critic_size = encoder.feature_size
        critic_extra_size = extra_size + workload["action_size"]
        self.representation = None
        if horizon_of(workload) > 0:
            critic_size = workload["agent"]["representation"]["state_action_size"]
            critic_extra_size = 0
            self.representation = Representation(workload, is_online)
        self.critic = Network(networks, critic_size,
                              networks["critic_hidden_sizes"], critic_extra_size,
                              workload["agent"]["distribution"]["num_atoms"])

    def judge(self, h, action):
        """The critic's logits of features h and action."""
        if self.representation is None:
            return self.critic(*h, action)
        return self.critic(self.representation(*h, action))


def num_targets_of(workload):
    config = workload["agent"]["representation"]
    return config.get("targets", 0) or config["horizon"]


def horizon_of(workload):
    return workload["agent"].get("representation", {}).get("horizon", 0)


def symexp(u):
    return u.sign() * u.abs().expm1()


REWARD_BINS = symexp(torch.linspace(-10, 10, 65, dtype=torch.float64))


def two_hot(r, bins):
    """Weight 1 of each r, on the two bins around it. [B] -> [B, len(bins)]"""
    r = r.clamp(bins[0], bins[-1])
    above = torch.searchsorted(bins, r).clamp(1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    share = ((r - low) / (high - low))[:, None]
    return (F.one_hot(above, len(bins)) * share
            + F.one_hot(above - 1, len(bins)) * (1 - share))


class Agent(Networks):
    """Online networks, the target ones as a module `target`, and with
    average_decay the averages of those that act as a module `average`."""

    def __init__(self, workload):
        super().__init__(workload)
        self.target = Networks(workload,
                               workload["agent"]["target"]["has_encoder"],
                               is_online=False)
        online = dict(self.named_parameters())
        for name, p in self.target.named_parameters():
            p.data.copy_(online[name].data)
            p.requires_grad_(False)
        if workload["agent"].get("average_decay", 0) > 0:
            self.average = nn.Module()
            self.average.encoder = copy.deepcopy(self.encoder)
            self.average.policy = copy.deepcopy(self.policy)
            self.average.requires_grad_(False)


def project(p, reward, discount, z):
    gap = z[1] - z[0]
    moved = (reward[:, None] + discount[:, None] * z).clamp(z[0], z[-1])
    near = (1 - (moved[:, None, :] - z[None, :, None]).abs() / gap).clamp(0, 1)
    return (near * p[:, None, :]).sum(2)


def shift(x, offsets):
    """Frames moved by whole pixels, the border repeated."""
    batch, height, width, _ = x.shape
    rows = (torch.arange(height) + offsets[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + offsets[:, 1:]).clamp(0, width - 1)
    return x[torch.arange(batch)[:, None, None], rows[:, :, None],
             columns[:, None, :]]


def detached(features):
    return [x.detach() for x in features]


class Learner:
    """One update of everything, like BuildUpdate()."""

    def __init__(self, workload, dtype, compile=False, autocast=False):
        self.autocast = autocast
        self.batch_names = batch_names(workload)
        self.config = workload["agent"]
        self.dtype = dtype
        self.agent = Agent(workload).to(dtype)
        if self.agent.encoder.convnet is not None:
            self.agent.to(memory_format=torch.channels_last)
        distribution = self.config["distribution"]
        v_max = distribution.get("v_max")
        if v_max is None:
            v_max = workload["largest_reward"] / (1 - workload["discount"])
        self.z = torch.linspace(0, v_max, distribution["num_atoms"], dtype=dtype)
        agent = self.agent
        self.horizon = horizon_of(workload)

        def of(*prefixes):
            return {n: p for n, p in agent.named_parameters()
                    if n.startswith(prefixes)}

        self.encoder_parameters = {}
        if self.horizon > 0:
            self.encoder_parameters = of("encoder.", "representation.")
            self.critic_parameters = of("critic.")
            self.encoder_optimizer = self.adam("encoder_optimizer",
                                               self.encoder_parameters)
        else:
            self.critic_parameters = of("encoder.", "critic.")
        self.policy_parameters = of("policy.")
        self.critic_optimizer = self.adam("critic_optimizer",
                                          self.critic_parameters)
        self.policy_optimizer = self.adam("policy_optimizer",
                                          self.policy_parameters)
        online = dict(agent.named_parameters())
        self.targets = [p.data for p in agent.target.parameters()]
        self.sources = [online[n].data
                        for n, _ in agent.target.named_parameters()]
        self.average_decay = self.config.get("average_decay", 0)
        if self.average_decay > 0:
            self.averages = [p.data for p in agent.average.parameters()]
            self.averaged = [online[n].data
                             for n, _ in agent.average.named_parameters()]
        self.num_updates = 0
        self.critic_forward, self.policy_forward = (
            (torch.compile(self.critic_loss), torch.compile(self.policy_value))
            if compile else (self.critic_loss, self.policy_value))

    def adam(self, name, parameters):
        if self.config[name]["schedule"] != "constant":
            raise NotImplementedError("learning rate schedules")
        return torch.optim.AdamW(
            parameters.values(), lr=self.config[name]["learning_rate"],
            weight_decay=self.config[name].get("weight_decay", 0.0),
            **torch_environment.adam_options())

    def shifted(self, x):
        """Of images [B, H, W, C], or of windows [B, T, H, W, C], all images of
        a window alike."""
        pixels = self.config["random_shift"]
        if pixels == 0:
            return x
        offsets = torch.randint(-pixels, pixels + 1, (len(x), 2))
        if x.dim() == 4:
            return shift(x, offsets)
        offsets = offsets.repeat_interleave(x.shape[1], dim=0)
        return shift(x.flatten(0, 1), offsets).reshape(x.shape)

    def contrast(self, z, target, has_target):
        """InfoNCE of rows whose positive is the target of the same row."""
        cosines = F.normalize(z, dim=1) @ F.normalize(target, dim=1).T
        logits = cosines / self.config["representation"]["contrast_temperature"]
        logits = logits.masked_fill(has_target[None, :] == 0, -1e4)
        return F.cross_entropy(logits, torch.arange(len(z)), reduction="none")

    def representation_losses(self, z, targets, window):
        """Of the model's steps from z_s [B, Z] on; targets [B, T, Z]. Gives the
        loss, and the mean of each part over all steps."""
        config = self.config["representation"]
        bins = REWARD_BINS.to(self.dtype)
        size, loss = z.shape[1], 0.0
        parts = {"latent": 0.0, "reward": 0.0, "end": 0.0}
        if config["contrast_weight"] > 0:
            parts["contrast"] = 0.0
        model = self.agent.representation
        follows, mask = window["follows"], window["mask"]
        targets = torch.einsum("btz,bth->bhz", targets, follows)
        has_target = follows.sum(1)
        # of all steps but the first target's those with a target count for all
        count = ((mask.sum(1) - 1) / (has_target.sum(1) - 1).clamp(min=1))[:, None]
        of_targets = follows[:, 0] + count * (has_target - follows[:, 0])
        counts = {"latent": of_targets, "reward": mask, "end": mask,
                  "contrast": of_targets}
        for i in range(config["horizon"]):
            z, logits, end = model.predictor(
                model(z, window["action"][:, i])).split([size, len(bins), 1], 1)
            steps = {
                "latent": (z - targets[:, i]).square().mean(1),
                "reward": -(two_hot(window["reward"][:, i], bins)
                            * F.log_softmax(logits, 1)).sum(1),
                "end": (end[:, 0] - (1 - window["discount"][:, i])).square()}
            if config["contrast_weight"] > 0:
                steps["contrast"] = self.contrast(z, targets[:, i], has_target[:, i])
            for name, rows in steps.items():
                counted = rows * counts[name][:, i]
                loss = loss + config[f"{name}_weight"] * counted.mean()
                parts[name] = parts[name] + counted.sum().detach()
        num_steps = mask.sum()
        return loss, {f"{n}_loss": x / num_steps for n, x in parts.items()}

    def critic_loss(self, batch):
        """`batch` has a tensor for each of batch_names()."""
        agent, target = self.agent, self.agent.target
        a, w = batch["action"], batch["importance_weight"]
        window = {n.removeprefix("window_"): t for n, t in batch.items()
                  if n.startswith("window_")}
        with torch.no_grad():
            encoder = target.encoder if hasattr(target, "encoder") else agent.encoder
            with torch_environment.bf16(self.autocast):
                if not window:
                    h2 = encoder(self.shifted(batch["next_observation"]),
                                 batch.get("next_state"), self.dtype)
                else:
                    images, states = window["observation"], window.get("state")
                    targets, = encoder(
                        self.shifted(images).flatten(0, 1),
                        None if states is None else states.flatten(0, 1),
                        self.dtype)
                    targets = targets.reshape(*images.shape[:2], -1)
                    h2 = [targets[:, 0]]
                logits2 = target.judge(h2, torch.tanh(target.policy(*h2)))
            m = project(F.softmax(logits2.to(self.dtype), 1), batch["reward"],
                        batch["discount"], self.z)
        with torch_environment.bf16(self.autocast):
            h = agent.encoder(self.shifted(batch["observation"]),
                              batch.get("state"), self.dtype)
            if window:
                # the first step of the model computes the same z_sa
                z_sa = agent.representation(*h, a)
                logits = agent.critic(z_sa.detach())
            else:
                logits = agent.critic(*h, a)
        logits = logits.to(self.dtype)
        cross_entropy = -(m * F.log_softmax(logits, 1)).sum(1)
        loss = (cross_entropy * (w / w.max())).mean()
        value = (F.softmax(logits.detach(), 1) * self.z).sum(1)
        if self.config["priority"] == "cross_entropy":
            priority = cross_entropy.detach()
        else:
            priority = ((m * self.z).sum(1) - value).abs()
            if self.config["priority"] == "lap":
                priority = priority.clamp(min=1)
        model_loss, parts = None, {}
        if window:
            with torch_environment.bf16(self.autocast):
                model_loss, parts = self.representation_losses(
                    *h, targets.to(self.dtype), window)
        return loss, model_loss, parts, h, priority, value

    def policy_value(self, h):
        with torch_environment.bf16(self.autocast):
            pre_tanh = self.agent.policy(*h)
            action = torch.tanh(pre_tanh)
            chosen = action.detach().requires_grad_()
            logits = self.agent.judge(h, chosen)
        probabilities = F.softmax(logits.to(self.dtype), 1)
        return pre_tanh, action, chosen, (probabilities * self.z).sum(1)

    def policy_gradients(self, h):
        pre_tanh, action, chosen, value = self.policy_forward(h)
        gradient, = torch.autograd.grad(value.sum(), chosen)
        limit = self.config["max_action_gradient_norm"]
        if limit > 0:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (limit / norm.clamp(min=limit))
        outputs, seeds = [action], [-gradient / len(action)]
        loss = -value.mean()
        weight = self.config["pre_tanh_penalty_weight"]
        if weight > 0:
            excess = (pre_tanh.abs() - self.config["pre_tanh_penalty_limit"]).relu()
            penalty = weight * excess.square().mean()
            outputs.append(penalty)
            seeds.append(torch.ones_like(penalty))
            loss = loss + penalty
        return loss.detach(), torch.autograd.grad(
            outputs, list(self.policy_parameters.values()), seeds)

    def apply(self, optimizer, name, parameters, gradients):
        limit = self.config[name]["max_gradient_norm"]
        for p, g in zip(parameters.values(), gradients):
            p.grad = g
        if limit > 0:
            nn.utils.clip_grad_norm_(parameters.values(), limit, foreach=True)
        optimizer.step()

    def step(self, *tensors):
        loss, model_loss, parts, h, priority, value = self.critic_forward(
            dict(zip(self.batch_names, tensors)))
        trained = [("critic_optimizer", self.critic_parameters,
                    torch.autograd.grad(loss, list(self.critic_parameters.values()),
                                        retain_graph=model_loss is not None))]
        if model_loss is not None:
            trained.append((
                "encoder_optimizer", self.encoder_parameters,
                torch.autograd.grad(model_loss,
                                    list(self.encoder_parameters.values()))))
        policy_loss, policy_gradients = self.policy_gradients(detached(h))
        trained.append(("policy_optimizer", self.policy_parameters,
                        policy_gradients))
        # clones: clipping works in place
        self.gradients = None if not self.keep_gradients else {
            n: g.clone() for _, parameters, gradients in trained
            for n, g in zip(parameters, gradients)}
        for name, parameters, gradients in trained:
            self.apply(getattr(self, name), name, parameters, gradients)
        self.num_updates += 1
        target = self.config["target"]
        if target["update"] == "moving_average":
            torch._foreach_lerp_(self.targets, self.sources, target["rate"])
        elif self.num_updates % target["period"] == 0:
            torch._foreach_copy_(self.targets, self.sources)
        if self.average_decay > 0:
            torch._foreach_lerp_(self.averages, self.averaged,
                                 max(1 - self.average_decay, 1 / self.num_updates))
        return {"critic_loss": loss.detach(), "policy_loss": policy_loss,
                **parts, "priority": priority, "value": value}

    keep_gradients = False


def random_batch(workload, dtype, generator):
    """A batch of the workload's shapes, in the order of Learner.step()."""
    batch, shape = workload["batch_size"], workload["observation"]

    def observation():
        if len(shape) == 3:
            return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8,
                                 generator=generator)
        return torch.randn(batch, *shape, dtype=dtype, generator=generator)

    def uniform(*dims):
        return torch.rand(*dims, dtype=dtype, generator=generator)

    discount = workload["discount"] ** 3 * (uniform(batch) > 0.1)
    batch_of = {
        "observation": observation(),
        "action": uniform(batch, workload["action_size"]) * 2 - 1,
        "reward": uniform(batch) * 3 * workload["largest_reward"],
        "discount": discount.to(dtype),
        "next_observation": observation(),
        "importance_weight": 0.1 + uniform(batch)}
    state_size = workload.get("state_size", 0)

    def states(*dims):
        return torch.randn(*dims, max(1, state_size), dtype=dtype,
                           generator=generator)

    if state_size > 0:
        batch_of |= {"state": states(batch), "next_state": states(batch)}
    if horizon_of(workload) > 0:
        batch_of |= random_windows(workload, batch_of["action"], observation,
                                   uniform, states, generator)
    return [batch_of[name] for name in batch_names(workload)]


def random_windows(workload, first_action, observation, uniform, states, generator):
    """Windows of 1 to `horizon` steps, returns of two."""
    batch, horizon = workload["batch_size"], horizon_of(workload)
    num_targets = num_targets_of(workload)
    num_steps = torch.randint(1, horizon + 1, (batch,), generator=generator)
    mask = (torch.arange(horizon) < num_steps[:, None]).to(first_action.dtype)
    follows = torch.zeros(batch, num_targets, horizon, dtype=first_action.dtype)
    for row, steps in enumerate(num_steps.tolist()):
        first = min(2, steps) - 1
        others = torch.randperm(steps, generator=generator)
        chosen = [first, *others[others != first].tolist()][:num_targets]
        follows[row, torch.arange(len(chosen)), chosen] = 1
    actions = uniform(batch, horizon, workload["action_size"]) * 2 - 1
    actions[:, 0] = first_action
    return {
        "window_observation": torch.stack(
            [observation() for _ in range(num_targets)], 1),
        "window_follows": follows, "window_action": actions * mask[:, :, None],
        "window_reward":
            uniform(batch, horizon) * workload["largest_reward"] * mask,
        "window_discount": (uniform(batch, horizon) > 0.1) * mask,
        "window_mask": mask, "window_state": states(batch, num_targets)}


def batch_names(workload):
    """The inputs of a batch, in the order of Learner.step()."""
    has_state = workload.get("state_size", 0) > 0
    names = ["observation", "action", "reward", "discount"]
    if horizon_of(workload) == 0:
        return (names + ["next_observation", "importance_weight"]
                + ["state", "next_state"] * has_state)
    return (names + ["importance_weight"] + ["state"] * has_state
            + [f"window_{name}" for name in
               ["observation", "follows", "action", "reward", "discount", "mask"]
               + ["state"] * has_state])
