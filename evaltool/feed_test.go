package evaltool_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/evaltool"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestAFeedCutsTextBetweenCharacters(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		said := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(rt, "bytes")
		if rapid.Bool().Draw(rt, "text") {
			said = []byte(rapid.StringN(0, 40, 80).Draw(rt, "said"))
		}
		var got string
		feed := evaltool.NewFeed(t.Context(), func(p evaltool.Part) {
			assert.True(rt, len(p.Stdout) > 0)
			got += p.Stdout
		})
		for rest := said; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "n")
			_, _ = feed.Stdout().Write(rest[:n])
			rest = rest[n:]
		}
		feed.Close(t.Context())
		if valid := strings.ToValidUTF8(string(said), ""); valid == string(said) {
			assert.Equal(rt, string(said), got)
		} else {
			assert.Equal(rt, valid, strings.ReplaceAll(got, "\uFFFD", ""), "what is valid stays")
		}
	})
}

func TestASlowReaderSlowsTheWriterUntilTheCodeIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		got := 0
		feed := evaltool.NewFeed(t.Context(), func(p evaltool.Part) { <-read; got += len(p.Stdout) })
		wrote := make(chan int, 100)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		go func() {
			for i := range 64 {
				_, _ = feed.Stdout().Write(chunk)
				wrote <- i
			}
			close(wrote)
		}()
		synctest.Wait()
		assert.Less(t, len(wrote), 20, "it waits")
		read <- struct{}{}
		read <- struct{}{}
		synctest.Wait()
		assert.Less(t, len(wrote), 22)
		feed.Release()
		synctest.Wait()
		assert.Len(t, wrote, 64, "and waits no more")
		close(read)
		feed.Close(t.Context())
		assert.Greater(t, got, len(chunk), "what had room comes")
		assert.Less(t, got, 20*len(chunk))
	})
}

func TestNobodyWaitsForAReaderWhoseContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, stuck := 0, make(chan struct{})
		feed := evaltool.NewFeed(ctx, func(evaltool.Part) { begun++; <-stuck })
		cancel()
		for range 64 {
			_, _ = feed.Stderr().Write(bytes.Repeat([]byte("x"), 64<<10))
		}
		feed.Put(evaltool.Part{Count: 1})
		feed.Close(ctx)
		synctest.Wait()
		assert.Equal(t, 1, begun, "one is waited for, and no more")
		close(stuck)
	})
}

func TestOneEvaluationShowsSoManyObjects(t *testing.T) {
	shown := 0
	feed := evaltool.NewFeed(t.Context(), func(evaltool.Part) { shown++ })
	for range 100 {
		feed.Put(evaltool.Part{Shown: &evaltool.Object{Text: "x"}})
	}
	feed.Close(t.Context())
	assert.Equal(t, 32, shown)
}

func TestPartsTravelAsLines(t *testing.T) {
	all := []evaltool.Part{
		{Count: 1}, {Stdout: "a\nb"}, {Stderr: "\u2028é"}, {Raised: &evaltool.Raised{Name: "E", Value: "v", Traceback: "t"}},
		{Shown: &evaltool.Object{Main: true, Text: "x", Display: []evaltool.Display{{MIME: "text/html", Data: "<b>"}}, JSON: []byte(`[1]`)}},
	}
	var wire bytes.Buffer
	for _, p := range all {
		evaltool.PartLines(&wire)(p)
	}
	rapid.Check(t, func(rt *rapid.T) {
		var got []evaltool.Part
		r := evaltool.ReadParts(func(p evaltool.Part) { got = append(got, p) })
		for rest := wire.Bytes(); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "n")
			_, _ = r.Write(rest[:n])
			rest = rest[n:]
		}
		require.Equal(rt, all, got)
		r.Close()
		_, _ = r.Write([]byte("{\"count\":1}\n"))
		assert.Len(rt, got, len(all), "nobody is called after the close")
	})
}
