package wire

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Request is a run frame: the fixed part, then words.
type Request struct {
	Head  RequestHead
	Dir   string
	Label string // of a detached program, which alone has one
	Argv  []string
	Env   []string // NAME=value
}

// RequestHead is the fixed part, big-endian as it stands here.
type RequestHead struct {
	Flags   Flags
	Timeout float64 // seconds, 0 is none
	TTY     [2]uint16
	Out     [2][2]int64 // stdout, stderr: bytes to forward (-1 all), bytes of tail to keep
	Argc    uint32
	Python  [32]byte // key of the source, or zero
}

// HeadSize is the size of the fixed part, in bytes.
var HeadSize = binary.Size(RequestHead{})

// Flags of a request.
type Flags uint16

// The flags.
const (
	WithStdin Flags = 1 << iota
	WithControl
	WithControlIn
	WithTTY
	WithNotify // a started frame is wanted
	WithAnyDir // the directory may be outside of the workspace
	WithSelf   // only the program itself ends with the call: its descendants may stay
	WithDetach // the program outlives the connection; it has no control channel
	WithAgent  // the program is the agent's own, in another mode; others don't share the sandbox with it
)

// Encode returns the payload of the run frame. It doesn't check its size.
func (r *Request) Encode() []byte {
	r.Head.Argc = uint32(len(r.Argv))
	payload, _ := binary.Append(nil, binary.BigEndian, r.Head)
	first := []string{r.Dir}
	if r.Head.Flags&WithDetach != 0 {
		first = append(first, r.Label)
	}
	for _, words := range [][]string{first, r.Argv, r.Env} {
		for _, word := range words {
			payload = append(append(payload, word...), 0)
		}
	}
	return payload
}

// Key returns the key of a request's Python source; "" for a plain program.
func (h *RequestHead) Key() string { return string(bytes.TrimRight(h.Python[:], "\x00")) }

// DecodeHead reads the fixed part of a run frame's payload.
func DecodeHead(payload []byte) (head RequestHead, err error) {
	_, err = binary.Decode(payload, binary.BigEndian, &head)
	return head, err
}

// DecodeRequest reads a run frame's payload.
func DecodeRequest(payload []byte) (*Request, error) {
	head, err := DecodeHead(payload)
	if err != nil {
		return nil, Errorf("a request of %d bytes", len(payload))
	}
	words := strings.Split(string(payload[HeadSize:]), "\x00")
	first := 1
	if head.Flags&WithDetach != 0 {
		first = 2
	}
	if int64(len(words)) < 1+int64(first)+int64(head.Argc) || words[len(words)-1] != "" {
		return nil, Errorf("a request with fewer words than it says")
	}
	end := first + int(head.Argc)
	req := &Request{Head: head, Dir: words[0], Argv: words[first:end], Env: words[end : len(words)-1]}
	if first == 2 {
		req.Label = words[1]
	}
	return req, nil
}
