#include "engine/export/onnx_model.h"

#include "base/protobuf_writer.h"

namespace replicant::exporting {
namespace {

constexpr int64_t kIrVersion = 8;

std::string EncodeAttribute(const std::string& name,
                            const OnnxAttribute& value) {
  // AttributeProto: the value's field, then AttributeType in field 20
  ProtobufWriter message;
  message.Bytes(1, name);
  if (const auto* number = std::get_if<int64_t>(&value)) {
    message.Int(3, *number).Int(20, 2);
  } else if (const auto* real = std::get_if<float>(&value)) {
    message.Float(2, *real).Int(20, 1);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    message.Bytes(4, *text).Int(20, 3);
  } else {
    for (const int64_t x : std::get<std::vector<int64_t>>(value)) {
      message.Int(8, x);
    }
    message.Int(20, 7);
  }
  return message.bytes();
}

}  // namespace

int64_t OnnxType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 1;
    case DType::kU8:
      return 2;
    case DType::kI32:
      return 6;
    case DType::kI64:
      return 7;
    case DType::kBool:
      return 9;
    case DType::kF64:
      return 11;
    case DType::kBF16:
      break;
  }
  return 16;
}

void OnnxModel::AddValue(Field field, const OnnxValue& value) {
  ProtobufWriter shape;
  for (const auto& dim : value.dims) {
    ProtobufWriter dimension;
    if (const auto* size = std::get_if<int64_t>(&dim)) {
      dimension.Int(1, *size);
    } else {
      dimension.Bytes(2, std::get<std::string>(dim));
    }
    shape.Bytes(1, dimension.bytes());
  }
  ProtobufWriter tensor;
  tensor.Int(1, OnnxType(value.dtype)).Bytes(2, shape.bytes());
  ProtobufWriter type;
  type.Bytes(1, tensor.bytes());
  ProtobufWriter info;
  info.Bytes(1, value.name).Bytes(2, type.bytes());
  graph_ += ProtobufWriter().Bytes(field, info.bytes()).bytes();
}

void OnnxModel::AddNode(const OnnxNode& node) {
  ProtobufWriter message;
  for (const std::string& input : node.inputs) message.Bytes(1, input);
  for (const std::string& output : node.outputs) message.Bytes(2, output);
  message.Bytes(3, node.name).Bytes(4, node.op);
  for (const auto& [name, value] : node.attributes) {
    message.Bytes(5, EncodeAttribute(name, value));
  }
  graph_ += ProtobufWriter().Bytes(kNode, message.bytes()).bytes();
}

void OnnxModel::AddInitializer(std::string_view name, const TensorView& value) {
  ProtobufWriter tensor;
  for (const int64_t dim : value.shape().dims()) tensor.Int(1, dim);
  tensor.Int(2, OnnxType(value.dtype())).Bytes(8, name);
  tensor.Bytes(
      9, {reinterpret_cast<const char*>(value.data()), value.size_bytes()});
  graph_ += ProtobufWriter().Bytes(kInitializer, tensor.bytes()).bytes();
}

std::string OnnxModel::Encode(
    std::string_view name, int64_t opset,
    const std::map<std::string, std::string>& metadata) const {
  ProtobufWriter model;
  model.Int(1, kIrVersion).Bytes(2, "replicant");
  model.Bytes(7, graph_ + ProtobufWriter().Bytes(2, name).bytes());
  // the default domain, whose name is empty
  model.Bytes(8, ProtobufWriter().Bytes(1, "").Int(2, opset).bytes());
  for (const auto& [key, value] : metadata) {
    model.Bytes(14, ProtobufWriter().Bytes(1, key).Bytes(2, value).bytes());
  }
  return model.bytes();
}

}  // namespace replicant::exporting
