// Serves a SavedModel without Python: TensorFlow's C API and libhostcall_serving.so.
//
//     serve_saved_model LIBRARY MODEL INPUT OUTPUT ROWS VALUE...
//
// prints what the model computes of a matrix of so many rows. INPUT and OUTPUT are names in its
// graph, which `saved_model_cli show` tells. ship_model.py builds and runs this program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void Check(const TF_Status* status) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s\n", TF_Message(status));
  exit(1);
}

// `name:0`
static TF_Output Endpoint(TF_Graph* graph, char* name) {
  name[strcspn(name, ":")] = '\0';
  TF_Output endpoint = {TF_GraphOperationByName(graph, name), 0};
  if (endpoint.oper == NULL) {
    fprintf(stderr, "The graph has no %s.\n", name);
    exit(1);
  }
  return endpoint;
}

static TF_Tensor* Matrix(int64_t rows, char** values, int count) {
  const int64_t shape[] = {rows, count / rows};
  TF_Tensor* tensor = TF_AllocateTensor(TF_FLOAT, shape, 2, count * sizeof(float));
  for (int i = 0; i < count; ++i) ((float*)TF_TensorData(tensor))[i] = strtof(values[i], NULL);
  return tensor;
}

int main(int argc, char** argv) {
  if (argc < 7 || atoi(argv[5]) < 1) {
    fprintf(stderr, "usage: %s LIBRARY MODEL INPUT OUTPUT ROWS VALUE...\n", argv[0]);
    return 1;
  }
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(argv[1], status);
  Check(status);

  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* const tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[2], tags, 1, graph, NULL, status);
  Check(status);

  const TF_Output input = Endpoint(graph, argv[3]), output = Endpoint(graph, argv[4]);
  TF_Tensor* given = Matrix(atoi(argv[5]), argv + 6, argc - 6);
  TF_Tensor* result = NULL;
  TF_SessionRun(session, NULL, &input, &given, 1, &output, &result, 1, NULL, 0, NULL, status);
  Check(status);
  const size_t count = TF_TensorByteSize(result) / sizeof(float);
  for (size_t i = 0; i < count; ++i) printf("%.6f\n", ((const float*)TF_TensorData(result))[i]);

  TF_DeleteTensor(given);
  TF_DeleteTensor(result);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
