package evaltool

// progressChars is how much of the newest output a report of progress has.
const progressChars = 2000

// newest reports the newest of what the code gives, all of it in the order in which it
// comes. A part is cleaned before it is joined and cut: a piece of a secret isn't known.
func newest(report func(text string), clean func(Part) Part) func(Part) {
	var said []rune
	return func(p Part) {
		p = clean(p)
		text := p.Stdout + p.Stderr
		if p.Shown != nil && !p.Shown.Main {
			text = p.Shown.Text + "\n"
		}
		if text == "" {
			return
		}
		said = append(said, []rune(text)...)
		said = said[max(0, len(said)-progressChars):]
		report(string(said))
	}
}
