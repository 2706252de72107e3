package analyze

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/listproxy/listproxy/policy"
)

// analyzer reads logs and counts their lists and watches. Its size grows with the number of clients, resources and
// predictions. It is not safe for concurrent use.
type analyzer struct {
	predictor   predictor
	counters    map[counterKey]*counter
	first, last time.Time // when the first and the last request were received; zero if no event says when
	files       []File    // in the order in which they were read
}

// File says what was found in one log. An audit event is relevant if it stands for an answered list or watch
// ([auditEvent.isRelevant]).
type File struct {
	Name string `json:"name"`
	// Lines is the number of lines that were read, without blank ones.
	Lines int64 `json:"lines"`
	// Bad is the number of lines without an audit event.
	Bad int64 `json:"bad,omitempty"`
	// Others is the number of audit events that are not relevant.
	Others int64 `json:"others"`
	// Problem says why the file could not be read to its end, or that it has no relevant event. It is empty if all is well.
	Problem string `json:"problem,omitempty"`

	relevant int64 // the number of relevant audit events
}

// newAnalyzer returns an analyzer for a listproxy with the policy file f.
func newAnalyzer(f *policy.File) *analyzer {
	return &analyzer{predictor: newPredictor(f), counters: map[counterKey]*counter{}}
}

// readLog reads a log to its end, and counts its events. It returns an error if reading fails, or if the log has no relevant
// event. The error is also the Problem of the File. The events before a failure stay counted.
func (a *analyzer) readLog(name string, log io.Reader) error {
	f := File{Name: name}
	err := eachLine(log, func(line []byte) { a.readLine(&f, line) })
	if err == nil {
		err = f.checkRelevant()
	}
	if err != nil {
		f.Problem = err.Error()
	}
	a.files = append(a.files, f)
	return err
}

// readLine counts the line in f, and the requests of its events.
func (a *analyzer) readLine(f *File, line []byte) {
	f.Lines++
	const topLevel = 0
	events := eventsIn(line, topLevel)
	if len(events) == 0 {
		f.Bad++
	}
	for _, e := range events {
		if !e.isRelevant() {
			f.Others++
			continue
		}
		f.relevant++
		a.count(e, a.predictor.predict(e))
	}
}

// checkRelevant returns an error if the file has no relevant event. The error says what to do.
func (f *File) checkRelevant() error {
	if f.relevant > 0 {
		return nil
	}
	if f.Others > 0 {
		return fmt.Errorf("there is no list and no watch among its %d audit events: the audit policy must log these "+
			"verbs, with the stage ResponseComplete", f.Others)
	}
	return errors.New("there is no audit event (audit.k8s.io/v1) in it: give an audit log of kube-apiserver, or " +
		"listproxy's own (--audit-log-path), as JSON, one event or record on a line (jq -c '.[]' FILE makes lines of an array)")
}
