package analyze

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var reportHTML string

// plotted is how many clients the plot of clients has.
const plotted = 20

// writeHTML writes the report as one file that loads nothing from elsewhere and has no script.
func (r Report) writeHTML(w io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"count": count, "share": share, "seconds": seconds, "name": name,
		"read":  Report.read,
		"size":  func(r Row) string { return r.size() },
		"forms": Row.forms,
		"about": Advice.about,
		"most":  Advice.most,
		"bars":  Report.bars,
		"times": Report.times, "highest": Report.highest,
		"limits": func() string { return limits },
	}).Parse(reportHTML)
	if err != nil {
		return fmt.Errorf("the report's template: %w", err)
	}
	return page.Execute(w, r)
}

// bar is a line of the plot of clients: who answers how many of the requests of a client.
type bar struct {
	Name  string
	Label string
	Parts []part
}

// part is a part of a bar or column, in thousandths of the largest.
type part struct {
	Class, Title    string
	At, Length, End float64
}

// answers are the parts of a bar, in their order.
func (a Answers) parts(scale float64) []part {
	var parts []part
	at := 0.0
	for _, p := range []struct {
		class, title string
		n            int64
	}{
		{"memory", "from memory", a.FromMemory},
		{"consistent", "with --consistent-lists", a.WithConsistentLists},
		{"watches", "with --watches", a.WithWatches},
		{"forwarded", "forwarded in any case", a.Forwarded},
	} {
		if p.n == 0 {
			continue
		}
		length := float64(p.n) * scale
		parts = append(parts, part{p.class, p.title + ": " + count(p.n), at, length, at + length})
		at += length
	}
	return parts
}

// both are lists and watches together.
func (c Counts) both() Answers {
	l, w := c.Lists, c.Watches
	return Answers{
		l.Count + w.Count, l.FromMemory + w.FromMemory, l.WithConsistentLists + w.WithConsistentLists,
		l.WithWatches + w.WithWatches, l.Forwarded + w.Forwarded,
	}
}

// bars are the plot of clients and resources, in the order of the rows.
func (r Report) bars() []bar {
	rows := r.Rows[:min(len(r.Rows), plotted)]
	most := int64(1)
	for _, row := range rows {
		most = max(most, row.requests())
	}
	bars := make([]bar, len(rows))
	for i, row := range rows {
		bars[i] = bar{name(row.UserAgent, row.User) + ": " + row.Resource, count(row.requests()), row.both().parts(1000 / float64(most))}
	}
	return bars
}

// column is a moment of the plot of time.
type column struct {
	X, Width float64
	Parts    []part
}

// mostLists is how many lists came in the moment that had most.
func (r Report) mostLists() int64 {
	most := int64(1)
	for _, m := range r.Moments {
		most = max(most, m.Lists.Count)
	}
	return most
}

// highest says what the highest column of the plot of lists over time stands for.
func (r Report) highest() string {
	return fmt.Sprintf("the highest column is %s lists in %s", count(r.mostLists()), seconds(r.MomentSeconds))
}

// times are the plot of lists over time.
func (r Report) times() []column {
	if len(r.Moments) < 2 {
		return nil
	}
	first, last := r.Moments[0].From, r.Moments[len(r.Moments)-1].From
	steps := last.Sub(first).Seconds()/r.MomentSeconds + 1
	most := r.mostLists()
	columns := make([]column, len(r.Moments))
	for i, m := range r.Moments {
		x := m.From.Sub(first).Seconds() / r.MomentSeconds
		columns[i] = column{1000 * x / steps, 1000 / steps, m.Lists.parts(200 / float64(most))}
		for p := range columns[i].Parts {
			at := &columns[i].Parts[p]
			at.At = 200 - at.End // columns grow upwards
		}
	}
	return columns
}
