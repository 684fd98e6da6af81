package box

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// TestAValueInAPictureIsCovered in its bytes and in its base64 in the result.
func TestAValueInAPictureIsCovered(t *testing.T) {
	const token, stars = "tok-0123456789abcdef", "********************"
	v := NewVault("s", map[string]Secret{"TOKEN": {Value: []byte(token)}})
	picture := []byte("\x89PNG tEXtComment\x00" + token + "\xff")
	encoded := base64.StdEncoding.EncodeToString(picture)
	res := &tool.Result{
		Value: evaltool.Result{Display: []evaltool.Display{{MIME: "image/png", Data: encoded}, {MIME: "text/html", Data: token}}},
		Text:  "a picture: " + encoded, Blobs: []tool.Blob{{MIME: "image/png", Data: picture}},
	}
	out := v.CleanResult(res)
	want := "\x89PNG tEXtComment\x00" + stars + "\xff"
	assert.Equal(t, want, string(out.Blobs[0].Data))
	shown := out.Value.(evaltool.Result).Display
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte(want)), shown[0].Data)
	assert.Equal(t, stars, shown[1].Data)
	assert.NotContains(t, out.Text, encoded)
	assert.Contains(t, string(res.Blobs[0].Data), token, "what was answered before is not changed")
}
