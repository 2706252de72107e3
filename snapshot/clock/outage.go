package clock

import "time"

// Outage is a time in which no API server answers. It begins when one of listproxy's own requests gets no answer, or one of
// its streams breaks. The zero Outage stands for none.
type Outage struct {
	// Ongoing reports whether no API server answers now.
	Ongoing bool
	// LastHeard is the last time before the outage at which an API server sent something.
	LastHeard time.Time
	// Began is the time at which the first request that got no answer was sent, or at which the stream broke.
	Began time.Time
	// Ended is the time at which an API server answered again; zero while the outage is ongoing.
	Ended time.Time
}

// resumeWithin is the longest time that streams may take to be opened again after an outage.
const resumeWithin = 5 * time.Second

// AsOf returns the time at which to measure the age of something that an API server has sent. This is now, or in an outage
// LastHeard, if that is less than bound ago: since then, no API server can have sent anybody anything newer.
func (o Outage) AsOf(now time.Time, bound time.Duration) time.Time {
	if o.Ongoing && Age(o.LastHeard, now) < bound {
		return o.LastHeard
	}
	return now
}

// AsOfWithoutStream is AsOf for something that a stream keeps up to date, while no stream is open. After its end, an outage counts
// as ongoing for as long again as it has lasted, but at most for resumeWithin, since streams are opened again in this time.
func (o Outage) AsOfWithoutStream(now time.Time, bound time.Duration) time.Time {
	if !o.Ongoing {
		lasted := Age(o.Began, o.Ended)
		o.Ongoing = Age(o.Ended, now) < min(lasted, resumeWithin)
	}
	return o.AsOf(now, bound)
}
