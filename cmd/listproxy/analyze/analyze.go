package analyze

import (
	"bytes"
	"errors"
	"fmt"
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
	// Lines that were read, those without an audit event, and those that were too long to be read.
	Lines   int64 `json:"lines"`
	Bad     int64 `json:"bad,omitempty"`
	TooLong int64 `json:"tooLong,omitempty"`
	// Others are the events of neither a list nor a watch, and those of another stage.
	Others int64 `json:"others"`
	// Problem is the reason why the file could not be read to its end, or says nothing.
	Problem string `json:"problem,omitempty"`

	counted int64  // lists and watches
	foreign string // what to do about a kind of log that is in it, and cannot be analyzed
}

// newAnalyzer returns an analyzer of what listproxy would do under a policy.
func newAnalyzer(p *policy.Config) *analyzer {
	return &analyzer{judge: newJudge(p), tally: newTally()}
}

// readLog reads a log to its end. An error is one of reading, or says what to do about a log without
// lists and watches. What was read before an error counts, and the report names it.
func (a *analyzer) readLog(name string, log io.Reader) error {
	f := File{Name: name}
	err := eachLine(log, func(line []byte) { a.line(&f, line) })
	if err == nil {
		err = f.missing()
	}
	if err != nil {
		f.Problem = err.Error()
	}
	a.files = append(a.files, f)
	return err
}

// line counts the events of one line of a log, which is nil if it is too long.
func (a *analyzer) line(f *File, line []byte) {
	f.Lines++
	if line == nil {
		f.TooLong++
		return
	}
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
		for _, other := range foreignLogs {
			if f.foreign == "" && bytes.Contains(line, []byte(other.mark)) {
				f.foreign = other.do
			}
		}
	}
}

// foreignLogs are logs that look as if they could be analyzed, by what each of their lines has.
var foreignLogs = []struct{ mark, do string }{
	{
		"google.cloud.audit.AuditLog",
		"these are Cloud Audit Logs of Google, made of audit events without what decides: the query with resourceVersion and limit. " +
			"GKE does not give out the events themselves. Let clients ask a listproxy, and look at listproxy_requests_total",
	},
	{
		`"RequestUri"`,
		"these are rows of Azure's table AKSAudit. Let the diagnostic setting of kube-audit write to a storage account or an event hub: " +
			"records there hold whole events (properties.log)",
	},
	{
		"msg=request ", "this is listproxy's access log, which has no queries: give its audit log (--audit-log-path)",
	},
	{
		`"msg":"request"`, "this is listproxy's access log, which has no queries: give its audit log (--audit-log-path)",
	},
}

// missing returns what to do about a log that was read to its end and has no list or watch.
func (f *File) missing() error {
	switch {
	case f.counted > 0:
		return nil
	case f.foreign != "":
		return errors.New("there is no audit event in it: " + f.foreign)
	case f.Others > 0:
		return fmt.Errorf("there is no list and no watch among its %d audit events: the audit policy must log these verbs, with the stage "+
			"ResponseComplete", f.Others)
	}
	return errors.New("there is no audit event (audit.k8s.io/v1) in it: give an audit log of kube-apiserver as JSON, one event or record on " +
		"a line (jq -c '.[]' FILE makes lines of an array)")
}
