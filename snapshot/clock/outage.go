package clock

import "time"

// Outage is a period in which no API server answers. It begins when a request of listproxy itself gets no answer, or a stream
// breaks. The zero Outage means that there was none.
type Outage struct {
	// Ongoing reports whether no API server answers now.
	Ongoing bool
	// LastHeard is the last time before the outage at which an API server sent something.
	LastHeard time.Time
	// Ended is the time at which an API server answered again; zero while the outage is ongoing.
	Ended time.Time
}

// resumeWithin is the time that streams may take to be opened again after an outage.
const resumeWithin = 5 * time.Second

// AsOf returns the time at which to measure the age of something that an API server has sent. It returns now, except in an
// outage that began less than bound ago. Then it returns LastHeard, since no API server can have sent anything newer to
// anybody.
func (o Outage) AsOf(now time.Time, bound time.Duration) time.Time {
	if o.Ongoing && Age(o.LastHeard, now) < bound {
		return o.LastHeard
	}
	return now
}

// AsOfWithoutStream is AsOf for something that a stream keeps up to date, while no stream is open. After an outage shorter
// than bound, it takes up to resumeWithin to open a stream again. In that time, too, nothing gets older.
func (o Outage) AsOfWithoutStream(now time.Time, bound time.Duration) time.Time {
	if !o.Ongoing && Age(o.Ended, now) < resumeWithin && Age(o.LastHeard, o.Ended) < bound {
		return o.LastHeard
	}
	return o.AsOf(now, bound)
}
