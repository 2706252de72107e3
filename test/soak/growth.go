package soak

import (
	"fmt"
	"slices"
)

// Measure is one of the numbers of a sample, and how much more of it is no growth.
type Measure struct {
	Name string
	Of   func(Sample) float64
	// Part (of the number before) and Least (at least so much) are the slack.
	Part, Least float64
	// Unit divides the number for people.
	Unit  float64
	Label string
}

// Measures are those that must be flat. Memory moves with the collector of garbage and with what is
// being answered, resident memory more than the heap, whose median over many collections hardly moves; goroutines and descriptors with how many clients ask at the moment.
func Measures() []Measure {
	const mib = 1 << 20
	return []Measure{
		{Name: "resident memory", Of: func(s Sample) float64 { return s.RSS }, Part: 0.10, Least: 16 * mib, Unit: mib, Label: "MiB"},
		{Name: "heap", Of: func(s Sample) float64 { return s.Heap }, Part: 0.10, Least: 4 * mib, Unit: mib, Label: "MiB"},
		{Name: "goroutines", Of: func(s Sample) float64 { return s.Goroutines }, Part: 0.10, Least: 20, Unit: 1},
		{Name: "file descriptors", Of: func(s Sample) float64 { return s.FDs }, Part: 0.10, Least: 8, Unit: 1},
		{Name: "connections to the API server", Of: func(s Sample) float64 { return s.Upstream }, Part: 0.10, Least: 4, Unit: 1},
	}
}

// Growth is how a measure went.
type Growth struct {
	Measure
	// Before and After are the medians of the second and of the last third of all samples; what comes
	// before is the beginning, in which everything grows. Most is the most there was in these two.
	Before, After, Most float64
}

// Grows reports whether there is more at the end than the slack allows.
func (g Growth) Grows() bool { return g.After-g.Before > max(g.Least, g.Part*g.Before) }

// String is for people.
func (g Growth) String() string {
	verdict := "flat"
	if g.Grows() {
		verdict = "GROWS"
	}
	number := func(n float64) string {
		if g.Label == "" {
			return fmt.Sprintf("%.0f", n/g.Unit)
		}
		return fmt.Sprintf("%.0f %s", n/g.Unit, g.Label)
	}
	return fmt.Sprintf("%s: %s in the second third, %s in the last (at most %s): %s",
		g.Name, number(g.Before), number(g.After), number(g.Most), verdict)
}

// fewest samples of which thirds can be made.
const fewest = 6

// Grown says how all measures went. It fails if the samples are too few to say so.
func Grown(samples []Sample) ([]Growth, error) {
	if len(samples) < fewest {
		return nil, fmt.Errorf("%d samples are too few to tell growth: let it run longer", len(samples))
	}
	third := len(samples) / 3
	before, after := samples[len(samples)-2*third:len(samples)-third], samples[len(samples)-third:]
	var all []Growth
	for _, m := range Measures() {
		g := Growth{Measure: m, Before: median(before, m.Of), After: median(after, m.Of)}
		for _, s := range samples[len(samples)-2*third:] {
			g.Most = max(g.Most, m.Of(s))
		}
		all = append(all, g)
	}
	return all, nil
}

// median of a number: one sample in the middle of a fault says nothing.
func median(samples []Sample, of func(Sample) float64) float64 {
	var numbers []float64
	for _, s := range samples {
		numbers = append(numbers, of(s))
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}
