package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/wisbox/wisbox/tool"
)

const (
	pageOfLog = 500                    // records of one answer
	lookEvery = 250 * time.Millisecond // interval of checking the log for watchers
	maxSilent = 15 * time.Second       // silence of a stream before it sends an empty line
	writeTime = 30 * time.Second       // time limit for one message to a terminal
)

// records are a part of a log, the oldest first. First and Last are their numbers in it.
type records struct {
	Records []json.RawMessage `json:"records"`
	First   int64             `json:"first"`
	Last    int64             `json:"last"`
}

func (p *records) add(line []byte) error {
	var link struct {
		Seq int64 `json:"seq"`
	}
	if err := json.Unmarshal(line, &link); err != nil || link.Seq == 0 {
		return nil // it waits for its place in the chain
	}
	p.Records = append(p.Records, slices.Clone(line))
	if p.First == 0 {
		p.First = link.Seq
	}
	p.Last = link.Seq
	return nil
}

// log returns the last records, or with ?before= those before a number.
func (s *Server) log(r *http.Request) (any, error) {
	return pageOf(r, s.opts.Store.LastLog)
}

// connections is like log for the connections of programs.
func (s *Server) connections(r *http.Request) (any, error) {
	return pageOf(r, s.opts.Store.LastEgressLog)
}

func pageOf(r *http.Request, last func(id string, n int, each func([]byte) error) error) (any, error) {
	id, n, before := r.PathValue("id"), pageOfLog, int64(0)
	if text := r.URL.Query().Get("before"); text != "" {
		var err error
		if before, err = strconv.ParseInt(text, 10, 64); err != nil || before < 1 {
			return nil, tool.Errorf(tool.Invalid, "before is %q; it must be the number of a record", text).In("before")
		}
		end := records{}
		if err := last(id, 1, end.add); err != nil {
			return nil, err
		}
		n = int(max(0, min(end.Last-before+1+pageOfLog, end.Last)))
	}
	all := records{Records: []json.RawMessage{}}
	err := last(id, n, func(line []byte) error {
		if err := all.add(line); err != nil || before == 0 || all.Last < before {
			return err
		}
		all.Records = all.Records[:len(all.Records)-1]
		return nil
	})
	if before > 0 {
		all.Last = min(all.Last, before-1)
	}
	return all, err
}

// events sends each new record of the log, starting after ?after=. If these are more than a page of the log, it sends a
// single event gap: then the page reads the log again.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	end := records{}
	if err != nil || after < 0 {
		err = tool.Errorf(tool.Invalid, "after must be the number of a record, 0 for all").In("after")
	} else {
		err = s.opts.Store.LastLog(id, 1, end.add)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := newStream(w)
	if out.send(": wisbox\n\n") != nil {
		return
	}
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		if after, err = s.news(id, after, out); err != nil {
			event := "end" // the session is gone
			if errors.Is(err, errGap) {
				event = "gap"
			}
			_ = out.send("event: " + event + "\ndata: {}\n\n")
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-looks.C:
		}
	}
}

// errGap is the error of a stream that lags by more records than one answer has.
var errGap = errors.New("too many records for a stream")

// news sends the records after one, and returns the number of the last. If they are more than a page of the log, it
// sends none.
func (s *Server) news(id string, after int64, out *stream) (int64, error) {
	end := records{}
	if err := s.opts.Store.LastLog(id, 1, end.add); err != nil {
		return after, err
	}
	switch {
	case end.Last <= after:
		return after, out.keepAlive()
	case end.Last-after > pageOfLog:
		return after, errGap
	}
	fresh := records{}
	err := s.opts.Store.LastLog(id, pageOfLog, fresh.add)
	switch {
	case err != nil:
		return after, err
	case fresh.First > after+1: // more came between the two reads
		return after, errGap
	}
	for i, line := range fresh.Records {
		seq := fresh.First + int64(i)
		if seq <= after {
			continue
		}
		if err := out.send(fmt.Sprintf("id: %d\ndata: %s\n\n", seq, line)); err != nil {
			return after, err
		}
	}
	return fresh.Last, nil
}

// stream is an answer that continues.
type stream struct {
	w    http.ResponseWriter
	ctl  *http.ResponseController
	said time.Time
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, ctl: http.NewResponseController(w), said: time.Now()}
}

func (s *stream) send(text string) error {
	s.said = time.Now()
	if _, err := fmt.Fprint(s.w, text); err != nil {
		return err
	}
	return s.ctl.Flush()
}

// keepAlive detects that nobody reads any more.
func (s *stream) keepAlive() error {
	if time.Since(s.said) < maxSilent {
		return nil
	}
	return s.send(":\n\n")
}
