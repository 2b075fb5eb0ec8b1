// The flags of llama-server (b11434) and of mlx_lm.server (0.31): each is known to `quince serve`,
// and takes the argument behind it exactly where it does there.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "cli/args.h"
#include "cli/serve_options.h"
#include "weights/files.h"

namespace quince::cli {
namespace {

using test::user_error;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kLlamaWithValue[] = {
    "-t",
    "--threads",
    "-tb",
    "--threads-batch",
    "-C",
    "--cpu-mask",
    "-Cr",
    "--cpu-range",
    "--cpu-strict",
    "--prio",
    "--poll",
    "-Cb",
    "--cpu-mask-batch",
    "-Crb",
    "--cpu-range-batch",
    "--cpu-strict-batch",
    "--prio-batch",
    "--poll-batch",
    "-c",
    "--ctx-size",
    "-n",
    "--predict",
    "--n-predict",
    "-b",
    "--batch-size",
    "-ub",
    "--ubatch-size",
    "--keep",
    "--rope-scaling",
    "--rope-scale",
    "--rope-freq-base",
    "--rope-freq-scale",
    "--yarn-orig-ctx",
    "--yarn-ext-factor",
    "--yarn-attn-factor",
    "--yarn-beta-slow",
    "--yarn-beta-fast",
    "-ctk",
    "--cache-type-k",
    "-ctv",
    "--cache-type-v",
    "-dt",
    "--defrag-thold",
    "--rpc",
    "-lm",
    "--load-mode",
    "-lzm",
    "--lazy-mode",
    "--numa",
    "-dev",
    "--device",
    "-ot",
    "--override-tensor",
    "-ncmoe",
    "--n-cpu-moe",
    "-ncffn",
    "--n-cpu-ffn",
    "-ngl",
    "--gpu-layers",
    "--n-gpu-layers",
    "-sm",
    "--split-mode",
    "-ts",
    "--tensor-split",
    "-mg",
    "--main-gpu",
    "-fitt",
    "--fit-target",
    "-fitc",
    "--fit-ctx",
    "--override-kv",
    "--lora",
    "--lora-scaled",
    "--control-vector",
    "--control-vector-scaled",
    "--control-vector-layer-range",
    "-m",
    "--model",
    "-mu",
    "--model-url",
    "-dr",
    "--docker-repo",
    "-hf",
    "-hfr",
    "--hf-repo",
    "-hff",
    "--hf-file",
    "-hft",
    "--hf-token",
    "--log-file",
    "-lv",
    "--verbosity",
    "--log-verbosity",
    "--spec-draft-type-k",
    "-ctkd",
    "--cache-type-k-draft",
    "--spec-draft-type-v",
    "-ctvd",
    "--cache-type-v-draft",
    "--samplers",
    "-s",
    "--seed",
    "--sampler-seq",
    "--sampling-seq",
    "--temp",
    "--temperature",
    "--top-k",
    "--top-p",
    "--min-p",
    "--top-nsigma",
    "--top-n-sigma",
    "--xtc-probability",
    "--xtc-threshold",
    "--typical",
    "--typical-p",
    "--repeat-last-n",
    "--repeat-penalty",
    "--presence-penalty",
    "--frequency-penalty",
    "--dry-multiplier",
    "--dry-base",
    "--dry-allowed-length",
    "--dry-penalty-last-n",
    "--dry-sequence-breaker",
    "--adaptive-target",
    "--adaptive-decay",
    "--dynatemp-range",
    "--dynatemp-exp",
    "--mirostat",
    "--mirostat-lr",
    "--mirostat-ent",
    "-l",
    "--logit-bias",
    "--grammar",
    "--grammar-file",
    "-j",
    "--json-schema",
    "-jf",
    "--json-schema-file",
    "--spec-draft-hf",
    "-hfd",
    "-hfrd",
    "--hf-repo-draft",
    "--spec-draft-threads",
    "-td",
    "--threads-draft",
    "--spec-draft-threads-batch",
    "-tbd",
    "--threads-batch-draft",
    "--spec-draft-cpu-mask",
    "-Cd",
    "--cpu-mask-draft",
    "--spec-draft-cpu-range",
    "-Crd",
    "--cpu-range-draft",
    "--spec-draft-cpu-strict",
    "--cpu-strict-draft",
    "--spec-draft-prio",
    "--prio-draft",
    "--spec-draft-poll",
    "--poll-draft",
    "--spec-draft-cpu-mask-batch",
    "-Cbd",
    "--cpu-mask-batch-draft",
    "--spec-draft-cpu-strict-batch",
    "--cpu-strict-batch-draft",
    "--spec-draft-prio-batch",
    "--prio-batch-draft",
    "--spec-draft-poll-batch",
    "--poll-batch-draft",
    "--spec-draft-override-tensor",
    "-otd",
    "--override-tensor-draft",
    "--spec-draft-n-cpu-moe",
    "--spec-draft-ncmoe",
    "-ncmoed",
    "--n-cpu-moe-draft",
    "--spec-draft-n-max",
    "--spec-draft-n-min",
    "--spec-synth-len",
    "--spec-synth-rates",
    "--spec-draft-p-split",
    "--draft-p-split",
    "--spec-draft-p-min",
    "--draft-p-min",
    "--spec-draft-sampling",
    "--spec-draft-device",
    "-devd",
    "--device-draft",
    "--spec-draft-ngl",
    "-ngld",
    "--gpu-layers-draft",
    "--n-gpu-layers-draft",
    "--spec-draft-model",
    "-md",
    "--model-draft",
    "--spec-type",
    "--spec-ngram-mod-n-min",
    "--spec-ngram-mod-n-max",
    "--spec-ngram-mod-n-match",
    "--spec-ngram-simple-size-n",
    "--spec-ngram-simple-size-m",
    "--spec-ngram-simple-min-hits",
    "--spec-ngram-map-k-size-n",
    "--spec-ngram-map-k-size-m",
    "--spec-ngram-map-k-min-hits",
    "--spec-ngram-map-k4v-size-n",
    "--spec-ngram-map-k4v-size-m",
    "--spec-ngram-map-k4v-min-hits",
    "--draft",
    "--draft-n",
    "--draft-max",
    "--draft-min",
    "--draft-n-min",
    "--spec-ngram-size-n",
    "--spec-ngram-size-m",
    "--spec-ngram-min-hits",
    "-lcs",
    "--lookup-cache-static",
    "-lcd",
    "--lookup-cache-dynamic",
    "--kv-unified-per-slot",
    "-ctxcp",
    "--ctx-checkpoints",
    "--swa-checkpoints",
    "-cms",
    "--checkpoint-min-step",
    "-cram",
    "--cache-ram",
    "-r",
    "--reverse-prompt",
    "--pooling",
    "-np",
    "--parallel",
    "-mm",
    "--mmproj",
    "-mmu",
    "--mmproj-url",
    "-mmdev",
    "--mmproj-device",
    "--image-min-tokens",
    "--image-max-tokens",
    "--mtmd-batch-max-tokens",
    "--video-fps",
    "--video-timestamp-interval",
    "--video-ffmpeg-dir",
    "-a",
    "--alias",
    "--tags",
    "--embd-normalize",
    "--host",
    "--port",
    "--path",
    "--cors-origins",
    "--cors-methods",
    "--cors-headers",
    "--api-prefix",
    "--ui-config",
    "--webui-config",
    "--ui-config-file",
    "--webui-config-file",
    "--tools",
    "--tools-runtime",
    "--mcp-servers-config",
    "--mcp-servers-json",
    "--api-key",
    "--api-key-file",
    "--ssl-key-file",
    "--ssl-cert-file",
    "--chat-template-kwargs",
    "-to",
    "--timeout",
    "--sse-ping-interval",
    "--threads-http",
    "--cache-reuse",
    "--slot-save-path",
    "--media-path",
    "--models-dir",
    "--models-preset",
    "--models-max",
    "--reasoning-format",
    "--reasoning-effort",
    "--reasoning-budget",
    "--reasoning-budget-message",
    "--chat-template",
    "--chat-template-file",
    "-sps",
    "--slot-prompt-similarity",
    "--sleep-idle-seconds",
    "--log-prompts-dir"};

constexpr const char* kLlamaAlone[] = {
    "--usage",
    "--version",
    "-cl",
    "--cache-list",
    "--completion-bash",
    "--swa-full",
    "--perf",
    "--no-perf",
    "-e",
    "--escape",
    "--no-escape",
    "-kvo",
    "--kv-offload",
    "-nkvo",
    "--no-kv-offload",
    "--repack",
    "-nr",
    "--no-repack",
    "--no-host",
    "--list-devices",
    "-cmoe",
    "--cpu-moe",
    "--check-tensors",
    "--op-offload",
    "--no-op-offload",
    "--log-disable",
    "--log-jsonl",
    "--no-log-jsonl",
    "-v",
    "--verbose",
    "--log-verbose",
    "--offline",
    "--log-prefix",
    "--no-log-prefix",
    "--log-timestamps",
    "--no-log-timestamps",
    "--ignore-eos",
    "-bs",
    "--backend-sampling",
    "--spec-draft-cpu-moe",
    "-cmoed",
    "--cpu-moe-draft",
    "--spec-draft-backend-sampling",
    "--no-spec-draft-backend-sampling",
    "-kvu",
    "--kv-unified",
    "-no-kvu",
    "--no-kv-unified",
    "--cache-idle-slots",
    "--no-cache-idle-slots",
    "--context-shift",
    "--no-context-shift",
    "-sp",
    "--special",
    "--warmup",
    "--no-warmup",
    "--spm-infill",
    "-cb",
    "--cont-batching",
    "-nocb",
    "--no-cont-batching",
    "--mmproj-auto",
    "--no-mmproj",
    "--no-mmproj-auto",
    "--mmproj-offload",
    "--no-mmproj-offload",
    "--reuse-port",
    "--cors-credentials",
    "--no-cors-credentials",
    "--ui-mcp-proxy",
    "--webui-mcp-proxy",
    "--no-ui-mcp-proxy",
    "--no-webui-mcp-proxy",
    "-ag",
    "--agent",
    "-no-ag",
    "--no-agent",
    "--ui",
    "--webui",
    "--no-ui",
    "--no-webui",
    "--embedding",
    "--embeddings",
    "--rerank",
    "--reranking",
    "--cache-prompt",
    "--no-cache-prompt",
    "--metrics",
    "--props",
    "--slots",
    "--no-slots",
    "--models-autoload",
    "--no-models-autoload",
    "--jinja",
    "--no-jinja",
    "--reasoning-preserve",
    "--no-reasoning-preserve",
    "--skip-chat-parsing",
    "--no-skip-chat-parsing",
    "--prefill-assistant",
    "--no-prefill-assistant",
    "--lora-init-without-apply",
    "--embd-gemma-default",
    "--fim-qwen-1.5b-default",
    "--fim-qwen-3b-default",
    "--fim-qwen-7b-default",
    "--fim-qwen-7b-spec",
    "--fim-qwen-14b-spec",
    "--fim-qwen-30b-default",
    "--gpt-oss-20b-default",
    "--gpt-oss-120b-default",
    "--vision-gemma-4b-default",
    "--vision-gemma-12b-default",
    "--spec-default"};

constexpr const char* kLlamaSwitches[] = {
    "-fa", "--flash-attn", "-fit", "--fit", "--log-colors", "-rea", "--reasoning"};

constexpr const char* kMlxWithValue[] = {
    "--model",
    "--adapter-path",
    "--host",
    "--port",
    "--allowed-origins",
    "--draft-model",
    "--num-draft-tokens",
    "--log-level",
    "--chat-template",
    "--temp",
    "--top-p",
    "--top-k",
    "--min-p",
    "--max-tokens",
    "--chat-template-args",
    "--decode-concurrency",
    "--prompt-concurrency",
    "--prefill-step-size",
    "--prompt-cache-size",
    "--prompt-cache-bytes",
    "--kv-bits",
    "--kv-group-size",
    "--quantized-kv-start"};

constexpr const char* kMlxAlone[] = {
    "--trust-remote-code", "--use-default-chat-template", "--pipeline"};

// Two values: refused before the second one is looked at.
constexpr const char* kRange = "--control-vector-layer-range";

struct Parsed {
  explicit Parsed(std::vector<std::string> arguments) : app("", "serve"), flags(app) {
    parse_flags(app, std::move(arguments));
  }
  CLI::App app;
  ServeFlags flags;
};

ServeOptions parsed(const std::vector<std::string>& arguments) {
  return Parsed(arguments).flags.finish();
}

TEST(ServeFlags, KnowTheFlagsOfOtherServers) {
  const Parsed serve({"m"});
  const auto check = [&](const auto& names, bool takes_value) {
    for (const char* text : names) {
      const std::string name = text;
      const CLI::Option* option = find_flag(serve.app, name);
      ASSERT_NE(option, nullptr) << name;
      EXPECT_EQ(option->get_items_expected_max() > 0, takes_value) << name;
    }
  };
  check(kLlamaWithValue, true);
  check(kLlamaAlone, false);
  check(kLlamaSwitches, false);
  check(kMlxWithValue, true);
  check(kMlxAlone, false);
}

// Taken or refused, no flag swallows what is behind it, and what is refused says which and why.
TEST(ServeFlags, LeaveTheNextArgumentAlone) {
  const auto check = [](const auto& names, const std::vector<std::string>& values) {
    for (const char* text : names) {
      const std::string name = text;
      if (name == "--usage" || name == "--model" || name == "-m" || name == kRange) {
        continue;
      }
      for (const std::string& value : values) {
        std::vector<std::string> arguments{name};
        if (!value.empty()) {
          arguments.push_back(value);
        }
        arguments.emplace_back("the-model");
        try {
          EXPECT_EQ(parsed(arguments).model, "the-model") << name;
        } catch (const UserError& error) {
          const std::string message = error.what();
          EXPECT_THAT(message, StartsWith("--")) << name;
          EXPECT_THAT(message, HasSubstr(": ")) << name;
          EXPECT_THAT(message, testing::Not(HasSubstr("unknown option"))) << name;
          EXPECT_THAT(message, testing::Not(HasSubstr("missing"))) << name;
        }
      }
    }
  };
  testing::internal::CaptureStderr();  // their notes
  check(kLlamaAlone, {""});
  check(kMlxAlone, {""});
  check(kLlamaSwitches, {"", "on", "off", "auto"});
  const std::string notes = testing::internal::GetCapturedStderr();
  EXPECT_THAT(notes, HasSubstr("note: --flash-attn: attention is always"));
  EXPECT_THAT(notes, HasSubstr("note: --warmup: a model is ready"));
}

TEST(ServeFlags, FlashAttentionMayHaveAWord) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parsed({"-fa", "m"}).model, "m");
  EXPECT_EQ(parsed({"m", "-fa"}).model, "m");
  EXPECT_EQ(parsed({"-fa", "on", "m"}).model, "m");
  EXPECT_EQ(parsed({"--flash-attn=off", "m"}).model, "m");
  EXPECT_EQ(parsed({"-fa", "--port", "1", "m"}).http.port, 1);
  EXPECT_EQ(parsed({"-fa", "--", "auto"}).model, "auto");
  EXPECT_EQ(parsed({"--alias", "-fa", "m"}).aliases, std::vector<std::string>{"-fa"});
  EXPECT_THAT(
      user_error([] { parsed({"--flash-attn=maybe", "m"}); }), HasSubstr("on, off or auto"));
  testing::internal::GetCapturedStderr();
}

