#include "core/graph/ops/optimizer.h"

#include <fmt/format.h>

#include "core/kernels/cuda/cuda_kernels.h"

// Updates of all variables of a node in one launch.
namespace replicant::kernels::cuda {
namespace {

// The tensors of an update, without addresses. Inputs [0, num_pointers) are the
// groups.
struct Groups {
  explicit Groups(const KernelBuilder& builder)
      : Groups(builder,
               static_cast<size_t>(builder.attributes().Int("count"))) {
    const graph::UpdatePart part = graph::UpdatePartOf(builder.attributes());
    tensors.num_gradients = static_cast<int>(part.num_gradients);
    tensors.gradient_factor = static_cast<float>(part.gradient_factor);
    tensors.begin = size * part.index / part.count;
    num_elements = size * (part.index + 1) / part.count - tensors.begin;
  }
  // Of one group of `count` tensors, whole.
  Groups(const KernelBuilder& builder, size_t count) {
    tensors.count = static_cast<int>(count);
    tensors.num_gradients = 1;
    for (size_t i = 0; i < count; ++i) {
      tensors.first[i] = size;
      size += builder.input(i).shape.num_elements();
    }
    num_elements = size;
  }

  // Sets the addresses. The first node.updates.size() operands are the same as
  // inputs and as outputs.
  static void Bind(TensorGroups& groups, const KernelBindings& bindings,
                   size_t num_pointers) {
    for (size_t i = 0; i < num_pointers; ++i) {
      groups.pointers[i] = const_cast<float*>(In<float>(bindings, i));
    }
  }

  TensorGroups tensors{};
  int64_t size = 0;          // of all tensors of a group
  int64_t num_elements = 0;  // that this node updates
};

// Index of the scalars behind the groups of an update with gradients.
size_t FirstScalar(const KernelBuilder& builder, const Groups& groups) {
  return *graph::FirstGradient(builder.node()) +
         static_cast<size_t>(groups.tensors.num_gradients) *
             static_cast<size_t>(groups.tensors.count);
}

// inputs: parameters, momenta (if any), gradients, learning rate, scale
void MakeSgd(KernelBuilder& builder) {
  const graph::Attributes& attributes = builder.attributes();
  const Groups groups(builder);
  const size_t scalars = FirstScalar(builder, groups);
  const SgdUpdate body{
      .tensors = groups.tensors,
      .momentum = static_cast<float>(attributes.Float("momentum")),
      .weight_decay = static_cast<float>(attributes.Float("weight_decay")),
      .is_nesterov = attributes.Bool("nesterov")};
  builder.Launch(body, groups.num_elements,
                 [scalars](SgdUpdate& b, const KernelBindings& bindings) {
                   Groups::Bind(b.tensors, bindings, scalars);
                   b.rate = In<float>(bindings, scalars);
                   b.scale = In<float>(bindings, scalars + 1);
                 });
}

// inputs: parameters, m, v, gradients, learning rate, scale, step
void MakeAdam(KernelBuilder& builder) {
  const graph::Attributes& attributes = builder.attributes();
  const Groups groups(builder);
  const size_t scalars = FirstScalar(builder, groups);
  const AdamUpdate body{
      .tensors = groups.tensors,
      .beta1 = attributes.Float("beta1"),
      .beta2 = attributes.Float("beta2"),
      .epsilon = static_cast<float>(attributes.Float("epsilon")),
      .weight_decay = static_cast<float>(attributes.Float("weight_decay"))};
  builder.Launch(body, groups.num_elements,
                 [scalars](AdamUpdate& b, const KernelBindings& bindings) {
                   Groups::Bind(b.tensors, bindings, scalars);
                   b.rate = In<float>(bindings, scalars);
                   b.scale = In<float>(bindings, scalars + 1);
                   b.step = In<int64_t>(bindings, scalars + 2);
                 });
}

// inputs: targets, sources, rate
void MakeMovingAverage(KernelBuilder& builder) {
  const Groups groups(builder);
  const auto rate = 2 * static_cast<size_t>(groups.tensors.count);
  builder.Launch(
      MovingAverageUpdate{.tensors = groups.tensors}, groups.num_elements,
      [rate](MovingAverageUpdate& b, const KernelBindings& bindings) {
        Groups::Bind(b.tensors, bindings, rate);
        b.rate = In<float>(bindings, rate);
      });
}

void MakeGlobalNorm(KernelBuilder& builder) {
  const size_t count = builder.node().inputs.size();
  const Groups groups(builder, count);
  const int64_t parts = PartsOf(groups.size / Warp::kSize, Warp::kSize);
  const size_t partial =
      builder.AddScratch(static_cast<size_t>(parts) * sizeof(float));
  const SumOfSquares squares{
      .tensors = groups.tensors, .size = groups.size, .parts = parts};
  builder.Launch(
      squares, parts,
      [count, partial](SumOfSquares& b, const KernelBindings& bindings) {
        Groups::Bind(b.tensors, bindings, count);
        b.y = Scratch<float>(bindings, partial);
      });
  builder.Launch(RootOfSum{.n = parts}, 1,
                 [partial](RootOfSum& b, const KernelBindings& bindings) {
                   b.x = Scratch<float>(bindings, partial);
                   b.y = Out<float>(bindings);
                 });
}

std::string WhyNotTensors(const KernelRequest& request) {
  if (std::string why = WhyNotF32(request); !why.empty()) return why;
  const size_t num_inputs = request.node.inputs.size();
  const size_t count =
      request.node.attributes.Has("count")
          ? static_cast<size_t>(request.node.attributes.Int("count"))
          : num_inputs;
  if (count <= kMaxUpdateTensors && num_inputs <= kMaxUpdatePointers) return {};
  return fmt::format("it takes up to {} tensors and {} inputs, got {} and {}",
                     kMaxUpdateTensors, kMaxUpdatePointers, count, num_inputs);
}

}  // namespace

void AddOptimizerKernels(CudaKernelTable& table) {
  table["SgdUpdate"] = {&MakeSgd, &WhyNotTensors};
  table["AdamUpdate"] = {&MakeAdam, &WhyNotTensors};
  table["MovingAverageUpdate"] = {&MakeMovingAverage, &WhyNotTensors};
  table["GlobalNorm"] = {&MakeGlobalNorm, &WhyNotTensors};
}

}  // namespace replicant::kernels::cuda
