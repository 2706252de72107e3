package pace

import "time"

// average is an average in which the newest values weigh most. The zero average has none.
type average[T time.Duration | float64] struct {
	value T
	n     int // how many values there were, up to those that count
}

// usual is how many values count in an average.
const usual = 8

// Add takes in a value.
func (a *average[T]) Add(v T) { a.add(v, usual) }

// add takes in a value, where so many count.
func (a *average[T]) add(v T, count int) {
	a.n = min(a.n+1, count)
	a.value += (v - a.value) / T(a.n)
}

// Or returns the average, or v if there is none yet.
func (a average[T]) Or(v T) T {
	if a.n > 0 {
		return a.value
	}
	return v
}

// UsualQuestion and UsualBeside are how long a probe, and a watch beside the stream, are assumed
// to take before that was measured.
const (
	UsualProbe  = 5 * time.Millisecond
	UsualBeside = time.Second
)

// Feed has the average times in which a feed learns the upstream's current revision.
type Feed struct {
	// Probe is how long one takes, Gap the time from one event or bookmark of the stream to
	// the next, and Beside how long a watch beside the stream takes until its bookmark.
	Probe, Gap, Beside average[time.Duration]
	// behind is the share of probes that found the span behind the upstream, from 0 to 1.
	behind average[float64]
	// part is how much of the longest likely time these then waited for the stream, from 0 to 1.
	part average[float64]
}

// Answered records how long a probe took, and whether the span had already reached the answer.
func (p *Feed) Answered(took time.Duration, there bool) {
	p.Probe.Add(took)
	if there {
		p.behind.Add(0)
	} else {
		p.behind.Add(1)
	}
}

// CaughtUp takes in how long the stream took to tell what a probe had found it behind. A watch
// beside it is opened after a delay.
func (p *Feed) CaughtUp(took, delay time.Duration) {
	p.part.Add(min(1, float64(took)/float64(max(1, p.longest(delay)))))
}

// longest is how long the span may be behind: until the stream tells something, or a watch beside
// it that is opened after a delay.
func (p *Feed) longest(delay time.Duration) time.Duration {
	beside := delay + p.Beside.Or(UsualBeside)
	return min(beside, p.Gap.Or(beside))
}

// Wait is how long it takes from the answer to a probe until the span is there, if the stream
// has been silent for so long.
func (p *Feed) Wait(silent, delay time.Duration) time.Duration {
	d := time.Duration(float64(p.longest(delay)) * p.part.Or(1))
	if silent > p.Gap.Or(silent) {
		d = min(silent, delay+p.Beside.Or(UsualBeside)) // it has become quiet
	}
	return time.Duration(float64(d) * p.behind.Or(1))
}
