#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nibble/base/error.h"
#include "nibble/base/files/file.h"
#include "nibble/container/safetensors/reader.h"
#include "nibble/container/torch_pickle/pickle.h"
#include "nibble/container/torch_pickle/reader.h"
#include "nibble/container/torch_pickle/writer.h"
#include "reference_data.h"
#include "temporary_directory.h"

namespace nibble::container {
namespace {

using ::testing::HasSubstr;

class TorchFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const {
    return directory_ / name;
  }

  // Two tensors, the second of an untyped dtype.
  std::filesystem::path write_small() const {
    const auto file = path("small.pth");
    TorchFileWriter writer(directory_,
                           {"small.pth",
                            {{"layer.weight", DType::kBF16, {2, 3}, 12, "", 0},
                             {"layer.codes", DType::kF8E4M3, {5}, 5, "", 0}}});
    std::array<std::byte, 12> weight{};
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = std::byte(i);
    }
    writer.write("layer.weight", 6, std::span(weight).subspan(6));
    writer.write("layer.weight", 0, std::span(weight).first(6));
    writer.write("layer.codes", 0, std::span(weight).first(5));
    writer.finish();
    return file;
  }

  std::string bytes_of(const std::filesystem::path& file) const {
    return read_text_file(file);
  }

  // The message and code of opening a file with these bytes.
  std::pair<ErrorCode, std::string> refusal(const std::string& bytes) const {
    const auto file = path("refused.pth");
    write_file_atomically(file, bytes);
    try {
      const auto reader = open_torch_file(file);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ErrorCode::kInternal, "opened"};
  }

  TemporaryDirectory temporary_;
  std::filesystem::path directory_ = temporary_.path();
};

std::pair<ErrorCode, std::string> pickle_refusal(const std::string& bytes) {
  try {
    static_cast<void>(read_pickle(std::as_bytes(std::span(bytes))));
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kInternal, "read"};
}

// "\x80\x02" body "."
std::string pickled(const std::string& body) {
  std::string out = "\x80\x02";
  out += body;
  out += '.';
  return out;
}

std::string unicode(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string out = "X";
  out.append(reinterpret_cast<const char*>(&size), 4);
  return out + text;
}

// A float32 tensor of storage "0" with 4 elements, as a dictionary entry.
std::string tensor_entry(const std::string& offset_size_stride) {
  return std::string("}") + unicode("w") +
         "ctorch._utils\n_rebuild_tensor_v2\n((" + unicode("storage") +
         "ctorch\nFloatStorage\n" + unicode("0") + unicode("cpu") + "K\x04tQ" +
         offset_size_stride +
         "\x89"
         "ccollections\nOrderedDict\n)RtRs";
}

TEST_F(TorchFileTest, WritesWhatItReads) {
  const auto reader = open_torch_file(write_small());
  ASSERT_EQ(reader->tensors().size(), 2u);
  const TensorInfo& weight = reader->get("layer.weight");
  EXPECT_EQ(weight.dtype, DType::kBF16);
  EXPECT_EQ(weight.shape, Shape({2, 3}));
  const Tensor data = reader->load(weight);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(data.view().data()[i], std::byte(i));
  }
  EXPECT_EQ(reader->get("layer.codes").dtype, DType::kF8E4M3);
  EXPECT_TRUE(reader->map(weight).has_value());
}

TEST_F(TorchFileTest, TakesCopiesOfItsDescriptions) {
  const auto reader = open_torch_file(write_small());
  const TensorInfo copy = reader->get("layer.weight");
  const Tensor data = reader->load_copy(copy);
  EXPECT_EQ(std::as_const(data).view().data()[11], std::byte{11});
  TensorInfo foreign = copy;
  foreign.name = "layer.other";
  EXPECT_THROW(static_cast<void>(reader->load_copy(foreign)), Error);
}

TEST_F(TorchFileTest, BytesDependOnTensorsAlone) {
  const std::string first = bytes_of(write_small());
  EXPECT_EQ(bytes_of(write_small()), first);
}

TEST_F(TorchFileTest, RefusesEveryTruncation) {
  const std::string whole = bytes_of(write_small());
  for (std::size_t size = 0; size < whole.size(); size += 23) {
    const auto [code, text] = refusal(whole.substr(0, size));
    EXPECT_EQ(code, ErrorCode::kCorruptData) << size << ": " << text;
  }
}

