package filewire_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/agent/filewire"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestFramesSurviveTheTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "payloads")
		typ := filewire.Type(rapid.Byte().Draw(t, "type"))
		var b bytes.Buffer
		s := filewire.NewStream(&b, &b)
		for _, payload := range payloads {
			require.NoError(t, s.Put(typ, payload))
		}
		require.NoError(t, s.Flush())
		for _, payload := range payloads {
			got, back, err := s.Next()
			require.NoError(t, err)
			require.Equal(t, typ, got)
			require.True(t, bytes.Equal(payload, back))
		}
		require.True(t, s.Clean())
		_, _, err := s.Next()
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestPathsOfAnyBytesSurviveTheTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SliceOf(rapid.Byte()).Draw(t, "path")
		var b bytes.Buffer
		s := filewire.NewStream(&b, &b)
		require.NoError(t, s.PutJSON(filewire.IsAsk, &filewire.Ask{Path: path}))
		require.NoError(t, s.Flush())
		_, payload, err := s.Next()
		require.NoError(t, err)
		var ask filewire.Ask
		require.NoError(t, filewire.Decode(payload, &ask))
		require.True(t, bytes.Equal(path, ask.Path))
	})
}

// TestTheCommentNamesAllFramesAndOperations keeps the package's comment true.
func TestTheCommentNamesAllFramesAndOperations(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, typ := range []filewire.Type{
		filewire.IsAsk, filewire.IsData, filewire.IsEnd, filewire.IsStop, filewire.IsItem, filewire.IsEvent, filewire.IsEnded,
	} {
		require.Contains(t, string(text), "'"+string(rune(typ))+"'")
	}
	for _, do := range []string{
		filewire.Stat, filewire.List, filewire.Read, filewire.Write, filewire.Move, filewire.Remove, filewire.Mkdir, filewire.Chmod, filewire.Watch,
	} {
		require.Contains(t, string(text[strings.Index(string(text), "in order:"):]), do)
	}
}
