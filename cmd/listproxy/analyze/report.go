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
	// From and To are the times at which the first and the last request came; nil if no event says when.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	// Totals are the counts of all clients together.
	Totals Counts `json:"totals"`
	// Rows has one row for each client and resource. The row whose lists took the most time is first.
	Rows []Row `json:"rows"`
	// Advice says what to change. The advice about the most requests is first.
	Advice []Advice `json:"advice"`
}

// Counts are the numbers of lists and watches that have something in common.
type Counts struct {
	Lists   Answers `json:"lists"`
	Watches Answers `json:"watches"`
	// Seconds is the time that the lists took together, by the log.
	Seconds float64 `json:"seconds"`
}

// Answers has the number of requests, and how many of them each answerer would answer.
type Answers struct {
	Count int64 `json:"count"`
	// FromMemory is the number of requests that listproxy answers without any switch.
	FromMemory int64 `json:"fromMemory"`
	// WithConsistentLists is the number that it answers only with --consistent-lists.
	WithConsistentLists int64 `json:"withConsistentLists"`
	// WithWatches is the number that it answers only with --watches.
	WithWatches int64 `json:"withWatches"`
	// Forwarded is the number that kube-apiserver answers in any case.
	Forwarded int64 `json:"forwarded"`
}

// Row has the counts of one client and resource.
type Row struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Counts
	// Forms are the forms of the requests. The most frequent one is first.
	Forms []Form `json:"forms"`
}

// Form is a form of requests, with the number of these.
type Form struct {
	// Kind is list or watch.
	Kind kind `json:"kind"`
	// Form is what the list or watch asks for: any, not-older-than, exact, continue, consistent,
	// watch, streaming-list or unknown.
	Form string `json:"form"`
	// AnsweredBy is memory, consistent-lists, watches or kube-apiserver.
	AnsweredBy answerer `json:"answeredBy"`
	// Reason says why kube-apiserver answers in any case. It is empty if it does not.
	Reason reason.Reason `json:"reason,omitempty"`
	Count  int64         `json:"count"`
}

// report returns the report about all logs that were read until now.
func (a *analyzer) report() Report {
	r := Report{Files: a.files, Rows: []Row{}}
	if !a.tally.from.IsZero() {
		from, to := a.tally.from.UTC(), a.tally.to.UTC()
		r.From, r.To = &from, &to
	}
	rows := map[rowKey]*Row{}
	for key, counted := range a.tally.rows {
		rowOf := rowKey{client: key.client, resource: key.resource}
		if rows[rowOf] == nil {
			rows[rowOf] = &Row{UserAgent: key.client.agent, User: key.client.user, Resource: key.resource}
		}
		row, v, n := rows[rowOf], key.verdict, counted.count()
		row.add(v, n, counted.took)
		row.Forms = append(row.Forms, Form{Kind: v.kind, Form: v.form, AnsweredBy: v.answeredBy, Reason: v.why, Count: n})
		r.Totals.add(v, n, counted.took)
	}
	for _, row := range rows {
		slices.SortFunc(row.Forms, func(a, b Form) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Form, b.Form), cmp.Compare(a.Reason, b.Reason))
		})
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds),
			cmp.Compare(b.Lists.Count+b.Watches.Count, a.Lists.Count+a.Watches.Count),
			cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource))
	})
	r.Advice = advise(r.Rows)
	return r
}

// add counts n requests with the verdict v, which together took some time.
func (c *Counts) add(v verdict, n int64, took time.Duration) {
	answers := &c.Lists
	if v.kind == kindWatch {
		answers = &c.Watches
	}
	answers.Count += n
	switch v.answeredBy {
	case byMemory:
		answers.FromMemory += n
	case withConsistentLists:
		answers.WithConsistentLists += n
	case withWatches:
		answers.WithWatches += n
	default:
		answers.Forwarded += n
	}
	c.Seconds += took.Seconds()
}
