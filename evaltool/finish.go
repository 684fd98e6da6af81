package evaltool

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// finish makes the Result of a Response. If the Response is a success, it writes the files.
func (e *Evaluator) finish(ctx context.Context, c *call, resp Response) (Result, error) {
	result := Result{
		ValueRepr: clipped(resp.Value), Stdout: Clip(resp.Stdout, e.opts.MaxOutput), Stderr: Clip(resp.Stderr, e.opts.MaxOutput),
		Reads: append([]ReadDone{}, c.reads...), Writes: []WriteDone{}, Status: resp.Status,
		Display: resp.Display, Results: resp.Results, ExecutionCount: resp.Count, failed: resp.Failed(),
	}
	notes := slices.Concat(c.notes, resp.Notes)
	var without []string
	result.Globals, without = boundGlobals(resp.Globals)
	result.GlobalsDropped = resp.Dropped + len(without)
	if result.GlobalsDropped > 0 {
		notes = append(notes, "left out, because globals have room for 32 KiB: "+firstOf(append(without, resp.DroppedNames...), result.GlobalsDropped))
	}
	lost := c.discarded(resp)
	if result.failed {
		if len(lost) > 0 || c.asksForWrites() {
			notes = append(notes, notWritten(resp)+listed(lost))
		}
		var changed string
		if result.Changed, changed = e.changed(ctx, c); changed != "" {
			notes = append(notes, changed)
		}
		result.Discarded = lost
		result.Message = sentences(notes)
		return result, nil
	}
	result.Message = sentences(notes)
	done, err := e.apply(ctx, c, resp)
	if err != nil {
		return result, e.changedBeside(ctx, c, withOutput(nothingWritten(err, lost), result))
	}
	result.Writes = done
	return result, nil
}

const keptOutput = 1_000 // characters of the value and of each stream in an error

// withOutput adds to an error what the code, which has run, said.
func withOutput(err error, r Result) error {
	known := tool.AsError(err)
	message := known.Message
	for _, said := range []struct{ what, text string }{{"value", deref(r.ValueRepr)}, {"stdout", r.Stdout}, {"stderr", r.Stderr}} {
		if said.text != "" {
			message += "; the code's " + said.what + ": " + Clip(strings.TrimRight(said.text, "\n"), keptOutput)
		}
	}
	return tool.Errorf(known.Kind, "%s", message).In(known.Field).Because(err)
}

// asksForWrites reports whether the caller or the code may expect a write.
func (c *call) asksForWrites() bool {
	return len(c.writes) > 0 || strings.Contains(c.request.Code, "write_text")
}

func clipped(value *string) *string {
	if value == nil {
		return nil
	}
	short := Clip(*value, StreamChars)
	return &short
}

func notWritten(resp Response) string {
	switch {
	case resp.Ended:
		return "nothing was written, because the interpreter ended before the code did"
	case resp.Status == StatusException:
		return "nothing was written, because the code raised an exception"
	case resp.Status == StatusTimedOut:
		return "nothing was written, because the time was over"
	}
	return "nothing was written, because the code did not come to its end"
}

// boundGlobals applies the limits of a result to an engine's globals, and returns the names of those without room.
func boundGlobals(globals map[string]string) (out map[string]string, without []string) {
	const each, together = StreamChars, 32 * 1024
	out = make(map[string]string, len(globals))
	left := together
	for _, name := range sortedNames(globals) {
		key, n := utf8.RuneCountInString(name), utf8.RuneCountInString(globals[name])
		if max(key, n) > each || key+n > left {
			without = append(without, name)
			continue
		}
		left -= key + n
		out[name] = globals[name]
	}
	return out, without
}

func sentences(notes []string) string { return strings.Join(notes, "; ") }
