package authz

import "sync/atomic"

// reviewCounts count how often a caller's right was known. The zero value is ready for use.
type reviewCounts struct{ hits, misses atomic.Uint64 }

// Stats is what an [Authorizer] has been asked since it was made.
type Stats struct {
	// Hits are the questions whose answer was remembered. Misses are those for which the upstream
	// was asked, or was being asked by another caller's request.
	Hits, Misses uint64
	// Entries is how many units of the bound are in use. ristretto frees those of expired answers some
	// seconds late.
	Entries int64
	// Evictions counts answers that were dropped before they expired, or not stored, for lack of room.
	Evictions uint64
}

// Stats returns how often what was asked was known.
func (r *Authorizer) Stats() Stats {
	entries, evictions := r.decisions.epochs.stats()
	return Stats{Hits: r.counts.hits.Load(), Misses: r.counts.misses.Load(), Entries: entries, Evictions: evictions}
}
