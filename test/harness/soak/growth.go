package soak

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// A Measure is a figure of a process, such as its number of goroutines, that must not grow during a run. A run has load and
// faults, which raise the figure, and now and then a rest without either. At a rest the figure comes down to a floor, its least
// value there. Only a leak raises the floor from one rest to the next.
type Measure struct {
	Name string
	// Value returns the figure.
	Value func(Sample) float64
	// Slack is the allowed rise of the floor during a run.
	Slack float64
}

// Measures returns the measures that [Growths] compares.
func Measures() []Measure {
	const mib = 1 << 20
	return []Measure{
		// Besides the heap, this includes the program's pages, which are loaded at their first use. Memory that the runtime
		// keeps for later does not count: how much that is depends on when the runtime last returned some.
		{Name: "MiB of resident memory in use", Value: func(s Sample) float64 { return (s.RSS - s.Free) / mib }, Slack: 8},
		{Name: "MiB of heap", Value: func(s Sample) float64 { return s.Heap / mib }, Slack: 3},
		{Name: "goroutines", Value: func(s Sample) float64 { return s.Goroutines }, Slack: 5},
		{Name: "file descriptors", Value: func(s Sample) float64 { return s.FDs }, Slack: 4},
		{Name: "connections to the API server", Value: func(s Sample) float64 { return s.Upstream }, Slack: 2},
	}
}

const (
	// settledAfter is the time from the first rest to the last below which a run is short. In a short run the first rest comes
	// before everything has settled, so the floor still rises a little without a leak.
	settledAfter = 6 * time.Minute
	// shortRunFactor multiplies the slack of a [Measure] in a short run.
	shortRunFactor = 3
)

// Growth is how the floor of a measure moved during a run.
type Growth struct {
	Measure
	// First and Last are the least values of the first rest and of the last.
	First, Last float64
}

// Grows reports whether the floor has risen by more than the slack.
func (g Growth) Grows() bool { return g.Last-g.First > g.Slack }

func (g Growth) String() string {
	verdict := "flat"
	if g.Grows() {
		verdict = "GROWS"
	}
	return fmt.Sprintf("%s: at rest %.1f, in the end %.1f (it may rise by %.1f): %s", g.Name, g.First, g.Last, g.Slack, verdict)
}

// Growths returns the growth of each measure from the first rest to the last. samples are in the order of time, and come from
// two rests or more.
func Growths(samples []Sample) ([]Growth, error) {
	if len(samples) == 0 || samples[0].Rest == samples[len(samples)-1].Rest {
		return nil, errors.New("there are no two rests to compare: let it run longer")
	}
	first, last := samples[0], samples[len(samples)-1]
	var all []Growth
	for _, m := range Measures() {
		if last.At.Sub(first.At) < settledAfter {
			m.Slack *= shortRunFactor
		}
		all = append(all, Growth{Measure: m, First: floor(samples, first.Rest, m), Last: floor(samples, last.Rest, m)})
	}
	return all, nil
}

// floor returns the least value of a measure in a rest. Even at a rest there is a request now and then, which raises the other
// values.
func floor(samples []Sample, rest int, m Measure) float64 {
	least := math.Inf(1)
	for _, s := range samples {
		if s.Rest == rest {
			least = min(least, m.Value(s))
		}
	}
	return least
}
