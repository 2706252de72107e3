package analyze

import (
	"io"

	"github.com/listproxy/listproxy/policy"
)

// analyzer reads logs and counts what is in them. It is for one goroutine.
type analyzer struct {
	judge judge
	tally *tally
	files []File
}

// File is what was read of a log.
type File struct {
	Name string `json:"name"`
	// Lines that were read, those that are no JSON or no line of a log, those that were too long to
	// be read, and those that are of neither a list nor a watch.
	Lines   int64 `json:"lines"`
	Bad     int64 `json:"bad,omitempty"`
	TooLong int64 `json:"tooLong,omitempty"`
	Others  int64 `json:"others"`
	// Problem is why the file could not be read to its end.
	Problem string `json:"problem,omitempty"`
}

// newAnalyzer returns an analyzer of what listproxy would do under a policy.
func newAnalyzer(p *policy.Config) *analyzer {
	return &analyzer{judge: newJudge(p), tally: newTally()}
}

// readLog reads a log to its end. An error is one of reading; what was read before it counts, and
// the report names it.
func (a *analyzer) readLog(name string, log io.Reader) error {
	f := File{Name: name}
	err := eachLine(log, func(line []byte) { a.line(&f, line) })
	if err != nil {
		f.Problem = err.Error()
	}
	a.files = append(a.files, f)
	return err
}

// line counts one line of a log.
func (a *analyzer) line(f *File, line []byte) {
	f.Lines++
	r, outcome := a.read(line)
	switch outcome {
	case lineTooLong:
		f.TooLong++
	case lineBad:
		f.Bad++
	case lineOther:
		f.Others++
	default:
		a.tally.add(r)
	}
}

// outcome says what a line is.
type outcome int

const (
	lineCounts outcome = iota
	lineOther
	lineBad
	lineTooLong
)

// read makes a request of a line, if it is of a list or watch.
func (a *analyzer) read(line []byte) (request, outcome) {
	switch {
	case line == nil:
		return request{}, lineTooLong
	case line[0] == '{':
		return a.readJSON(line)
	}
	access, ok := parseAccessText(string(line))
	if !ok {
		return request{}, lineBad
	}
	return ofAccess(access)
}

func (a *analyzer) readJSON(line []byte) (request, outcome) {
	event, access, err := parseJSON(line)
	switch {
	case err != nil:
		return request{}, lineBad
	case event.isEvent() && event.counts():
		return event.request(&a.judge), lineCounts
	case event.isEvent():
		return request{}, lineOther
	case access.Message == "":
		return request{}, lineBad
	}
	return ofAccess(access)
}

func ofAccess(line accessLine) (request, outcome) {
	if line.isRequest() {
		if r, ok := line.request(); ok {
			return r, lineCounts
		}
	}
	return request{}, lineOther
}
