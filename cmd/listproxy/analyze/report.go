package analyze

import (
	"cmp"
	"slices"
	"time"
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
	Source
	Counts
	// Forms has the numbers of requests by what they ask for (FormCount.Form) and by who would answer them. The most frequent
	// is first.
	Forms []FormCount `json:"forms"`
}

// FormCount is the number of requests with one Prediction.
type FormCount struct {
	Prediction
	Count int64 `json:"count"`
}

// report returns the report about all logs that have been read.
func (a *analyzer) report() Report {
	r := Report{Files: a.files, Rows: []Row{}}
	if !a.first.IsZero() {
		from, to := a.first.UTC(), a.last.UTC()
		r.From, r.To = &from, &to
	}
	for key, c := range a.counters {
		r.Totals.add(key.Prediction, c)
	}
	for _, row := range a.rows() {
		slices.SortFunc(row.Forms, compareForms)
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, compareRows)
	r.Advice = advise(r.Rows)
	return r
}

// rows returns a row for each client and resource.
func (a *analyzer) rows() map[Source]*Row {
	rows := map[Source]*Row{}
	for key, c := range a.counters {
		row := rows[key.Source]
		if row == nil {
			row = &Row{Source: key.Source}
			rows[key.Source] = row
		}
		row.Counts.add(key.Prediction, c)
		row.Forms = append(row.Forms, FormCount{Prediction: key.Prediction, Count: c.requests()})
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
		a.Source.compare(b.Source),
	)
}

// add adds the requests of one counter. p is the prediction that they share.
func (c *Counts) add(p Prediction, counted *counter) {
	counts := &c.Lists
	if p.Verb == verbWatch {
		counts = &c.Watches
	}
	requests := counted.requests()
	counts.Count += requests
	switch p.AnsweredBy {
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
