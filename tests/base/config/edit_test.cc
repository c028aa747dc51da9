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

TEST(EditTest, AProblemGetsThePlaceOfItsKey) {
  const Document document = Document::FromText(
      "run.yaml",
      "task:\n  pixels: {camera: top}\n  fields: [{a: 1}, {b: 2}]\n",
      {"run.dir=x"});
  for (const auto& [message, place] : {
           std::pair("task.pixels.camera: no", "run.yaml:2:20: "),
           std::pair("task.pixels.height: no", "run.yaml:2:11: "),
           std::pair("task.fields[1].b: no", "run.yaml:3:24: "),
           std::pair("task.fields[7].b: no", "run.yaml:3:11: "),
           std::pair("run.dir: no", "--set run.dir=x: "),
           std::pair("replay.bind: no", ""),
           std::pair("task: no", ""),
           std::pair("no such file", ""),
           std::pair("/task.pixels: no", ""),
       }) {
    EXPECT_EQ(WithPlace(document, message), std::string(place) + message);
  }
}

}  // namespace
}  // namespace replicant::config
