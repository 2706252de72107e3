package inflight

// Stats is what is in flight, and what was refused.
type Stats struct {
	// Short are requests, LongRunning watches, logs, execs and the like, Bytes the bodies that are
	// being written from memory.
	Short, LongRunning, Bytes LimiterStats
	// Taken counts the long-running requests that were ended because others needed their places.
	Taken uint64
}

// Stats returns the present state. Its parts are read one after the other.
func (a *Bounds) Stats() Stats {
	long := a.long.Stats()
	unaccepted := a.unaccepted.Stats()
	long.InUse += unaccepted.InUse
	long.Waiting += unaccepted.Waiting
	long.Callers += unaccepted.Callers
	for why, n := range unaccepted.Refused {
		long.Refused[why] += n
	}
	s := Stats{Short: a.short.Stats(), LongRunning: long, Bytes: a.bodies.Stats()}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Taken = a.taken
	return s
}
