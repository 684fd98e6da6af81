package mcpserver

import (
	"os"
	"testing"

	"bufio"

	"github.com/stretchr/testify/require"
)

// BenchmarkCallOverPipes measures the protocol's overhead for a call that does nothing.
func BenchmarkCallOverPipes(b *testing.B) {
	stdin, in, err := os.Pipe()
	require.NoError(b, err)
	out, stdout, err := os.Pipe()
	require.NoError(b, err)
	ended := make(chan error, 1)
	go func() { ended <- New(newFakes().set(), nil).ServeStdio(b.Context(), stdin, stdout) }()
	lines := bufio.NewReader(out)
	ask := func(line string) {
		_, err := in.WriteString(line + "\n")
		require.NoError(b, err)
		_, err = lines.ReadString('\n')
		require.NoError(b, err)
	}
	ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	for b.Loop() {
		ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
	}
	in.Close()
	require.NoError(b, <-ended)
}
