package native

import _ "embed" // the agent

//go:embed linux-amd64.zst
var packed []byte
