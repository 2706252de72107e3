package soak

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Measure is one of the numbers of a sample, and how much more of it is no growth.
type Measure struct {
	Name string
	Of   func(Sample) float64
	// Slack is by how much the floor may rise.
	Slack float64
}

// Measures are those that must be flat. All of them go up and down with what is asked, written and
// broken. What is never given back raises what they come down to at rest.
func Measures() []Measure {
	const mib = 1 << 20
	return []Measure{
		// Beside the heap it is the program's own pages, read when they are first needed. What the
		// runtime keeps for later depends on when it last gave some back.
		{"MiB of resident memory in use", func(s Sample) float64 { return (s.RSS - s.Free) / mib }, 4},
		{"MiB of heap", func(s Sample) float64 { return s.Heap / mib }, 1},
		{"goroutines", func(s Sample) float64 { return s.Goroutines }, 3},
		{"file descriptors", func(s Sample) float64 { return s.FDs }, 2},
		{"connections to the API server", func(s Sample) float64 { return s.Upstream }, 1},
	}
}

const (
	// enough is how long it must be from the first rest to the last for the slack to be as narrow as
	// that. In less than that nothing has settled when it begins to count.
	enough = 6 * time.Minute
	// short is by how much the slack is wider where a run is shorter.
	short = 4
)

// Growth is how a measure went.
type Growth struct {
	Measure
	// Floors are the least of every rest, in order.
	Floors []float64
	// Risen is by how much the mean of the last half of the floors is above that of the first half; one
	// in the middle counts in neither. A leak raises all of them, and chance some.
	Risen float64
	// Allowed is by how much they may rise: the slack, and as much as the floors stray anyway.
	Allowed float64
}

// Grows reports whether the floor has risen by more than is allowed.
func (g Growth) Grows() bool { return g.Risen > g.Allowed }

// String is for people.
func (g Growth) String() string {
	verdict := "flat"
	if g.Grows() {
		verdict = "GROWS"
	}
	return fmt.Sprintf("%s: at rest %.1f (it may rise by %.1f): %s", g.Name, g.Floors, g.Allowed, verdict)
}

// Grown says how all measures went, by samples of rests. It fails if there are no two rests.
func Grown(samples []Sample) ([]Growth, error) {
	if len(samples) == 0 || samples[0].Rest == samples[len(samples)-1].Rest {
		return nil, errors.New("there are no two rests to hold against each other: let it run longer")
	}
	wider := 1.0
	if samples[len(samples)-1].At.Sub(samples[0].At) < enough {
		wider = short
	}
	var all []Growth
	for _, m := range Measures() {
		f := floors(samples, m.Of)
		half := len(f) / 2
		all = append(all, Growth{m, f, mean(f[len(f)-half:]) - mean(f[:half]), m.Slack*wider + scatter(f)})
	}
	return all, nil
}

// scatter is how far numbers stray from the straight line that is nearest to them, as a standard
// deviation: a steady leak makes the line steeper, and the numbers stray no more. It is 0 if they are
// too few to stray.
func scatter(numbers []float64) float64 {
	n := float64(len(numbers))
	if n < 3 {
		return 0
	}
	middle, centre := (n-1)/2, mean(numbers)
	var xy, xx, squares float64
	for i, y := range numbers {
		x := float64(i) - middle
		xy, xx = xy+x*(y-centre), xx+x*x
	}
	for i, y := range numbers {
		off := y - centre - xy/xx*(float64(i)-middle)
		squares += off * off
	}
	return math.Sqrt(squares / (n - 2))
}

func mean(numbers []float64) (m float64) {
	for _, n := range numbers {
		m += n / float64(len(numbers))
	}
	return m
}

// floors returns the least of a number in each rest: even at rest there is a request now and then.
func floors(samples []Sample, of func(Sample) float64) (all []float64) {
	last := 0
	for _, s := range samples {
		if s.Rest != last {
			all, last = append(all, of(s)), s.Rest
		}
		all[len(all)-1] = min(all[len(all)-1], of(s))
	}
	return all
}
