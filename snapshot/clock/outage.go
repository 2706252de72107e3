package clock

import "time"

// Outage is a period in which no API server answers: a request of listproxy's own got no answer, or a stream broke, and
// nothing has come since. The zero Outage is none.
type Outage struct {
	// Ongoing reports whether no API server answers now.
	Ongoing bool
	// LastHeard is the time at which something last came before the outage.
	LastHeard time.Time
	// Ended is the time at which an API server answered again; zero while the outage is ongoing.
	Ended time.Time
}

// resumeWithin is the time that streams may take to be opened again after an outage.
const resumeWithin = 5 * time.Second

// AsOf returns the time at which to measure the age of something that an API server has said. That is now, except in an
// outage that began less than bound ago: then it is the time at which an API server was last heard, since none can have said
// anything newer to anybody.
func (o Outage) AsOf(now time.Time, bound time.Duration) time.Time {
	if o.Ongoing && Age(o.LastHeard, now) < bound {
		return o.LastHeard
	}
	return now
}

// AsOfWithoutStream is AsOf for something that a stream keeps up to date, while no stream is open. After an outage that was
// shorter than bound, it takes some seconds to open a stream again: in these seconds nothing gets older either.
func (o Outage) AsOfWithoutStream(now time.Time, bound time.Duration) time.Time {
	if !o.Ongoing && Age(o.Ended, now) < resumeWithin && Age(o.LastHeard, o.Ended) < bound {
		return o.LastHeard
	}
	return o.AsOf(now, bound)
}
