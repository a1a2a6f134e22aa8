// Ask an exported model about a photo, with ONNX Runtime's C API only.
//
//     g++ -std=c++17 -O2 ask.cpp -I onnxruntime/include -L onnxruntime/lib -lonnxruntime
//         -Wl,-rpath,"$PWD/onnxruntime/lib" -o ask        (both lines are one command)
//     visvm export birds.visvm birds.onnx
//     ./ask birds.onnx photo.ppm
//
// A PPM file holds bare pixels; most image programs write it. Pixels of a camera or of any other
// library do as well: red, green and blue, row by row, upright.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "onnxruntime_c_api.h"

static const OrtApi* api;

[[noreturn]] static void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

static void check(OrtStatus* status) {
  if (status != nullptr) fail(api->GetErrorMessage(status));
}

struct Photo {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;
};

static Photo read_ppm(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int white = 0;
  Photo photo;
  const auto next = [&file]() -> std::ifstream& {
    while ((file >> std::ws).peek() == '#') file.ignore(1 << 20, '\n');  // a comment
    return file;
  };
  next() >> kind;
  next() >> photo.width;
  next() >> photo.height;
  next() >> white;
  file.get();
  photo.pixels.assign(std::istreambuf_iterator<char>(file), {});
  const auto whole = static_cast<size_t>(3 * photo.width * photo.height);
  if (kind != "P6" || white != 255 || photo.pixels.size() != whole)
    fail(std::string(path) + " is not a binary PPM file of 8 bits.");
  return photo;
}

// The labels are a JSON list of texts, or of whole numbers.
static std::vector<std::string> read_labels(const std::string& json) {
  std::vector<std::string> labels;
  for (size_t at = 0; at < json.size(); ++at) {
    std::string label;
    if (json[at] == '"') {
      while (json[++at] != '"') label += json[at] == '\\' ? json[++at] : json[at];
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      while (json[at] != ',' && json[at] != ']') label += json[at++];
    } else {
      continue;
    }
    labels.push_back(label);
  }
  return labels;
}

int main(int count, char** arguments) {
  if (count != 3) fail("Usage: ask MODEL.onnx PHOTO.ppm");
  api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  OrtEnv* environment;
  OrtSessionOptions* options;
  OrtSession* session;
  OrtAllocator* allocator;
  OrtModelMetadata* about;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "ask", &environment));
  check(api->CreateSessionOptions(&options));
  check(api->CreateSession(environment, arguments[1], options, &session));
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  check(api->SessionGetModelMetadata(session, &about));
  const auto said = [&](const char* key) {
    char* value;
    check(api->ModelMetadataLookupCustomMetadataMap(about, allocator, key, &value));
    if (value == nullptr) fail(std::string(arguments[1]) + " says nothing of " + key);
    const std::string text = value;
    check(api->AllocatorFree(allocator, value));
    return text;
  };
  const std::vector<std::string> labels = read_labels(said("visvm.labels"));

  Photo photo = read_ppm(arguments[2]);
  const int64_t shape[] = {1, photo.height, photo.width, 3};
  OrtMemoryInfo* memory;
  OrtValue* image;
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(api->CreateTensorWithDataAsOrtValue(memory, photo.pixels.data(), photo.pixels.size(), shape,
                                            4, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, &image));
  size_t outputs;  // the fourth, known, is missing where a model cannot tell
  check(api->SessionGetOutputCount(session, &outputs));
  const char* inputs[] = {"image"};
  const char* names[] = {"probabilities", "top", "known"};
  const size_t asked = outputs > 3 ? 3 : 2;
  const OrtValue* given[] = {image};
  OrtValue* found[3] = {nullptr, nullptr, nullptr};
  check(api->Run(session, nullptr, inputs, given, 1, names, asked, found));

  void* data[3] = {nullptr, nullptr, nullptr};
  for (size_t each = 0; each < asked; ++each) check(api->GetTensorMutableData(found[each], &data[each]));
  const auto* probabilities = static_cast<const float*>(data[0]);
  const auto* top = static_cast<const int64_t*>(data[1]);
  OrtTensorTypeAndShapeInfo* sides;
  size_t n_top;
  check(api->GetTensorTypeAndShape(found[1], &sides));
  check(api->GetTensorShapeElementCount(sides, &n_top));
  if (asked == 3 && *static_cast<const float*>(data[2]) < std::stof(said("visvm.unknown")))
    std::printf("none of these; closest:\n");
  for (size_t each = 0; each < n_top; ++each)
    std::printf("%s %.1f %%\n", labels.at(top[each]).c_str(), 100 * probabilities[top[each]]);

  api->ReleaseTensorTypeAndShapeInfo(sides);
  for (OrtValue* each : found) api->ReleaseValue(each);
  api->ReleaseValue(image);
  api->ReleaseMemoryInfo(memory);
  api->ReleaseModelMetadata(about);
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(environment);
}
