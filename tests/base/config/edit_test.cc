#include "base/config/edit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>

namespace replicant::config {
namespace {

TEST(EditTest, APathInAFileIsRelativeToThatFile) {
  const std::map<std::string, std::string> files = {
      {"/a/run.yaml", "base: ../b/base.yaml\ntask: {mine: ../m/x.xml}\n"},
      {"/b/base.yaml", "task: {theirs: y.xml, empty: '', far: /z.xml}\n"}};
  Document document =
      Document::FromFile("/a/run.yaml", {"task.given=z.xml"},
                         [&](const std::filesystem::path& path) {
                           return files.at(path.lexically_normal());
                         });
  const auto path = [&](const char* key) {
    MakeAbsolute(document, key);
    const Node* node = &document.root();
    std::istringstream keys(key);
    for (std::string part; node != nullptr && std::getline(keys, part, '.');) {
      const Node::Entry* const entry = node->Find(part);
      node = entry == nullptr ? nullptr : &entry->value;
    }
    return node == nullptr || node->text.empty() ? "none" : node->text;
  };
  EXPECT_EQ(path("task.mine"), "/m/x.xml");
  EXPECT_EQ(path("task.theirs"), "/b/y.xml");
  EXPECT_EQ(path("task.far"), "/z.xml");
  EXPECT_EQ(path("task.given"), std::filesystem::current_path() / "z.xml");
  EXPECT_EQ(path("task.empty"), "none");
  EXPECT_EQ(path("task.other"), "none");
  EXPECT_EQ(path("task"), "none");
}

TEST(EditTest, ReplacesOneValueOfAResolvedConfiguration) {
  const std::string yaml = "run:\n  dir: \"\"\ntask:\n  mjcf: \"\"\n  n: 3\n";
  EXPECT_EQ(WithValue(yaml, "task.mjcf", "model/model.xml"),
            "run:\n  dir: \"\"\ntask:\n  mjcf: model/model.xml\n  n: 3\n");
  EXPECT_EQ(WithValue(yaml, "run.dir", "yes"),
            "run:\n  dir: \"yes\"\ntask:\n  mjcf: \"\"\n  n: 3\n");
  EXPECT_EQ(WithValue(yaml, "task.n", 20),
            "run:\n  dir: \"\"\ntask:\n  mjcf: \"\"\n  n: 20\n");
}

}  // namespace
}  // namespace replicant::config
