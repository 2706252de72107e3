package analyze

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// Report is what the logs say.
type Report struct {
	Files []File `json:"files"`
	// From and To are the times at which the first and the last request came; nil if no event says when.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	// Totals are of all clients.
	Totals Counts `json:"totals"`
	// Rows are one for each client and resource, the one that took the most time first.
	Rows []Row `json:"rows"`
	// Advice says what brings more, the most first.
	Advice []Advice `json:"advice"`
}

// Counts are of requests that have something in common.
type Counts struct {
	Lists   Answers `json:"lists"`
	Watches Answers `json:"watches"`
	// Seconds is the time for which the lists took together, as the log has it.
	Seconds float64 `json:"seconds"`
}

// Answers say who answers requests.
type Answers struct {
	Count int64 `json:"count"`
	// FromMemory is what listproxy answers as it comes.
	FromMemory int64 `json:"fromMemory"`
	// WithConsistentLists is what it answers only with --consistent-lists, WithWatches only with --watches.
	WithConsistentLists int64 `json:"withConsistentLists"`
	WithWatches         int64 `json:"withWatches"`
	// Forwarded is what kube-apiserver answers in any case.
	Forwarded int64 `json:"forwarded"`
}

// Row is a client and a resource.
type Row struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Counts
	// Forms are what was asked for, the most frequent first.
	Forms []Form `json:"forms"`
}

// Form is one way to ask.
type Form struct {
	// Kind is list or watch.
	Kind kind `json:"kind"`
	// Form is what the list or watch asks for: any, not-older-than, exact, continue, consistent,
	// watch, streaming-list or unknown.
	Form string `json:"form"`
	// AnsweredBy is memory, consistent-lists, watches or kube-apiserver.
	AnsweredBy answerer `json:"answeredBy"`
	// Reason why kube-apiserver answers in any case.
	Reason reason.Reason `json:"reason,omitempty"`
	Count  int64         `json:"count"`
}

// report returns what was read until now.
func (a *analyzer) report() Report {
	r := Report{Files: a.files, Rows: []Row{}}
	if !a.tally.from.IsZero() {
		from, to := a.tally.from.UTC(), a.tally.to.UTC()
		r.From, r.To = &from, &to
	}
	rows := map[rowKey]*Row{}
	for key, counted := range a.tally.rows {
		at := rowKey{client: key.client, resource: key.resource}
		if rows[at] == nil {
			rows[at] = &Row{UserAgent: key.client.agent, User: key.client.user, Resource: key.resource}
		}
		v, n := key.verdict, counted.count()
		rows[at].add(v, n, counted.took)
		rows[at].Forms = append(rows[at].Forms, Form{Kind: v.kind, Form: v.form, AnsweredBy: v.by, Reason: v.why, Count: n})
		r.Totals.add(v, n, counted.took)
	}
	for _, row := range rows {
		slices.SortFunc(row.Forms, func(a, b Form) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Form, b.Form), cmp.Compare(a.Reason, b.Reason))
		})
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(b.Lists.Count+b.Watches.Count, a.Lists.Count+a.Watches.Count),
			cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource))
	})
	r.Advice = advise(r.Rows)
	return r
}

func (c *Counts) add(v verdict, n int64, took time.Duration) {
	answers := &c.Lists
	if v.kind == kindWatch {
		answers = &c.Watches
	}
	answers.Count += n
	switch v.by {
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
