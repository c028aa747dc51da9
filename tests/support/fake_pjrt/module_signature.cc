#include "tests/support/fake_pjrt/module_signature.h"

#include <map>
#include <regex>

namespace replicant::testing {
namespace {

struct Element {
  PJRT_Buffer_Type type;
  size_t size;
};

const std::map<std::string, Element>& Elements() {
  static const auto* const elements = new std::map<std::string, Element>{
      {"f32", {PJRT_Buffer_Type_F32, 4}},   {"f64", {PJRT_Buffer_Type_F64, 8}},
      {"bf16", {PJRT_Buffer_Type_BF16, 2}}, {"ui8", {PJRT_Buffer_Type_U8, 1}},
      {"i32", {PJRT_Buffer_Type_S32, 4}},   {"i64", {PJRT_Buffer_Type_S64, 8}},
      {"i1", {PJRT_Buffer_Type_PRED, 1}}};
  return *elements;
}

// "2x3xf32"
FakeType ParseType(const std::string& text) {
  FakeType type;
  size_t begin = 0;
  for (size_t x = text.find('x'); x != std::string::npos;
       x = text.find('x', begin)) {
    type.dims.push_back(std::stoll(text.substr(begin, x - begin)));
    begin = x + 1;
  }
  type.type = Elements().at(text.substr(begin)).type;
  return type;
}

}  // namespace

std::optional<ModuleSignature> ParseSignature(const std::string& module) {
  const size_t begin = module.find("@main(");
  const size_t arrow = module.find("->", begin);
  const size_t end = module.find(") {", arrow);
  if (begin == std::string::npos || arrow == std::string::npos) return {};
  const std::string arguments = module.substr(begin, arrow - begin);
  const std::string results = module.substr(arrow, end - arrow);

  ModuleSignature signature;
  static const std::regex argument(
      R"(tensor<([0-9a-z]+)>\s*(\{[^}]*tf\.aliasing_output = ([0-9]+)[^}]*\})?)");
  for (std::sregex_iterator i(arguments.begin(), arguments.end(), argument), no;
       i != no; ++i) {
    signature.arguments.push_back(ParseType((*i)[1]));
    std::optional<size_t> result;
    if ((*i)[3].matched) result = std::stoull((*i)[3]);
    signature.aliased_results.push_back(result);
  }
  static const std::regex tensor("tensor<([0-9a-z]+)>");
  for (std::sregex_iterator i(results.begin(), results.end(), tensor), no;
       i != no; ++i) {
    signature.results.push_back(ParseType((*i)[1]));
  }
  return signature;
}

size_t SizeInBytes(const FakeType& type) {
  size_t size = 0;
  for (const auto& [name, element] : Elements()) {
    if (element.type == type.type) size = element.size;
  }
  for (const int64_t dim : type.dims) size *= static_cast<size_t>(dim);
  return size;
}

}  // namespace replicant::testing
