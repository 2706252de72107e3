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
func (b *Bounds) Stats() Stats {
	long := b.long.Stats()
	unaccepted := b.unaccepted.Stats()
	long.InUse += unaccepted.InUse
	long.Waiting += unaccepted.Waiting
	long.Callers += unaccepted.Callers
	for why, n := range unaccepted.Refused {
		long.Refused[why] += n
	}
	s := Stats{Short: b.short.Stats(), LongRunning: long, Bytes: b.bodies.Stats()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Taken = b.taken
	return s
}
