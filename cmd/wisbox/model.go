package main

import (
	"cmp"
	"os"

	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/llm"
)

// modelFlags choose a model behind an endpoint. The environment has the defaults.
type modelFlags struct {
	api         string
	baseURL     string
	model       string
	keyVariable string
	temperature float64

	flags *pflag.FlagSet
}

// The environment variables that replace missing flags.
const (
	modelVariable    = "WISBOX_MODEL"
	modelAPIVariable = "WISBOX_MODEL_API"
	modelURLVariable = "WISBOX_MODEL_URL"
)

// modelDefaults has, for each API, the public endpoint and the variable of its key.
var modelDefaults = map[string]struct{ url, key string }{
	llm.OpenAI:    {"https://api.openai.com/v1", "OPENAI_API_KEY"},
	llm.Anthropic: {"https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"},
}

func (m *modelFlags) register(flags *pflag.FlagSet) {
	m.flags = flags
	flags.StringVar(&m.model, "model", "", "`NAME` of the model (default $"+modelVariable+")")
	flags.StringVar(&m.api, "api", "", "API of the endpoint, `openai|anthropic` (default $"+modelAPIVariable+", or openai)")
	flags.StringVar(&m.baseURL, "base-url", "", "`URL` of the endpoint, with the API's version (default $"+modelURLVariable+", or the API's own)")
	flags.StringVar(&m.keyVariable, "key-env", "", "`VARIABLE` that holds the key (default OPENAI_API_KEY or ANTHROPIC_API_KEY)")
	flags.Float64Var(&m.temperature, "temperature", 0, "temperature `NUMBER` of the model (default the endpoint's)")
}

// name returns the chosen model; "" means none.
func (m *modelFlags) name() string { return cmp.Or(m.model, os.Getenv(modelVariable)) }

// endpoint returns the model with that name. It doesn't connect yet.
func (m *modelFlags) endpoint(name string) (llm.Model, error) {
	api := cmp.Or(m.api, os.Getenv(modelAPIVariable), llm.OpenAI)
	def := modelDefaults[api]
	opts := &llm.EndpointOptions{
		API: api, Model: name, BaseURL: cmp.Or(m.baseURL, os.Getenv(modelURLVariable), def.url),
		Key: os.Getenv(cmp.Or(m.keyVariable, def.key)),
	}
	if m.flags.Changed("temperature") {
		opts.Temperature = &m.temperature
	}
	e, err := llm.NewEndpoint(opts)
	if err != nil {
		return nil, asUsage(err)
	}
	return e, nil
}
