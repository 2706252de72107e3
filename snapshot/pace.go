package snapshot

import "time"

// average is an average in which the newest values weigh most. The zero average has none.
type average[T time.Duration | float64] struct {
	value T
	known bool
}

// weight is the part of a new value in an average: 1/weight.
const weight = 8

func (a *average[T]) add(v T) {
	if !a.known {
		a.value, a.known = v, true
		return
	}
	a.value += (v - a.value) / weight
}

// or returns the average, or v if there is none yet.
func (a average[T]) or(v T) T {
	if a.known {
		return a.value
	}
	return v
}

// usualQuestion and usualBeside are how long a question takes, and a watch beside the stream, where
// that was not measured yet.
const (
	usualQuestion = 5 * time.Millisecond
	usualBeside   = time.Second
)

// pace is how fast a feed learns how far the upstream is, on average.
type pace struct {
	// question is how long a question takes, gap the time from one thing that the stream tells to
	// the next, and beside how long a watch beside it takes until its bookmark.
	question, gap, beside average[time.Duration]
	// behind is how many of the questions found the span behind the upstream, from 0 to 1.
	behind average[float64]
}

// answered takes in how long a question took, and whether the span was there already.
func (p *pace) answered(took time.Duration, there bool) {
	p.question.add(took)
	if there {
		p.behind.add(0)
	} else {
		p.behind.add(1)
	}
}

// wait is how long it takes from the answer to a question until the span is there, if the stream
// has been silent for so long.
func (p *pace) wait(silent time.Duration) time.Duration {
	d := besideDelay + p.beside.or(usualBeside)
	if p.gap.known {
		// A stream that tells nothing for longer than it usually does has become quiet.
		d = min(d, max(p.gap.value, silent))
	}
	return time.Duration(float64(d) * p.behind.or(1))
}
