package interp

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
)

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestFramesKeepTheNewestMessageHoweverItIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOfN(rapid.StringN(0, 40, 80), 1, 5).Draw(t, "bodies")
		var data []byte
		for _, body := range bodies {
			data = append(data, frame(body)...)
		}
		f := NewInbox(1 << 24)
		for len(data) > 0 {
			n := rapid.IntRange(1, len(data)).Draw(t, "n")
			_, _ = f.Write(data[:n])
			data = data[n:]
		}
		assert.Equal(t, bodies[len(bodies)-1], string(f.Take()))
		assert.Nil(t, f.Take())
	})
}

// A long message in small pieces costs no copy of all for each of them.
func TestALongMessageIsNotCopiedForEachPiece(t *testing.T) {
	data, piece := frame(string(make([]byte, 1<<20))), 1<<10
	allocated := testing.AllocsPerRun(1, func() {
		f := NewInbox(1 << 24)
		for at := 0; at < len(data); at += piece {
			_, _ = f.Write(data[at:min(at+piece, len(data))])
		}
		assert.Len(t, f.Take(), 1<<20)
	})
	assert.Less(t, allocated, 200.0)
}

func TestAnOversizedFrameBreaksTheChannelWithoutItsMemory(t *testing.T) {
	f := NewInbox(1 << 24)
	_, _ = f.Write([]byte{0xff, 0, 0, 0, 1})
	_, _ = f.Write(make([]byte, 1<<20))
	assert.Empty(t, f.buf)
	assert.Len(t, f.arrived, 1)
	assert.Nil(t, f.Take())
}

func FuzzInboxHoldsNoMoreThanAMessage(f *testing.F) {
	f.Add(frame("one"), []byte{0, 0, 0})
	f.Add([]byte{0xff, 0, 0, 0, 1}, frame("after"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		const most = 64
		f := NewInbox(most)
		for _, p := range [][]byte{a, b, a} {
			n, err := f.Write(p)
			assert.NoError(t, err)
			assert.Len(t, p, n)
			assert.Less(t, len(f.buf), most+4)
		}
		assert.LessOrEqual(t, len(f.Take()), most)
		assert.Nil(t, f.Take())
	})
}

// TestAMessageOfManyValuesBreaksTheChannel, before anybody reads it.
func TestAMessageOfManyValuesBreaksTheChannel(t *testing.T) {
	send := func(message string) []byte {
		f := NewInbox(32 << 20)
		_, err := f.Write(frame(message))
		require.NoError(t, err)
		return <-f.Arrived()
	}
	assert.Nil(t, send(`{"results":[{}`+strings.Repeat(",{}", maxValues)+`]}`))
	text := `{"text":"` + strings.Repeat(`,{\",`, maxValues) + `"}`
	assert.Equal(t, text, string(send(text)), "a text is one value")
	few := `[0` + strings.Repeat(",0", maxValues/2) + `]`
	assert.Equal(t, few, string(send(few)))
}
