// A server without Python: TensorFlow's C API and libhostcall_serving.so.
//
//     server LIBRARY
//
// takes commands, one a line, and answers each with one line: "ok ..." or "error CODE MESSAGE", in
// which lines are parted by \n.
//
//     load PATH                                     ok NUMBER of the session
//     run SESSION SHAPE VALUES INPUT OUTPUT         ok SHAPE VALUES
//     serve SESSION THREADS REQUESTS SHAPE A B INPUT OUTPUT
//                                                   ok SUCCEEDED FAILED WRONG MESSAGE
//
// All inputs are floats. A shape is "2x3", or "-" of a scalar; values have commas between them; "none" stands for an INPUT
// that there is not. `serve` fills the input of request i with i % 100, and wants A * x + B.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

enum { kMaxRank = 8, kMaxSessions = 256, kMaxThreads = 64 };

struct Shape {
  int rank;
  int64_t dims[kMaxRank];
  int64_t count;
};

struct Model {
  TF_Graph* graph;
  TF_Session* session;
};

static struct Model models[kMaxSessions];
static int model_count = 0;

static void Answer(const char* kind, const char* text) {
  printf("%s ", kind);
  for (; *text; ++text) *text == '\n' ? fputs("\\n", stdout) : putchar(*text);
  putchar('\n');
  fflush(stdout);
}

static void AnswerStatus(const TF_Status* status) {
  char kind[32];
  snprintf(kind, sizeof kind, "error %d", TF_GetCode(status));
  Answer(kind, TF_Message(status));
}

static struct Shape ParseShape(const char* text) {
  struct Shape shape = {0, {0}, 1};
  while (*text >= '0' && *text <= '9' && shape.rank < kMaxRank) {
    char* end;
    const int64_t size = strtoll(text, &end, 10);
    shape.dims[shape.rank++] = size;
    shape.count *= size;
    text = *end == 'x' ? end + 1 : end;
  }
  return shape;
}

// NAME:INDEX
static TF_Output FindOutput(const struct Model* model, const char* text) {
  char name[512];
  snprintf(name, sizeof name, "%s", text);
  char* colon = strrchr(name, ':');
  int index = 0;
  if (colon != NULL) {
    index = atoi(colon + 1);
    *colon = '\0';
  }
  TF_Output output = {TF_GraphOperationByName(model->graph, name), index};
  return output;
}

static TF_Tensor* NewTensor(const struct Shape* shape) {
  return TF_AllocateTensor(TF_FLOAT, shape->dims, shape->rank, shape->count * sizeof(float));
}

static void Fill(TF_Tensor* tensor, const char* values) {
  const int64_t count = TF_TensorElementCount(tensor);
  for (int64_t i = 0; i < count; ++i) {
    char* end = NULL;
    ((float*)TF_TensorData(tensor))[i] = strtof(values, &end);
    values = *end == ',' ? end + 1 : end;
  }
}

static void PrintTensor(const TF_Tensor* tensor) {
  printf("ok ");
  if (TF_NumDims(tensor) == 0) putchar('-');
  for (int i = 0; i < TF_NumDims(tensor); ++i) {
    printf(i == 0 ? "%lld" : "x%lld", (long long)TF_Dim(tensor, i));
  }
  putchar(' ');
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    if (i > 0) putchar(',');
    switch (TF_TensorType(tensor)) {
      case TF_FLOAT: printf("%.9g", ((float*)TF_TensorData(tensor))[i]); break;
      case TF_INT64: printf("%lld", (long long)((int64_t*)TF_TensorData(tensor))[i]); break;
      case TF_STRING: {
        const TF_TString* text = (const TF_TString*)TF_TensorData(tensor) + i;
        printf("%.*s", (int)TF_TString_GetSize(text), TF_TString_GetDataPointer(text));
        break;
      }
      default: putchar('?');
    }
  }
  putchar('\n');
  fflush(stdout);
}

static TF_Tensor* Run(const struct Model* model, const char* input, TF_Tensor* value,
                      const char* output, TF_Status* status) {
  const int has_input = strcmp(input, "none") != 0;
  TF_Output from = {NULL, 0}, to = FindOutput(model, output);
  if (has_input) from = FindOutput(model, input);
  if (to.oper == NULL || (has_input && from.oper == NULL)) {
    TF_SetStatus(status, TF_NOT_FOUND, "the server knows no such input or output");
    return NULL;
  }
  TF_Tensor* result = NULL;
  TF_SessionRun(model->session, NULL, &from, &value, has_input, &to, &result, 1, NULL, 0, NULL,
                status);
  return result;
}

