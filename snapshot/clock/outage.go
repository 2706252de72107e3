package clock

import "time"

// Outage is a time in which no API server answers. It begins when one of listproxy's own requests gets no answer, or when one
// of its streams (watches of the API server) breaks. In an outage, listproxy goes on answering from what it knows: nobody can
// get anything newer. The zero Outage stands for none.
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

// maxReopenTime is the longest time that streams may take to be opened again after an outage.
const maxReopenTime = 5 * time.Second

// AsOf returns the time at which to measure the age of something that an API server has sent. Usually this is now. In an outage
// it is LastHeard, so that nothing becomes older: since LastHeard, no API server can have sent anybody anything newer. But once
// LastHeard is as long ago as bound, it is now again.
//
// For example, with a bound of 90 s, something was sent 10 s before LastHeard. In an outage, it stays 10 s old until 90 s after
// LastHeard. Then it is 100 s old.
func (o Outage) AsOf(now time.Time, bound time.Duration) time.Time {
	if o.Ongoing && Age(o.LastHeard, now) < bound {
		return o.LastHeard
	}
	return now
}

// AsOfWithoutStream is AsOf for something that a stream keeps up to date, while no stream is open. After an outage, streams
// must first be opened again. So the outage counts as ongoing for some time after its end: as long as it has lasted, but at
// most maxReopenTime. After an outage of 2 s this is 2 s, and after one of 60 s it is 5 s.
func (o Outage) AsOfWithoutStream(now time.Time, bound time.Duration) time.Time {
	if !o.Ongoing {
		lasted := Age(o.Began, o.Ended)
		// o is a copy, so the caller's Outage stays as it is.
		o.Ongoing = Age(o.Ended, now) < min(lasted, maxReopenTime)
	}
	return o.AsOf(now, bound)
}
