#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/tensor/tensor_view.h"

// The messages of an ONNX model (onnx.proto of ONNX 1.14, IR version 8), as far
// as an export needs them, written in protobuf's wire format.
namespace replicant::exporting {

using OnnxAttribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>>;

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs;  // "" stands for an omitted optional input
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, OnnxAttribute>> attributes;
  std::string name;
};

// TensorProto.DataType.
int64_t OnnxType(DType dtype);

// A tensor of the graph's interface. A dimension is a number, or a name if it
// may be any number.
struct OnnxValue {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::variant<int64_t, std::string>> dims;
};

// Collects a model and encodes it. Nodes come in an order of execution, each
// value before its users.
class OnnxModel {
 public:
  void AddInput(const OnnxValue& value) { AddValue(kInput, value); }
  void AddOutput(const OnnxValue& value) { AddValue(kOutput, value); }
  void AddNode(const OnnxNode& node);
  // A constant; the elements are copied.
  void AddInitializer(std::string_view name, const TensorView& value);

  // Returns the bytes of the whole model.
  std::string Encode(std::string_view name, int64_t opset,
                     const std::map<std::string, std::string>& metadata) const;

 private:
  // field numbers of GraphProto
  enum Field { kNode = 1, kInitializer = 5, kInput = 11, kOutput = 12 };

  void AddValue(Field field, const OnnxValue& value);

  std::string graph_;
};

}  // namespace replicant::exporting
