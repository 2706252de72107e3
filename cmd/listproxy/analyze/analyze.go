package analyze

import (
	"errors"
	"fmt"
	"io"

	"github.com/listproxy/listproxy/policy"
)

// analyzer reads logs and counts the lists and watches in them. It is for one goroutine.
type analyzer struct {
	judge judge
	tally *tally
	files []File
}

// File says what was read from a log.
type File struct {
	Name string `json:"name"`
	// Lines is the number of lines that were read.
	Lines int64 `json:"lines"`
	// Bad is the number of lines without an audit event.
	Bad int64 `json:"bad,omitempty"`
	// Others is the number of audit events that [auditEvent.counts] leaves out.
	Others int64 `json:"others"`
	// Problem is the reason why the file could not be read to its end, or is of no use. It is empty if all is well.
	Problem string `json:"problem,omitempty"`

	counted int64 // the number of events of lists and watches
}

// newAnalyzer returns an analyzer for a listproxy with the policy p.
func newAnalyzer(p *policy.Config) *analyzer {
	return &analyzer{judge: newJudge(p), tally: newTally()}
}

// readLog reads a log to its end. It returns an error if reading fails, or if the log has no list and no watch; then
// the error says what to do. Events before a failure count, and the report names the failure.
func (a *analyzer) readLog(name string, log io.Reader) error {
	f := File{Name: name}
	err := eachLine(log, func(line []byte) { a.line(&f, line) })
	if err == nil {
		err = f.checkCounted()
	}
	if err != nil {
		f.Problem = err.Error()
	}
	a.files = append(a.files, f)
	return err
}

// line counts the events of one line of a log.
func (a *analyzer) line(f *File, line []byte) {
	f.Lines++
	found := eachEvent(line, func(e *auditEvent) {
		if !e.counts() {
			f.Others++
			return
		}
		f.counted++
		e.count(a.tally, &a.judge)
	})
	if !found {
		f.Bad++
	}
}

// checkCounted returns an error if the file has no list and no watch. The error says what to do.
func (f *File) checkCounted() error {
	switch {
	case f.counted > 0:
		return nil
	case f.Others > 0:
		return fmt.Errorf("there is no list and no watch among its %d audit events: the audit policy must log these "+
			"verbs, with the stage ResponseComplete", f.Others)
	}
	return errors.New("there is no audit event (audit.k8s.io/v1) in it: give an audit log of kube-apiserver, or " +
		"listproxy's own (--audit-log-path), as JSON, one event or record on a line (jq -c '.[]' FILE makes lines of an array)")
}
