package pace

import "time"

// average is an average in which the newest values weigh most. The zero average has none.
type average[T time.Duration | float64] struct {
	value T
	known bool
}

// weight is the part of a new value in an average: 1/weight.
const weight = 8

// Add takes in a value.
func (a *average[T]) Add(v T) {
	if !a.known {
		a.value, a.known = v, true
		return
	}
	a.value += (v - a.value) / weight
}

// Or returns the average, or v if there is none yet.
func (a average[T]) Or(v T) T {
	if a.known {
		return a.value
	}
	return v
}

// UsualQuestion and UsualBeside are how long a question takes, and a watch beside the stream, where
// that was not measured yet.
const (
	UsualQuestion = 5 * time.Millisecond
	UsualBeside   = time.Second
)

// Feed is how fast a feed learns how far the upstream is, on average.
type Feed struct {
	// Question is how long a question takes, Gap the time from one thing that the stream tells to
	// the next, and Beside how long a watch beside it takes until its bookmark.
	Question, Gap, Beside average[time.Duration]
	// behind is how many of the questions found the span behind the upstream, from 0 to 1.
	behind average[float64]
}

// Answered takes in how long a question took, and whether the span was there already.
func (p *Feed) Answered(took time.Duration, there bool) {
	p.Question.Add(took)
	if there {
		p.behind.Add(0)
	} else {
		p.behind.Add(1)
	}
}

// Wait is how long it takes from the answer to a question until the span is there, if the stream
// has been silent for so long. A watch beside it is opened after a delay.
func (p *Feed) Wait(silent, delay time.Duration) time.Duration {
	d := delay + p.Beside.Or(UsualBeside)
	if p.Gap.known {
		// A stream that tells nothing for longer than it usually does has become quiet.
		d = min(d, max(p.Gap.value, silent))
	}
	return time.Duration(float64(d) * p.behind.Or(1))
}
