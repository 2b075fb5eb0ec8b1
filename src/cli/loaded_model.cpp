#include "cli/loaded_model.h"

#include <chrono>
#include <future>

#include "base/error.h"
#include "cli/progress.h"

namespace quince::cli {

LoadedModel load(const LoadRequest& request) {
  auto start = std::chrono::steady_clock::now();
  Compute compute = plan_compute(request.compute);
  ModelFiles files = open_model(request.model);
  if (compute.read_files) {
    read_tensors(files);
  }
  boost::json::object generation_config = files.generation_config;
  std::vector<std::string> notes = compute.notes;
  notes.insert(notes.end(), files.notes.begin(), files.notes.end());

  // Reading a vocabulary of 260,000 tokens takes as long as packing a small model's weights.
  std::future<TextSide> text = std::async(
      std::launch::async,
      [source = files.tokenizer,  // the model's identity is of it too
       templates = std::move(files.chat_templates),
       &request]() mutable {
        return make_text_side(std::move(source), templates, request.model, request.text);
      });
  files.chat_templates.clear();

  ProgressBar bar("loading", request.quiet);
  compute.load.progress = [&](double fraction) {
    bar.update(fraction);
    if (request.progress) {
      request.progress(fraction);
    }
  };
  EngineOptions options = request.engine;
  set_engine(compute, options);
  set_drafting(request.draft, compute, options);
  if (!request.quiet) {
    options.log = print_note;
  }
  auto engine = std::make_unique<Engine>(
      [&] {
        use_device(compute.device);
        return load_model(std::move(files), compute.load);
      },
      std::move(options));
  bar.clear();
  // The two halves must fit: ids beyond the output head would be refused one by one later.
  LoadedModel loaded{
      request.model,
      text.get(),
      std::move(generation_config),
      std::move(engine),
      std::move(notes),
      0};
  const ModelInfo& info = loaded.engine->info();
  loaded.notes.insert(loaded.notes.end(), info.notes.begin(), info.notes.end());
  lock_weights(compute, loaded.notes);
  loaded.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

}  // namespace quince::cli