TEST_F(TorchFileTest, RefusesCentralDirectoryThatLies) {
  const std::string whole = bytes_of(write_small());
  const std::size_t entry = whole.find("PK\x01\x02");
  ASSERT_NE(entry, std::string::npos);
  const std::size_t name_bytes = static_cast<unsigned char>(whole[entry + 28]);
  const std::size_t field = entry + 46 + name_bytes + 4;
  std::string large = whole;
  large[field + 7] = '\x7f';  // stored bytes: beyond the file
  large[field + 15] = '\x7f';
  EXPECT_EQ(refusal(large).first, ErrorCode::kCorruptData);
  EXPECT_THAT(refusal(large).second, HasSubstr("central directory"));
  std::string elsewhere = whole;
  elsewhere[field + 16] = '\x01';  // local header at byte 1
  EXPECT_THAT(refusal(elsewhere).second, HasSubstr("no local header"));
  std::string compressed = whole;
  compressed[entry + 10] = 8;
  EXPECT_EQ(refusal(compressed).first, ErrorCode::kUnsupported);
  EXPECT_THAT(refusal(compressed).second, HasSubstr("compression method 8"));
}

TEST_F(TorchFileTest, NamesTheLegacyForm) {
  const auto [code, text] = refusal(
      std::string("\x80\x02\x8a\x0al\xfc\x9c", 7) + "F\xf9 j\xa8P\x19.");
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  EXPECT_THAT(text, HasSubstr("before 1.6"));
}

TEST_F(TorchFileTest, RefusesBigEndianFiles) {
  std::string whole = bytes_of(write_small());
  const std::size_t at = whole.find("little");
  whole.replace(at, 6, "bigbig");
  EXPECT_THAT(refusal(whole).second, HasSubstr("expected little"));
}

TEST(PickleTest, RefusesGlobalsByNameAndPosition) {
  const auto [code, text] =
      pickle_refusal(pickled("cos\nsystem\n" + unicode("true") + "\x85R"));
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  EXPECT_THAT(text, HasSubstr("byte 2"));
  EXPECT_THAT(text, HasSubstr("os system"));
}

TEST(PickleTest, RefusesUnknownOpcodes) {
  const auto [code, text] = pickle_refusal(pickled("}\x95"));
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  EXPECT_THAT(text, HasSubstr("opcode 0x95"));
}

