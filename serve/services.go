package serve

import (
	"net/http"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/serve/e2b/codeinterp"
	"github.com/wisbox/wisbox/serve/e2b/envd"
)

// services are the APIs within a sandbox of [engine].
var services = map[uint16]func(registry.Box, e2b.Service) http.Handler{
	e2b.EnvdPort: func(b registry.Box, o e2b.Service) http.Handler {
		return envd.New(envd.Options{Session: commonOf(b), Dir: commonOf(b).dir, Token: o.Token, Pass: o.Pass, Env: o.Env, Done: o.Done, Log: o.Log, Quiet: o.Quiet})
	},
	codeinterp.Port: func(b registry.Box, o e2b.Service) http.Handler {
		return codeinterp.New(codeinterp.Options{Session: commonOf(b), Token: o.Token, Pass: o.Pass, Visit: o.Visit, Env: o.Env, Hint: envd.Hint, Done: o.Done, Log: o.Log, Quiet: o.Quiet})
	},
}
