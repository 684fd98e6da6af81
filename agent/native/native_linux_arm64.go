package native

import _ "embed" // the agent

//go:embed linux-arm64.zst
var packed []byte
