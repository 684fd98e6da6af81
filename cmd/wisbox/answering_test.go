package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// answering is the script command `answering FILE`: it starts an endpoint of OpenAI's form at
// $WISBOX_MODEL_URL, which answers with the file's whole text. The file asked has the last request.
func answering(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answering FILE")
	}
	answer := map[string]any{"choices": []any{map[string]any{"message": map[string]string{"role": "assistant", "content": ts.ReadFile(args[0])}}}}
	asked := ts.MkAbs("asked")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(asked, body, 0o600)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	ts.Defer(server.Close)
	ts.Setenv("WISBOX_MODEL_URL", server.URL+"/v1")
}
