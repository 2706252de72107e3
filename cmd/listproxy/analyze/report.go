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
	// From and To are when the first and the last request came; nil if no line says when.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	// Totals are of all clients.
	Totals Counts `json:"totals"`
	// Rows are one for each client and resource, the one that took the most time first.
	Rows []Row `json:"rows"`
	// Advice says what brings more, the most first.
	Advice []Advice `json:"advice"`
	// Moments say how many lists came when; MomentSeconds is how long each is.
	Moments       []Moment `json:"moments,omitempty"`
	MomentSeconds float64  `json:"momentSeconds,omitempty"`
}

// Counts are of requests that have something in common.
type Counts struct {
	Lists   Answers `json:"lists"`
	Watches Answers `json:"watches"`
	// Seconds is how long the lists took together, as the log has it.
	Seconds float64 `json:"seconds"`
	// Bytes of the answers to the requests whose line says it, and how many requests these are.
	Bytes int64 `json:"bytes,omitempty"`
	Sized int64 `json:"sized,omitempty"`
}

// Answers say who answers requests.
type Answers struct {
	Count int64 `json:"count"`
	// FromMemory: listproxy answers as it comes.
	FromMemory int64 `json:"fromMemory"`
	// WithConsistentLists: only with --consistent-lists; WithWatches: only with --watches.
	WithConsistentLists int64 `json:"withConsistentLists"`
	WithWatches         int64 `json:"withWatches"`
	// Forwarded: kube-apiserver, in any case.
	Forwarded int64 `json:"forwarded"`
}

// Row is a client and a resource.
type Row struct {
	UserAgent string `json:"userAgent"`
	// User is empty where the log does not name users.
	User     string `json:"user,omitempty"`
	Resource string `json:"resource"`
	Counts
	// Forms are what was asked for, the most frequent first.
	Forms []Form `json:"forms"`
}

// Form is one way to ask.
type Form struct {
	// Kind is list or watch.
	Kind string `json:"kind"`
	// Form is what the list or watch asks for: any, not-older-than, exact, continue, most-recent,
	// watch, streaming-list or unknown.
	Form string `json:"form"`
	// AnsweredBy is memory, consistent-lists, watches or kube-apiserver.
	AnsweredBy string `json:"answeredBy"`
	// Reason why kube-apiserver answers in any case.
	Reason reason.Reason `json:"reason,omitempty"`
	Count  int64         `json:"count"`
}

// Moment is a part of the time of the logs.
type Moment struct {
	From  time.Time `json:"from"`
	Lists Answers   `json:"lists"`
}

// report says what was read until now.
func (a *analyzer) report() Report {
	r := Report{Files: a.files, Rows: []Row{}, MomentSeconds: a.tally.moments.width.Seconds()}
	if !a.tally.from.IsZero() {
		from, to := a.tally.from.UTC(), a.tally.to.UTC()
		r.From, r.To = &from, &to
	}
	type place struct {
		client   client
		resource string
	}
	rows := map[place]*Row{}
	for key, counted := range a.tally.rows {
		at := place{key.client, key.resource}
		if rows[at] == nil {
			rows[at] = &Row{UserAgent: key.client.agent, User: key.client.user, Resource: key.resource}
		}
		rows[at].add(key.verdict, counted)
		r.Totals.add(key.verdict, counted)
	}
	for _, row := range rows {
		slices.SortFunc(row.Forms, func(a, b Form) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Form, b.Form), cmp.Compare(a.Reason, b.Reason))
		})
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(b.requests(), a.requests()),
			cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource))
	})
	r.Advice = advise(r.Rows)
	r.Moments = a.tally.moments.list()
	return r
}

// requests are all of a row.
func (c Counts) requests() int64 { return c.Lists.Count + c.Watches.Count }

func (c *Counts) add(v verdict, counted *row) {
	answers := &c.Lists
	if v.kind == kindWatch {
		answers = &c.Watches
	}
	answers.add(v.by, counted.count())
	c.Seconds += counted.took.Seconds()
	c.Bytes += counted.bytes
	c.Sized += counted.sized
}

func (a *Answers) add(by answerer, n int64) {
	a.Count += n
	switch by {
	case byMemory:
		a.FromMemory += n
	case withConsistentLists:
		a.WithConsistentLists += n
	case withWatches:
		a.WithWatches += n
	default:
		a.Forwarded += n
	}
}

func (r *Row) add(v verdict, counted *row) {
	r.Counts.add(v, counted)
	r.Forms = append(r.Forms, Form{string(v.kind), v.form, string(v.by), v.why, counted.count()})
}

// list returns the moments in their order.
func (m *moments) list() []Moment {
	var all []Moment
	for moment, counts := range m.counts {
		at := Moment{From: time.Unix(0, moment*int64(m.width)).UTC()}
		for by, n := range counts {
			at.Lists.add(by, n)
		}
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b Moment) int { return a.From.Compare(b.From) })
	return all
}
