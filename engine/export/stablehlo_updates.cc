// Assignments and optimizers. The outputs of a node are the new versions of its
// variables; nothing is written in place.
#include <cmath>

#include "engine/export/stablehlo_forms.h"
#include "engine/graph/ops/optimizer.h"

namespace replicant::exporting {
namespace {

HloValues WriteAssign(HloBuilder& /*b*/, const StableHloNode& n) {
  return {n.input(1)};
}

// An update of many variables: input g * count + i is tensor i of group g. It
// computes in the type of its scalars, f32 or f64.
class GroupedUpdate {
 public:
  GroupedUpdate(HloBuilder& builder, const StableHloNode& node)
      : b(builder),
        n(node),
        count(static_cast<size_t>(node.attributes().Int("count"))),
        groups_(static_cast<size_t>(node.attributes().Int("groups"))) {
    const graph::UpdatePart part = graph::UpdatePartOf(n.attributes());
    if (part.count > 1 || part.num_gradients > 1) {
      n.Fail(
          "is a replica's share of an update, which has no form in StableHLO; "
          "hint: let every replica of a module make whole updates");
    }
  }

  HloValue Tensor(size_t group, size_t i) const {
    return b.Widen(n.input(group * count + i));
  }
  // Scalar number `index` behind the groups, for each element of x.
  HloValue Scalar(size_t index, const HloValue& x) const {
    return b.BroadcastTo(n.input(groups_ * count + index), x.shape);
  }
  const HloValue& ScalarInput(size_t index) const {
    return n.input(groups_ * count + index);
  }
  // Adds a result, in the place of its variable.
  void Set(size_t group, size_t i, const HloValue& value) {
    const size_t output = group * count + i;
    results.resize(n.node.outputs.size());
    results[output] = b.Convert(value, n.type(static_cast<int>(output)).dtype);
  }

  HloBuilder& b;
  const StableHloNode& n;
  size_t count;
  HloValues results;

 private:
  size_t groups_;
};

// groups: parameters, momenta (if any), gradients; scalars: learning rate,
// scale
HloValues WriteSgd(HloBuilder& b, const StableHloNode& n) {
  GroupedUpdate update(b, n);
  const double momentum = n.attributes().Float("momentum");
  const double weight_decay = n.attributes().Float("weight_decay");
  const size_t gradients = momentum != 0.0 ? 2 : 1;
  for (size_t i = 0; i < update.count; ++i) {
    const HloValue p = update.Tensor(0, i);
    HloValue d = b.Mul(update.Scalar(1, p), update.Tensor(gradients, i));
    if (weight_decay != 0.0) d = b.Add(d, b.Mul(p, weight_decay));
    HloValue direction = d;
    if (momentum != 0.0) {
      const HloValue u = b.Add(b.Mul(update.Tensor(1, i), momentum), d);
      update.Set(1, i, u);
      direction =
          n.attributes().Bool("nesterov") ? b.Add(d, b.Mul(u, momentum)) : u;
    }
    update.Set(0, i, b.Sub(p, b.Mul(update.Scalar(0, p), direction)));
  }
  return std::move(update.results);
}

// 1 - beta^t = -(e^(t ln beta) - 1), which keeps the digits that f32 would lose
// for beta near 1.
HloValue Correction(HloBuilder& b, const HloValue& t, double beta) {
  return b.Unary("negate",
                 b.Unary("exponential_minus_one", b.Mul(t, std::log(beta))));
}

// groups: parameters, m, v, gradients; scalars: learning rate, scale, step
HloValues WriteAdam(HloBuilder& b, const StableHloNode& n) {
  GroupedUpdate update(b, n);
  const double beta1 = n.attributes().Float("beta1");
  const double beta2 = n.attributes().Float("beta2");
  const double weight_decay = n.attributes().Float("weight_decay");
  const HloValue& rate = update.ScalarInput(0);
  const HloValue t = b.Add(b.Convert(update.ScalarInput(2), rate.dtype), 1.0);
  const HloValue correction1 = Correction(b, t, beta1);
  const HloValue correction2 = Correction(b, t, beta2);
  for (size_t i = 0; i < update.count; ++i) {
    HloValue p = update.Tensor(0, i);
    const HloValue g = b.Mul(update.Scalar(1, p), update.Tensor(3, i));
    const HloValue m =
        b.Add(b.Mul(update.Tensor(1, i), beta1), b.Mul(g, 1.0 - beta1));
    const HloValue v = b.Add(b.Mul(update.Tensor(2, i), beta2),
                             b.Mul(b.Mul(g, g), 1.0 - beta2));
    if (weight_decay != 0.0) {
      const HloValue kept = b.Sub(b.Like(1.0, rate), b.Mul(rate, weight_decay));
      p = b.Mul(p, b.BroadcastTo(kept, p.shape));
    }
    const HloValue deviation =
        b.Add(b.Unary("sqrt", b.Div(v, b.BroadcastTo(correction2, p.shape))),
              n.attributes().Float("epsilon"));
    const HloValue step = b.Mul(update.Scalar(0, p),
                                b.Div(m, b.BroadcastTo(correction1, p.shape)));
    update.Set(0, i, b.Sub(p, b.Div(step, deviation)));
    update.Set(1, i, m);
    update.Set(2, i, v);
  }
  return std::move(update.results);
}

// groups: targets, sources; scalar: rate. At rate 0 an infinite source must not
// reach the target.
HloValues WriteMovingAverage(HloBuilder& b, const StableHloNode& n) {
  GroupedUpdate update(b, n);
  const HloValue& rate = update.ScalarInput(0);
  const HloValue kept = b.Sub(b.Like(1.0, rate), rate);
  const HloValue is_zero = b.Compare("EQ", rate, 0.0);
  const HloValue is_one = b.Compare("EQ", rate, 1.0);
  for (size_t i = 0; i < update.count; ++i) {
    const HloValue target = update.Tensor(0, i);
    const HloValue source = update.Tensor(1, i);
    const HloValue mixed =
        b.Add(b.Mul(b.BroadcastTo(kept, target.shape), target),
              b.Mul(update.Scalar(0, target), source));
    // a condition of select may be a scalar
    update.Set(0, i,
               b.Select(is_zero, target, b.Select(is_one, source, mixed)));
  }
  return std::move(update.results);
}

HloValues WriteGlobalNorm(HloBuilder& b, const StableHloNode& n) {
  HloValue total = b.Fill(0.0, n.type().dtype, Shape({}));
  for (const HloValue& input : n.inputs) {
    const HloValue x = b.Widen(input);
    Dims axes;
    for (int axis = 0; axis < x.shape.rank(); ++axis) axes.push_back(axis);
    total = b.Add(total, b.Sum(b.Mul(x, x), axes));
  }
  return {b.Unary("sqrt", total)};
}

}  // namespace

void AddUpdateForms(StableHloForms& forms) {
  forms["Assign"] = {&WriteAssign};
  forms["SgdUpdate"] = {&WriteSgd};
  forms["AdamUpdate"] = {&WriteAdam};
  forms["MovingAverageUpdate"] = {&WriteMovingAverage};
  forms["GlobalNorm"] = {&WriteGlobalNorm};
}

}  // namespace replicant::exporting
