package evaltool

// progressChars is the maximum number of characters of a progress report.
const progressChars = 2000

// newest reports the latest output of the code, all streams in order of arrival. It cleans each part before joining and
// cutting, since a piece of a secret couldn't be recognized.
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
