package soak

import (
	"errors"
	"fmt"
	"time"
)

// Measure is one of the numbers of a sample, and how much more of it is no growth.
type Measure struct {
	Name string
	Of   func(Sample) float64
	// Slack is by how much the floor may rise.
	Slack float64
	// Unit divides the number for people.
	Unit  float64
	Label string
}

// Measures are those that must be flat. All of them go up and down with what is being answered and, memory, with
// the collector of garbage. What is never given back raises what they come down to.
func Measures() []Measure {
	const mib = 1 << 20
	return []Measure{
		// Beside the heap it is the program's own pages, read when they are first needed, and what the runtime
		// has not given back yet.
		{Name: "resident memory", Of: func(s Sample) float64 { return s.RSS }, Slack: 4 * mib, Unit: mib, Label: " MiB"},
		{Name: "heap", Of: func(s Sample) float64 { return s.Heap }, Slack: mib, Unit: mib, Label: " MiB"},
		{Name: "goroutines", Of: func(s Sample) float64 { return s.Goroutines }, Slack: 3, Unit: 1},
		{Name: "file descriptors", Of: func(s Sample) float64 { return s.FDs }, Slack: 2, Unit: 1},
		{Name: "connections to the API server", Of: func(s Sample) float64 { return s.Upstream }, Slack: 1, Unit: 1},
	}
}

const (
	// enough is how long a run must be for its floors to be told exactly: ten minutes are, wherever in a second
	// the first sample and the last were taken.
	enough = 9 * time.Minute
	// short is by how much the slack is wider where a run is shorter: there are few calm samples then, and not all that comes and
	// goes is gone in one of them.
	short = 4
	// least is how long a window is, if the run is not so short that it would be more than a third.
	least = time.Minute
)

// window is some of the time of a run.
type window struct{ from, to time.Time }

func (w window) has(s Sample) bool { return s.Calm && !s.At.Before(w.from) && !s.At.After(w.to) }

// windows returns which times of a run are held against each other: the beginning of its second third and the
// end of its last. The first third is the beginning, in which everything grows. Each is a sixth of the run,
// so between them a leak has half of the run to show.
func windows(began, ended time.Time) (before, after window) {
	span := ended.Sub(began)
	size := min(max(span/6, least), span/3)
	settled := began.Add(span / 3)
	return window{settled, settled.Add(size)}, window{ended.Add(-size), ended}
}

// Growth is how a measure went.
type Growth struct {
	Measure
	// Before and After are the floors, the least in calm moments, of the two windows. Most is the most that
	// there was since the first of them began, calm or not.
	Before, After, Most float64
	// Span is how long the run was.
	Span time.Duration
}

// Allowed is by how much the floor may rise.
func (g Growth) Allowed() float64 {
	if g.Span < enough {
		return short * g.Slack
	}
	return g.Slack
}

// Grows reports whether the floor has risen by more than the slack.
func (g Growth) Grows() bool { return g.After-g.Before > g.Allowed() }

// String is for people.
func (g Growth) String() string {
	verdict := "flat"
	if g.Grows() {
		verdict = "GROWS"
	}
	number := func(n float64) string {
		if g.Unit == 1 {
			return fmt.Sprintf("%.0f%s", n, g.Label)
		}
		return fmt.Sprintf("%.1f%s", n/g.Unit, g.Label)
	}
	return fmt.Sprintf("%s: at the least %s after a third of the time, %s at the end (at most %s; %s more would be growth): %s",
		g.Name, number(g.Before), number(g.After), number(g.Most), number(g.Allowed()), verdict)
}

// Grown says how all measures went. It fails if there are no calm samples to say so.
func Grown(samples []Sample) ([]Growth, error) {
	if len(samples) == 0 {
		return nil, errors.New("nothing was measured")
	}
	began, ended := samples[0].At, samples[len(samples)-1].At
	before, after := windows(began, ended)
	var all []Growth
	for _, m := range Measures() {
		g := Growth{Measure: m, Span: ended.Sub(began)}
		var early, late bool
		g.Before, early = floor(samples, before, m.Of)
		g.After, late = floor(samples, after, m.Of)
		if !early || !late {
			return nil, fmt.Errorf("there is no calm moment to hold against another in %v: let it run longer", g.Span)
		}
		for _, s := range samples {
			if !s.At.Before(before.from) {
				g.Most = max(g.Most, m.Of(s))
			}
		}
		all = append(all, g)
	}
	return all, nil
}

// floor is the least of a number in the calm samples of a window, and whether there are some.
func floor(samples []Sample, in window, of func(Sample) float64) (lowest float64, some bool) {
	for _, s := range samples {
		if !in.has(s) {
			continue
		}
		if n := of(s); !some || n < lowest {
			lowest, some = n, true
		}
	}
	return lowest, some
}
