package pace

import "time"

// average is an average in which the newest values weigh most. The zero average has none.
type average[T time.Duration | float64] struct {
	value T
	n     int // how many values there were, up to those that count
}

// usual is how many values count in an average.
const usual = 8

// Add records a value.
func (a *average[T]) Add(v T) { a.add(v, usual) }

// add records a value in an average of the last count values.
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

// UsualProbe and UsualBeside are how long a probe, and a watch beside the stream, are assumed
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
func (f *Feed) Answered(took time.Duration, there bool) {
	f.Probe.Add(took)
	if there {
		f.behind.Add(0)
	} else {
		f.behind.Add(1)
	}
}

// CaughtUp records how long the stream took to reach the revision that a probe had found. A watch
// beside it is opened after a delay.
func (f *Feed) CaughtUp(took, delay time.Duration) {
	f.part.Add(min(1, float64(took)/float64(max(1, f.longest(delay)))))
}

// longest is how long the span may be behind: until the stream tells something, or a watch beside
// it that is opened after a delay.
func (f *Feed) longest(delay time.Duration) time.Duration {
	beside := delay + f.Beside.Or(UsualBeside)
	return min(beside, f.Gap.Or(beside))
}

// Wait is how long it takes from the answer to a probe until the span is there, if the stream
// has been silent for so long.
func (f *Feed) Wait(silent, delay time.Duration) time.Duration {
	d := time.Duration(float64(f.longest(delay)) * f.part.Or(1))
	if silent > f.Gap.Or(silent) {
		d = min(silent, delay+f.Beside.Or(UsualBeside)) // it has become quiet
	}
	return time.Duration(float64(d) * f.behind.Or(1))
}