TEST(ServeFlags, AWordThatIsNoSwitch) {
  testing::internal::CaptureStderr();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"m", "-fa", "foo"}, {"-fa", "foo", "m"}}) {
    EXPECT_THAT(
        user_error([&] { parsed(arguments); }),
        StartsWith("--flash-attn 'foo': want on, off or auto"));
  }
  EXPECT_THAT(user_error([] { parsed({"m", "n", "-fa"}); }), HasSubstr("one argument too many"));
  testing::internal::GetCapturedStderr();
}

TEST(ServeFlags, AValueThatIsMissing) {
  for (const char* flag : {"-ngl", "--n-gpu-layers", "-tb", "--split-mode", "--embd-normalize"}) {
    EXPECT_THAT(
        user_error([&] { parsed({"m", flag}); }),
        StartsWith(std::string(flag) + ": its value is missing"));
  }
  EXPECT_THAT(user_error([] { parsed({"m", "--port"}); }), StartsWith("--port: its value"));
  for (const char* flag :
       {"--prompt-cache-file",
        "--log-file",
        "--api-key-file",
        "--config",
        "--chat-template-file",
        "--ssl-cert-file"}) {
    EXPECT_THAT(
        user_error([&] { parsed({"m", flag, ""}); }),
        StartsWith(std::string(flag) + " '': the name of a file is empty"));
  }
}