static void Load(const char* path) {
  TF_Status* status = TF_NewStatus();
  TF_SessionOptions* options = TF_NewSessionOptions();
  struct Model* model = &models[model_count];
  model->graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  model->session = TF_LoadSessionFromSavedModel(options, NULL, path, tags, 1, model->graph, NULL,
                                                status);
  if (TF_GetCode(status) == TF_OK) {
    printf("ok %d\n", model_count++);
    fflush(stdout);
  } else {
    AnswerStatus(status);
    TF_DeleteGraph(model->graph);
  }
  TF_DeleteSessionOptions(options);
  TF_DeleteStatus(status);
}

static void RunOnce(const struct Model* model, const char* shape_text, const char* values,
                    const char* input, const char* output) {
  const struct Shape shape = ParseShape(shape_text);
  TF_Tensor* value = NewTensor(&shape);
  Fill(value, values);
  TF_Status* status = TF_NewStatus();
  TF_Tensor* result = Run(model, input, value, output, status);
  if (TF_GetCode(status) == TF_OK) {
    PrintTensor(result);
    TF_DeleteTensor(result);
  } else {
    AnswerStatus(status);
  }
  TF_DeleteTensor(value);
  TF_DeleteStatus(status);
}

struct Load {
  const struct Model* model;
  struct Shape shape;
  float a, b;
  const char *input, *output;
  int requests;
  pthread_mutex_t mutex;  // of what follows
  int next, succeeded, failed, wrong;
  char message[4096];
};

static int IsRight(const TF_Tensor* result, const struct Load* load, float x) {
  if (TF_TensorElementCount(result) != load->shape.count) return 0;
  const float* values = TF_TensorData(result);
  for (int64_t i = 0; i < load->shape.count; ++i) {
    if (values[i] != load->a * x + load->b) return 0;
  }
  return 1;
}

static void* Serve(void* argument) {
  struct Load* load = argument;
  TF_Tensor* value = NewTensor(&load->shape);
  TF_Status* status = TF_NewStatus();
  while (1) {
    pthread_mutex_lock(&load->mutex);
    const int request = load->next++;
    pthread_mutex_unlock(&load->mutex);
    if (request >= load->requests) break;
    const float x = (float)(request % 100);
    for (int64_t i = 0; i < load->shape.count; ++i) ((float*)TF_TensorData(value))[i] = x;
    TF_Tensor* result = Run(load->model, load->input, value, load->output, status);
    const int is_ok = TF_GetCode(status) == TF_OK;
    const int is_right = is_ok && IsRight(result, load, x);
    pthread_mutex_lock(&load->mutex);
    if (!is_ok && load->failed++ == 0) {
      snprintf(load->message, sizeof load->message, "%s", TF_Message(status));
    }
    if (is_ok) is_right ? ++load->succeeded : ++load->wrong;
    pthread_mutex_unlock(&load->mutex);
    if (is_ok) TF_DeleteTensor(result);
  }
  TF_DeleteTensor(value);
  TF_DeleteStatus(status);
  return NULL;
}

static void ServeMany(const struct Model* model, int threads, int requests, const char* shape,
                      float a, float b, const char* input, const char* output) {
  static struct Load load;
  memset(&load, 0, sizeof load);
  load.model = model;
  load.shape = ParseShape(shape);
  load.a = a;
  load.b = b;
  load.input = input;
  load.output = output;
  load.requests = requests;
  pthread_mutex_init(&load.mutex, NULL);
  pthread_t ids[kMaxThreads];
  for (int i = 0; i < threads; ++i) pthread_create(&ids[i], NULL, Serve, &load);
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  pthread_mutex_destroy(&load.mutex);
  char answer[4200];
  snprintf(answer, sizeof answer, "%d %d %d %s", load.succeeded, load.failed, load.wrong,
           load.message);
  Answer("ok", answer);
}

static void Obey(char* line) {
  char *words[16], *rest = line;
  int count = 0;
  for (char* word; count < 16 && (word = strtok_r(rest, " \n", &rest)) != NULL;) {
    words[count++] = word;
  }
  if (count == 2 && strcmp(words[0], "load") == 0 && model_count < kMaxSessions) {
    Load(words[1]);
    return;
  }
  const int session = count > 1 ? atoi(words[1]) : -1;
  if (session < 0 || session >= model_count) {
    Answer("error", "0 the server knows no such command or session");
  } else if (count == 6 && strcmp(words[0], "run") == 0) {
    RunOnce(&models[session], words[2], words[3], words[4], words[5]);
  } else if (count == 9 && strcmp(words[0], "serve") == 0) {
    ServeMany(&models[session], atoi(words[2]), atoi(words[3]), words[4], strtof(words[5], NULL),
              strtof(words[6], NULL), words[7], words[8]);
  } else {
    Answer("error", "0 the server knows no such command");
  }
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(argv[1], status);
  if (TF_GetCode(status) != TF_OK) {
    AnswerStatus(status);
    return 1;
  }
  Answer("ok", TF_Version());
  char* line = NULL;
  size_t size = 0;
  while (getline(&line, &size, stdin) > 0) Obey(line);
  free(line);
  TF_DeleteStatus(status);
  return 0;
}
