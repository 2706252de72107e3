package analyze

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// Report is the result of the analysis.
type Report struct {
	Files []File `json:"files"`
	// From and To are the times at which the first and the last request were received; nil if no event says when.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	// Totals are the counts of all clients together.
	Totals Counts `json:"totals"`
	// Rows has one row for each client and resource. The row whose lists took the most time is first.
	Rows []Row `json:"rows"`
	// Advice says what to change. The advice about the most requests is first.
	Advice []Advice `json:"advice"`
}

// Counts are the numbers of lists and of watches, of all clients or of one row.
type Counts struct {
	Lists   RequestCounts `json:"lists"`
	Watches RequestCounts `json:"watches"`
	// Seconds is the total duration of the lists. Watches do not count: they last as long as their clients want.
	Seconds float64 `json:"seconds"`
}

// RequestCounts has the number of requests, in all and by who would answer them. The fields after Count stand for the values of
// [answerer].
type RequestCounts struct {
	// Count is the number of all requests: the sum of the other numbers.
	Count int64 `json:"count"`
	// FromMemory counts the requests that listproxy answers without any switch.
	FromMemory int64 `json:"fromMemory"`
	// WithConsistentLists counts the requests that listproxy answers only with --consistent-lists.
	WithConsistentLists int64 `json:"withConsistentLists"`
	// WithWatches counts the requests that listproxy answers only with --watches.
	WithWatches int64 `json:"withWatches"`
	// Forwarded counts the requests that kube-apiserver answers in any case.
	Forwarded int64 `json:"forwarded"`
}

// Row has the counts of one client and resource.
type Row struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Counts
	// Forms has the numbers of requests by what they ask for (FormCount.Form) and by who would answer them. The most frequent is
	// first.
	Forms []FormCount `json:"forms"`
}

// FormCount is the number of requests of one form.
type FormCount struct {
	// Verb is list or watch.
	Verb verb `json:"verb"`
	// Form is what the list or watch asks for: any, not-older-than, exact, continue, consistent, watch, streaming-list
	// or unknown.
	Form form `json:"form"`
	// AnsweredBy is memory, consistent-lists, watches or kube-apiserver, as in RequestCounts.
	AnsweredBy answerer `json:"answeredBy"`
	// Reason says why kube-apiserver answers. It is empty if listproxy can answer.
	Reason reason.Reason `json:"reason,omitempty"`
	Count  int64         `json:"count"`
}

// report returns the report about all logs that have been read.
func (a *analyzer) report() Report {
	r := Report{Files: a.files, Rows: []Row{}}
	if !a.tally.first.IsZero() {
		from, to := a.tally.first.UTC(), a.tally.last.UTC()
		r.From, r.To = &from, &to
	}
	for key, counted := range a.tally.counters {
		r.Totals.add(key.prediction, counted)
	}
	for _, row := range a.tally.rows() {
		slices.SortFunc(row.Forms, compareForms)
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, compareRows)
	r.Advice = advise(r.Rows)
	return r
}

// rows returns a row for each client and resource.
func (t *tally) rows() map[rowKey]*Row {
	rows := map[rowKey]*Row{}
	for key, counted := range t.counters {
		row := rows[key.rowKey]
		if row == nil {
			row = &Row{UserAgent: key.client.userAgent, User: key.client.user, Resource: key.resource}
			rows[key.rowKey] = row
		}
		p := key.prediction
		row.Counts.add(p, counted)
		row.Forms = append(row.Forms, FormCount{
			Verb: p.verb, Form: p.form, AnsweredBy: p.answeredBy, Reason: p.reason, Count: counted.requests(),
		})
	}
	return rows
}

// compareForms orders the forms of a row by their counts, the most frequent one first. The other fields follow, so that
// the same logs always give the same report.
func compareForms(a, b FormCount) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Form, b.Form), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.AnsweredBy, b.AnsweredBy))
}

// compareRows orders rows by the time that their lists took, the longest first, and then by the number of requests.
func compareRows(a, b Row) int {
	return cmp.Or(
		cmp.Compare(b.Seconds, a.Seconds),
		cmp.Compare(b.Lists.Count+b.Watches.Count, a.Lists.Count+a.Watches.Count),
		cmp.Compare(a.UserAgent, b.UserAgent),
		cmp.Compare(a.User, b.User),
		cmp.Compare(a.Resource, b.Resource),
	)
}

// add adds the requests of one counter. p is the prediction that they share.
func (c *Counts) add(p prediction, counted *counter) {
	counts := &c.Lists
	if p.verb == verbWatch {
		counts = &c.Watches
	}
	requests := counted.requests()
	counts.Count += requests
	switch p.answeredBy {
	case byMemory:
		counts.FromMemory += requests
	case byMemoryIfConsistentLists:
		counts.WithConsistentLists += requests
	case byMemoryIfWatches:
		counts.WithWatches += requests
	case byAPIServer:
		counts.Forwarded += requests
	}
	c.Seconds += counted.duration.Seconds()
}
