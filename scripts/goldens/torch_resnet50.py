"""The ResNet of learner/workloads/resnet50 in PyTorch, the reference of the
goldens and of the learner benchmarks. Same parameter names, same
formulas; the configuration has every key of docs/workload_probe.md.
"""

import torch
import torch.nn.functional as F
from torch import nn

import torch_environment

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def conv(cin, cout, kernel, stride):
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, depth, cin, width, stride):
        super().__init__()
        self.cout = width * 4 if depth == 50 else width
        layers = ([(width, 1, 1), (width, 3, stride), (self.cout, 1, 1)]
                  if depth == 50 else [(width, 3, stride), (self.cout, 3, 1)])
        self.count = len(layers)
        channels = cin
        for i, (cout, kernel, s) in enumerate(layers, 1):
            setattr(self, f"conv{i}", conv(channels, cout, kernel, s))
            setattr(self, f"bn{i}", nn.BatchNorm2d(cout))
            channels = cout
        self.downsample = None
        if stride != 1 or cin != self.cout:
            self.downsample = nn.Sequential(conv(cin, self.cout, 1, stride),
                                            nn.BatchNorm2d(self.cout))

    def forward(self, x):
        h = x
        for i in range(1, self.count):
            h = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(h)),
                       inplace=True)
        h = getattr(self, f"bn{self.count}")(getattr(self, f"conv{self.count}")(h))
        h += x if self.downsample is None else self.downsample(x)
        return F.relu(h, inplace=True)


class ResNet(nn.Module):
    """Images [B, H, W, 3] u8 to logits; weights are drawn as PyTorch does."""

    def __init__(self, model):
        super().__init__()
        depth, width = int(model["depth"]), model["width"]
        self.has_pool = model["stem"] == "imagenet"
        self.conv1 = conv(3, width, 7, 2) if self.has_pool else conv(3, width, 3, 1)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage, count in enumerate([3, 4, 6, 3] if depth == 50 else [2, 2, 2, 2]):
            blocks = []
            for i in range(count):
                blocks.append(Block(depth, channels, width << stage,
                                    2 if stage > 0 and i == 0 else 1))
                channels = blocks[-1].cout
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, model["num_classes"])
        # a CUDA graph copies nothing from the host
        for name, values in (("mean", MEAN), ("std", STD)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64),
                                 persistent=False)

    def forward(self, image):
        dtype = self.fc.weight.dtype
        # channels last in memory: the permutation moves nothing
        x = image.to(dtype) * (1 / 255)
        x = (x - self.mean.to(dtype)) / self.std.to(dtype)
        x = F.relu(self.bn1(self.conv1(x.permute(0, 3, 1, 2))), inplace=True)
        if self.has_pool:
            x = F.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Learner:
    """One update of everything, like BuildUpdate()."""

    def __init__(self, workload, dtype, compile=False, autocast=False):
        self.autocast = autocast
        self.model = workload["model"]
        self.network = ResNet(self.model).to(dtype).to(
            memory_format=torch.channels_last)
        self.parameters = dict(self.network.named_parameters())
        o = self.model["optimizer"]
        if o["warm_up_steps"] or o["decay_steps"]:
            raise NotImplementedError("learning rate schedules")
        weights = [p for p in self.parameters.values() if p.dim() > 1]
        others = [p for p in self.parameters.values() if p.dim() <= 1]
        self.optimizer = torch.optim.SGD(
            [{"params": weights, "weight_decay": o["weight_decay"]},
             {"params": others}], lr=o["learning_rate"],
            momentum=o["momentum"], fused=True)
        self.forward = torch.compile(self.loss) if compile else self.loss

    def loss(self, image, label):
        with torch_environment.bf16(self.autocast):
            logits = self.network(image)
        logits = logits.to(self.network.fc.weight.dtype)
        return F.cross_entropy(
            logits, label, label_smoothing=self.model["label_smoothing"]), logits

    def step(self, image, label):
        loss, logits = self.forward(image, label)
        gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        for p, g in zip(self.parameters.values(), gradients):
            p.grad = g
        if self.keep_gradients:
            self.gradients = {n: p.grad.clone() for n, p in self.parameters.items()}
        self.optimizer.step()
        return {"losses/loss": loss.detach(), "steps/logits": logits.detach(),
                "steps/accuracy":
                    (logits.detach().argmax(1) == label).float().mean()}

    keep_gradients = False


def evaluate(network, batch):
    with torch.no_grad():
        return {"logits": network(batch["image"])}


def random_batch(workload, generator, dtype=None):
    """A batch of the workload's shapes, by the names of its inputs. No input
    is floating, so `dtype` is not used."""
    batch, side = workload["batch_size"], workload["model"]["image_size"]
    return {"image": torch.randint(0, 256, (batch, side, side, 3),
                                   dtype=torch.uint8, generator=generator),
            "label": torch.randint(0, workload["model"]["num_classes"], (batch,),
                                   generator=generator)}
