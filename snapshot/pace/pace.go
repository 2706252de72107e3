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

// UsualQuestion and UsualBeside are how long a question, and a watch beside the stream, are assumed
// to take before that was measured.
const (
	UsualQuestion = 5 * time.Millisecond
	UsualBeside   = time.Second
)

// Feed has the average times in which a feed learns the upstream's current revision.
type Feed struct {
	// Question is how long a question takes, Gap the time from one event or bookmark of the stream to
	// the next, and Beside how long a watch beside the stream takes until its bookmark.
	Question, Gap, Beside average[time.Duration]
	// behind is the share of questions that found the span behind the upstream, from 0 to 1.
	behind average[float64]
}

// Answered records how long a question took, and whether the span had already reached the answer.
func (p *Feed) Answered(took time.Duration, there bool) {
	p.Question.Add(took)
	if there {
		p.behind.Add(0)
	} else {
		p.behind.Add(1)
	}
}

// Wait returns how long it takes, on average, from the answer to a question until the span has
// reached it. silent is how long the stream has been silent; after delay, a watch beside it is
// opened.
func (p *Feed) Wait(silent, delay time.Duration) time.Duration {
	d := delay + p.Beside.Or(UsualBeside)
	if p.Gap.known {
		// A stream that is silent for longer than usual has become quiet.
		d = min(d, max(p.Gap.value, silent))
	}
	return time.Duration(float64(d) * p.behind.Or(1))
}
