package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhereAPortListens: on the loopback interface and nowhere else.
func TestWhereAPortListens(t *testing.T) {
	for _, c := range []struct {
		opts portOptions
		want string
	}{
		{portOptions{}, "127.0.0.1:8000"},
		{portOptions{raw: true}, "127.0.0.1:8000"},
		{portOptions{tcp: "0"}, "127.0.0.1:0"},
		{portOptions{tcp: "9000"}, "127.0.0.1:9000"},
		{portOptions{tcp: "localhost:9000"}, "127.0.0.1:9000"},
		{portOptions{tcp: "[::1]:9000"}, "[::1]:9000"},
		{portOptions{tcp: "127.0.0.2:9000", raw: true}, "127.0.0.2:9000"},
	} {
		at, err := c.opts.at(8000)
		require.NoError(t, err, c.opts)
		assert.Equal(t, c.want, at.String())
	}
	for _, opts := range []portOptions{
		{tcp: "x"}, {tcp: "-1"}, {tcp: "65536"}, {tcp: ":"}, {tcp: ":9000"}, {tcp: "127.0.0.1:"}, {tcp: "0.0.0.0:9000"}, {tcp: "[::]:9000", raw: true},
		{tcp: "192.0.2.1:9000", raw: true}, {tcp: "example.com:9000"}, {tcp: "[::1%lo]:9000"}, {tcp: "127.0.0.2:9000"}, {tcp: "[::ffff:127.0.0.1]:9000"},
	} {
		_, err := opts.at(8000)
		require.ErrorAs(t, err, new(usageError), "%+v", opts)
		assert.ErrorContains(t, err, "--tcp is", "%+v", opts)
	}
	for _, text := range []string{"", "0", "-1", "65536", "http", "80 ", "0x50"} {
		_, err := portNumber("PORT", text, 1)
		assert.ErrorContains(t, err, "1 to 65535", text)
	}
}
