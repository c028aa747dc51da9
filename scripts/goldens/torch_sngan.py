"""The SN-GAN of learner/workloads/sngan in PyTorch, the reference of the
goldens and of the learner benchmarks. Same parameter names, same
formulas; the configuration has every key of docs/workload_probe.md.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm

import torch_environment


def generator_channels(model):
    small = model["image_size"] == 32
    unit = model["generator_channels"] or (256 if small else 64)
    if small:
        return [unit] * 4
    return [unit * n for n in
            [16] * (model["image_size"] == 128) + [16, 8, 4, 2, 1]]


def discriminator_channels(model):
    small = model["image_size"] == 32
    unit = model["discriminator_channels"] or (128 if small else 64)
    if small:
        return [unit] * 4
    return [unit * n for n in
            [1, 2, 4, 8, 16] + [16] * (model["image_size"] == 128)]


class ConditionalBatchNorm(nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes, channels))
        self.bias = nn.Parameter(torch.zeros(classes, channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x, label):
        y = F.batch_norm(x, self.running_mean, self.running_var,
                         training=self.training)
        return (y * F.embedding(label, self.weight)[:, :, None, None]
                + F.embedding(label, self.bias)[:, :, None, None])


class GeneratorBlock(nn.Module):
    def __init__(self, classes, cin, cout):
        super().__init__()
        self.norm1 = ConditionalBatchNorm(classes, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2 = ConditionalBatchNorm(classes, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.shortcut = nn.Conv2d(cin, cout, 1)

    def forward(self, x, label):
        h = F.relu(self.norm1(x, label), inplace=True)
        h = self.conv1(F.interpolate(h, scale_factor=2))
        h = self.conv2(F.relu(self.norm2(h, label), inplace=True))
        return h + F.interpolate(self.shortcut(x), scale_factor=2)


class Generator(nn.Module):
    def __init__(self, model):
        super().__init__()
        channels = generator_channels(model)
        self.first = channels[0]
        self.linear = nn.Linear(model["latent_size"], 16 * self.first)
        self.blocks = nn.ModuleList(
            GeneratorBlock(model["num_classes"], a, b)
            for a, b in zip(channels, channels[1:]))
        self.norm = nn.BatchNorm2d(channels[-1])
        self.conv = nn.Conv2d(channels[-1], 3, 3, padding=1)

    def forward(self, z, label):
        # channels last in memory, as in our graphs
        x = self.linear(z).view(-1, 4, 4, self.first).permute(0, 3, 1, 2)
        for block in self.blocks:
            x = block(x, label)
        return torch.tanh(self.conv(F.relu(self.norm(x), inplace=True)))


class DiscriminatorBlock(nn.Module):
    def __init__(self, cin, cout, is_first, halves):
        super().__init__()
        within = cout if is_first else cin
        self.is_first, self.halves = is_first, halves
        self.conv1 = spectral_norm(nn.Conv2d(cin, within, 3, padding=1))
        self.conv2 = spectral_norm(nn.Conv2d(within, cout, 3, padding=1))
        self.shortcut = None
        if halves or cin != cout:
            self.shortcut = spectral_norm(nn.Conv2d(cin, cout, 1))

    def forward(self, x):
        h = self.conv1(x if self.is_first else F.relu(x))
        h = self.conv2(F.relu(h, inplace=True))
        if self.halves:
            h, x = F.avg_pool2d(h, 2), F.avg_pool2d(x, 2)
        return h + (x if self.shortcut is None else self.shortcut(x))


class Discriminator(nn.Module):
    def __init__(self, model):
        super().__init__()
        channels = discriminator_channels(model)
        halvings = 2 if model["image_size"] == 32 else 5
        self.blocks = nn.ModuleList(
            DiscriminatorBlock(a, b, i == 0, i < halvings)
            for i, (a, b) in enumerate(zip([3, *channels], channels)))
        self.linear = spectral_norm(nn.Linear(channels[-1], 1))
        self.embedding = spectral_norm(
            nn.Embedding(model["num_classes"], channels[-1]))

    def forward(self, x, label):
        for block in self.blocks:
            x = block(x)
        features = F.relu(x).sum((2, 3))
        return (self.linear(features).flatten()
                + (features * self.embedding(label)).sum(1))


class Learner:
    """The updates of `kind`: like Updates::UpdateDiscriminator() and
    UpdateGenerator()."""

    def __init__(self, workload, dtype, compile=False, autocast=False):
        self.autocast = autocast
        model = workload["model"]
        self.kind = workload["kind"]
        self.network = nn.ModuleDict({"generator": Generator(model),
                                      "discriminator": Discriminator(model)})
        self.network.to(dtype).to(memory_format=torch.channels_last)
        o = model["optimizer"]
        if o["decay_end"]:
            raise NotImplementedError("learning rate schedules")
        self.parameters, self.optimizers = {}, {}
        for name in ("discriminator", "generator"):
            self.parameters[name] = {
                f"{name}.{n}": p
                for n, p in self.network[name].named_parameters()}
            self.optimizers[name] = torch.optim.Adam(
                self.parameters[name].values(), lr=o["learning_rate"],
                betas=(o["beta1"], o["beta2"]), **torch_environment.adam_options())
        self.losses = {"discriminator": self.discriminator_loss,
                       "generator": self.generator_loss}
        if compile:
            self.losses = {n: torch.compile(f) for n, f in self.losses.items()}

    def discriminator_loss(self, image, label, z, fake_label):
        dtype = z.dtype
        real = (image.to(dtype) * (2 / 255) - 1).permute(0, 3, 1, 2)
        with torch_environment.bf16(self.autocast):
            with torch.no_grad():
                fake = self.network["generator"](z, fake_label)
            logits = self.network["discriminator"](
                torch.cat([real, fake]), torch.cat([label, fake_label]))
        logits = logits.to(dtype)
        return (F.relu(1 - logits[:len(label)]).mean()
                + F.relu(1 + logits[len(label):]).mean()), logits

    def generator_loss(self, generator_z, generator_label):
        with torch_environment.bf16(self.autocast):
            fake = self.network["generator"](generator_z, generator_label)
            logits = self.network["discriminator"](fake, generator_label)
        logits = logits.to(generator_z.dtype)
        return -logits.mean(), logits

    def update(self, name, *batch):
        loss, logits = self.losses[name](*batch)
        parameters = self.parameters[name]
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        for p, g in zip(parameters.values(), gradients):
            p.grad = g
        if self.keep_gradients:
            self.gradients.update({n: p.grad.clone()
                                   for n, p in parameters.items()})
        self.optimizers[name].step()
        return {f"losses/{name}_loss": loss.detach(),
                f"steps/{name}_logits": logits.detach()}

    def step(self, **batch):
        self.gradients = {}
        outputs = {}
        if self.kind in ("both", "discriminator"):
            outputs |= self.update("discriminator", batch["image"], batch["label"],
                                   batch["z"], batch["fake_label"])
        if self.kind in ("both", "generator"):
            outputs |= self.update("generator", batch["generator_z"],
                                   batch["generator_label"])
        return outputs

    keep_gradients = False


def evaluate(network, batch):
    with torch.no_grad():
        image = network["generator"](batch["z"], batch["fake_label"])
        return {"image": image.permute(0, 2, 3, 1),
                "logits": network["discriminator"](image, batch["fake_label"])}


def random_batch(workload, generator, dtype=torch.float64):
    """A batch of the workload's shapes, by the names of its inputs."""
    batch, model = workload["batch_size"], workload["model"]

    def label():
        return torch.randint(0, model["num_classes"], (batch,),
                             generator=generator)

    def z():
        return torch.randn(batch, model["latent_size"], dtype=torch.float64,
                           generator=generator).to(dtype)

    tensors = {}
    if workload["kind"] in ("both", "discriminator"):
        side = model["image_size"]
        tensors |= {"image": torch.randint(0, 256, (batch, side, side, 3),
                                           dtype=torch.uint8,
                                           generator=generator),
                    "label": label(), "z": z(), "fake_label": label()}
    if workload["kind"] in ("both", "generator"):
        tensors |= {"generator_z": z(), "generator_label": label()}
    return tensors