TEST(ServeFlags, OfTwoThatContradictTheLastCounts) {
  EXPECT_FALSE(parsed({"m", "--slots", "--no-slots"}).app.slots);
  EXPECT_TRUE(parsed({"m", "--no-slots", "--slots"}).app.slots);
  EXPECT_FALSE(parsed({"m", "--no-slots", "--slots", "--no-slots"}).app.slots);
  EXPECT_TRUE(parsed({"m", "--no-metrics", "--metrics"}).app.metrics);
  EXPECT_TRUE(parsed({"m", "--no-ui", "--webui"}).app.page);
  EXPECT_FALSE(parsed({"m", "--no-mmap", "--mmap"}).compute.read_files);
  EXPECT_TRUE(parsed({"m", "--mmap", "--no-mmap"}).compute.read_files);
}

TEST(ServeFlags, MeanWhatTheyMeanElsewhere) {
  EXPECT_EQ(parsed({"m", "-ngl", "99"}).compute.gpu_layers, 99);
  EXPECT_EQ(parsed({"m", "-ngl", "all"}).compute.gpu_layers, -1);
  EXPECT_EQ(parsed({"m", "-ngl", "0", "-ngl", "auto"}).compute.gpu_layers, std::nullopt);
  EXPECT_THAT(user_error([] { parsed({"m", "-ngl", "most"}); }), StartsWith("--n-gpu-layers"));
  EXPECT_EQ(parsed({"m", "-np", "-1"}).engine.max_running, EngineOptions().max_running);
  EXPECT_EQ(parsed({"m", "-np", "4"}).engine.max_running, 4);
  EXPECT_EQ(parsed({"m", "-cram", "8192"}).engine.kept_bytes, size_t{8} << 30);
  EXPECT_EQ(parsed({"m", "--cache-ram", "2GB"}).engine.kept_bytes, size_t{2} << 30);
  EXPECT_EQ(parsed({"m", "--cache-ram", "0"}).engine.kept_bytes, 0u);
  EXPECT_GT(parsed({"m", "--cache-ram", "-1"}).engine.kept_bytes, size_t{1} << 60);
  EXPECT_EQ(parsed({"m", "--prompt-cache-bytes", "8192"}).engine.kept_bytes, 8192u);
  EXPECT_TRUE(parsed({"m", "--mlock"}).compute.lock_memory);
  EXPECT_TRUE(parsed({"m", "--no-mmap"}).compute.read_files);
  EXPECT_TRUE(parsed({"m", "-lm", "mmap+mlock"}).compute.lock_memory);
  EXPECT_FALSE(parsed({"m", "-lm", "mmap+mlock"}).compute.read_files);
  EXPECT_TRUE(parsed({"m", "-lm", "none"}).compute.read_files);
  EXPECT_THAT(user_error([] { parsed({"m", "-lm", "dio"}); }), StartsWith("--load-mode dio"));
  EXPECT_EQ(parsed({"-hf", "some/repo"}).model, "some/repo");
  EXPECT_EQ(parsed({"m", "-dev", "none"}).compute.device, "cpu");
  EXPECT_EQ(parsed({"m", "-md", "small"}).draft.model, "small");
  EXPECT_EQ(parsed({"m", "--draft-max", "3"}).draft.tokens, 3);
  EXPECT_EQ(parsed({"m", "--cors-origins", "localhost"}).app.cors_origin, "local");
  EXPECT_EQ(parsed({"m", "--allowed-origins", "*"}).app.cors_origin, "*");
  EXPECT_EQ(parsed({"m", "--log-jsonl"}).log_format, "json");
  EXPECT_EQ(parsed({"m", "--no-ui"}).app.page, false);
  EXPECT_EQ(parsed({"m", "--sse-ping-interval", "30"}).http.keep_alive, std::chrono::seconds(30));
  EXPECT_GT(
      parsed({"m", "--sse-ping-interval", "-1"}).http.keep_alive, std::chrono::hours(24 * 300));
  EXPECT_EQ(parsed({"m", "--kv-group-size", "32", "--kv-bits", "8"}).compute.kv_group, 32);
  EXPECT_EQ(parsed({"m", "--quantized-kv-start", "0"}).model, "m");
  EXPECT_THAT(
      user_error([] { parsed({"m", "--quantized-kv-start", "5000"}); }),
      HasSubstr("from the first token on"));
  EXPECT_EQ(parsed({"m", "--embd-normalize", "2"}).model, "m");
  EXPECT_THAT(user_error([] { parsed({"m", "--embd-normalize", "-1"}); }), HasSubstr("length 1"));
  EXPECT_EQ(parsed({"m", "--reasoning-format", "deepseek"}).model, "m");
  EXPECT_THAT(
      user_error([] { parsed({"m", "--reasoning-format", "none"}); }), HasSubstr("told apart"));
  EXPECT_THAT(user_error([] { parsed({"m", kRange, "1", "2"}); }), StartsWith(kRange));
}

TEST(ServeFlags, GroupsAreWhatTheKernelsHave) {
  ComputeFlags flags;
  flags.device = "cpu";
  flags.kv_group = 64;
  EXPECT_THAT(user_error([&] { plan_compute(flags); }), HasSubstr("in groups of 32"));
  flags.kernels = "mlx";
  EXPECT_NO_THROW(plan_compute(flags));
}

}  // namespace
}  // namespace quince::cli
