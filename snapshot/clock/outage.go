package clock

import "time"

// Outage is a time in which no API server answers: a request of listproxy's own got no answer, or a stream broke, and
// nothing has come since. The zero Outage is none.
type Outage struct {
	// Lasts reports whether nobody answers now.
	Lasts bool
	// Heard is the time at which something last came before the outage, and Ended when it was over; zero while it lasts.
	Heard, Ended time.Time
}

// resumeWithin is the time that streams may take to be opened again after an outage.
const resumeWithin = 5 * time.Second

// AsOf returns the time at which to judge how old something is that an API server has said. That is now. In an outage
// it is the time at which a server was last heard, for at most bound: nobody can have said anything else since.
func (o Outage) AsOf(now time.Time, bound time.Duration) time.Time {
	if o.Lasts && Age(o.Heard, now) < bound {
		return o.Heard
	}
	return now
}

// AsOfWithoutStream is AsOf for something that a stream keeps up to date, if no stream is open. After an outage it
// takes some seconds to open one again. In these seconds nothing gets older either.
func (o Outage) AsOfWithoutStream(now time.Time, bound time.Duration) time.Time {
	if !o.Lasts && Age(o.Ended, now) < resumeWithin && Age(o.Heard, o.Ended) < bound {
		return o.Heard
	}
	return o.AsOf(now, bound)
}
