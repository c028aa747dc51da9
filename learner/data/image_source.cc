#include "learner/data/image_source.h"

#include <fmt/format.h>

#include <algorithm>

namespace replicant::data {

std::vector<std::string> EmptyClasses(const ImageSource& source) {
  const std::vector<std::string>& names = source.class_names();
  const std::vector<int64_t> sizes = source.ClassSizes();
  std::vector<std::string> empty;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) continue;
    empty.push_back(names.empty() ? std::to_string(i) : names[i]);
  }
  return empty;
}

std::string Describe(const ImageSource& source) {
  std::string text =
      fmt::format("{} images, {} classes", source.size(), source.num_classes());
  if (!source.class_names().empty()) {
    text += fmt::format(" ({})", ListNames(source.class_names()));
  }
  const std::vector<std::string> empty = EmptyClasses(source);
  if (!empty.empty()) {
    text += fmt::format("; no images of {}", ListNames(empty));
  }
  const std::vector<LeftOut> left_out = source.left_out();
  if (!left_out.empty()) text += "; left out: " + DescribeLeftOut(left_out);
  return text;
}

bool HasLosses(const ImageSource& source) {
  return std::ranges::any_of(source.left_out(), &LeftOut::is_loss);
}

}  // namespace replicant::data