TEST(PickleTest, ReadsATensor) {
  const std::string bytes =
      pickled(tensor_entry(std::string("K\0K\x04\x85K\x01\x85", 8)));
  const auto checkpoint = read_pickle(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(checkpoint.tensors.size(), 1u);
  EXPECT_EQ(checkpoint.tensors[0].name, "w");
  EXPECT_THAT(checkpoint.tensors[0].shape, ::testing::ElementsAre(4));
}

TEST(PickleTest, RefusesTensorsOutsideTheirStorage) {
  for (const std::string& window :
       {std::string("K\x01K\x04\x85K\x01\x85", 8),  // one element too far
        std::string("K\0K\x02\x85K\x04\x85", 8),    // stride too wide
        std::string("K\0K\xff\x85K\0\x85", 8),      // repeated by stride 0
        std::string("J\xff\xff\xff\xffK\x01\x85K\x01\x85", 11)}) {
    const auto [code, text] = pickle_refusal(pickled(tensor_entry(window)));
    EXPECT_EQ(code, ErrorCode::kCorruptData) << text;
  }
}

TEST(PickleTest, RefusesSizesThatOverflow) {
  const std::string huge =
      std::string("\x8a\x08\0\0\0\0\0\0\0\x40", 10);  // 2^62
  const auto [code, text] = pickle_refusal(pickled(tensor_entry(
      std::string("K\0", 2) + huge + huge + "\x86K\x01K\x01\x86")));
  EXPECT_EQ(code, ErrorCode::kCorruptData) << text;
}

TEST(PickleTest, SurvivesDeepNestingAndCycles) {
  // A million nested tuples, then a list that holds itself.
  std::string deep = ")";
  deep.append(1'000'000, '\x85');
  EXPECT_EQ(pickle_refusal(pickled(deep)).first, ErrorCode::kUnsupported);
  const std::string cycle = std::string("]q\0h\0a", 6);
  EXPECT_EQ(pickle_refusal(pickled(cycle)).first, ErrorCode::kUnsupported);
}

// Sixty lists that hold the one before twice: nothing is copied, so that 2^60
// elements cost nothing.
TEST(PickleTest, SurvivesABomb) {
  std::string body = "]q";
  body += '\0';
  for (char i = 1; i < 60; ++i) {
    body += "]q";
    body += i;
    body += "(h";
    body += static_cast<char>(i - 1);
    body += "h";
    body += static_cast<char>(i - 1);
    body += "e";
  }
  const auto [code, text] = pickle_refusal(pickled(body));
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  EXPECT_THAT(text, HasSubstr("list"));
}

TEST(PickleTest, RefusesDamage) {
  for (const std::string& bytes : {std::string(),
                                   std::string("."),
                                   pickled("t"),
                                   pickled("u"),
                                   pickled("h\x05"),
                                   pickled("R"),
                                   pickled("]K\x01s"),
                                   std::string("\x80\x02X\xff\xff\xff\xff"),
                                   pickled("}K\x01K\x02s")}) {
    const ErrorCode code = pickle_refusal(bytes).first;
    EXPECT_TRUE(code == ErrorCode::kCorruptData ||
                code == ErrorCode::kUnsupported);
  }
}

TEST(PickleTest, RefusesANameThatOccursTwice) {
  const std::string entry =
      tensor_entry(std::string("K\0K\x04\x85K\x01\x85", 8)).substr(1);
  const auto [code, text] =
      pickle_refusal(pickled(std::string("}") + entry + entry));
  EXPECT_EQ(code, ErrorCode::kCorruptData);
  EXPECT_THAT(text, HasSubstr("twice"));
}

// Views into shared and transposed storage hold the values of plain tensors.
TEST(TorchGoldenTest, ReadsStridedAndSharedStorages) {
  NIBBLE_REFERENCE_OR_SKIP(views,
                           "golden/meta/scout-mini/views/consolidated.00.pth");
  NIBBLE_REFERENCE_OR_SKIP(
      plain, "golden/meta/scout-mini/bf16-mp1/consolidated.00.pth");
  const auto strided = open_torch_file(views);
  const auto contiguous = open_torch_file(plain);
  std::size_t not_mapped = 0;
  for (const TensorInfo& tensor : strided->tensors()) {
    const TensorInfo& other = contiguous->get(tensor.name);
    ASSERT_EQ(tensor.shape, other.shape) << tensor.name;
    const Tensor a = strided->load_copy(tensor);
    const Tensor b = contiguous->load_copy(other);
    EXPECT_EQ(std::memcmp(a.view().data(), b.view().data(), a.bytes()), 0)
        << tensor.name;
    // A slice from the middle gives the same bytes.
    const std::size_t item = dtype_bytes(tensor.dtype);
    const std::size_t middle = a.bytes() / item / 3 * item;
    std::vector<std::byte> slice(a.bytes() - middle);
    strided->read(tensor, middle, slice);
    EXPECT_EQ(std::memcmp(slice.data(), a.view().data() + middle, slice.size()),
              0);
    not_mapped += strided->map(tensor) ? 0 : 1;
  }
  EXPECT_GT(not_mapped, 0u) << "no strided tensor in the reference file";
}

TEST(TorchGoldenTest, ReadsFloat8AndOpaqueEntries) {
  NIBBLE_REFERENCE_OR_SKIP(
      file, "golden/meta/scout-mini/fp8-mp8/consolidated.00.pth");
  const auto reader = open_torch_file(file);
  const TensorInfo& experts =
      reader->get("layers.1.feed_forward.experts.moe_w_in_eD_F");
  EXPECT_EQ(experts.dtype, DType::kF8E4M3);
  EXPECT_EQ(experts.shape, Shape({256, 128}));
  EXPECT_TRUE(
      reader->metadata().contains("layers.0.attention.wqkv._extra_state"));
}

}  // namespace
}  // namespace nibble::container
