package oracle

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// minKept is the least number of writes that a ledger keeps of each kind, and of all kinds together. It keeps the last
	// ones.
	minKept = 8192
	// recent is the number of last writes from which Recent chooses.
	recent = 150
)

// Ledger has the revisions of writes that the API server has confirmed to their writer, by kind and time. Tests ask for these
// revisions, and require that answers have these writes. When etcd is replaced or restored, it gives revisions a second time:
// then the test calls Forget. The zero Ledger is empty. A Ledger is safe for concurrent use.
type Ledger[Kind comparable] struct {
	mu     sync.Mutex
	all    []write
	byKind map[Kind][]write
	// pickSince is the time of the last PickFromNow. Pick chooses no write that was confirmed earlier.
	pickSince time.Time
}

// write is a write that the API server has confirmed. Writes are kept in the order of confirmation: two concurrent writes may
// be confirmed in another order than that of their revisions.
type write struct {
	revision    uint64
	confirmedAt time.Time
}

// Confirm adds a write that the API server has just confirmed. A revision of 0 is ignored.
func (l *Ledger[Kind]) Confirm(kind Kind, revision uint64) {
	if revision == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKind == nil {
		l.byKind = map[Kind][]write{}
	}
	w := write{revision: revision, confirmedAt: time.Now()}
	l.all = dropOldest(append(l.all, w))
	l.byKind[kind] = dropOldest(append(l.byKind[kind], w))
}

// dropOldest returns the last minKept writes if there are more than twice as many, or else all.
func dropOldest(writes []write) []write {
	if len(writes) > 2*minKept {
		return slices.Clone(writes[len(writes)-minKept:])
	}
	return writes
}

// Forget drops all writes. It is for a replaced etcd, and for tests that must not ask for older revisions.
func (l *Ledger[Kind]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.byKind = nil, nil
}

// Newest returns the highest revision of a kind, or 0.
func (l *Ledger[Kind]) Newest(kind Kind) uint64 { return l.Before(kind, time.Now()) }

// Before returns the highest revision of a kind that was confirmed by a time, or 0.
func (l *Ledger[Kind]) Before(kind Kind, at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return highest(l.byKind[kind], at)
}

// NewestOfAll returns the highest revision of any kind, or 0.
func (l *Ledger[Kind]) NewestOfAll() uint64 { return l.BeforeOfAll(time.Now()) }

// BeforeOfAll returns the highest revision of any kind that was confirmed by a time, or 0.
func (l *Ledger[Kind]) BeforeOfAll(at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return highest(l.all, at)
}

// Missing returns the revision of a write of a kind that seen lacks, or 0 if seen has all writes with after < revision ≤ upTo.
func (l *Ledger[Kind]) Missing(kind Kind, after, upTo uint64, seen map[uint64]bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.byKind[kind] {
		if after < w.revision && w.revision <= upTo && !seen[w.revision] {
			return w.revision
		}
	}
	return 0
}

// highest returns the highest revision that was confirmed by a time, or 0.
func highest(writes []write, at time.Time) (revision uint64) {
	for _, w := range writes {
		if w.confirmedAt.After(at) {
			break
		}
		revision = max(revision, w.revision)
	}
	return revision
}

// PickFromNow limits Pick to writes that are confirmed after this call, since listproxy may not have kept earlier states. The
// other methods still know the earlier writes.
func (l *Ledger[Kind]) PickFromNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pickSince = time.Now()
}

// Pick returns the revision of a random write that was confirmed within the last age, and since the last PickFromNow. One time
// in four it chooses among the writes of all kinds, since a list of one kind may ask for a revision of another. One time in
// five it chooses among the last three writes. ok is false if there is no write to choose.
func (l *Ledger[Kind]) Pick(rng *rand.Rand, kind Kind, age time.Duration) (_ uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	writes := l.byKind[kind]
	if rng.IntN(4) == 0 {
		writes = l.all
	}
	since := time.Now().Add(-age)
	if since.Before(l.pickSince) {
		since = l.pickSince
	}
	first := sort.Search(len(writes), func(i int) bool { return !writes[i].confirmedAt.Before(since) })
	writes = writes[first:]
	if len(writes) == 0 {
		return 0, false
	}
	if rng.IntN(5) == 0 {
		writes = writes[max(0, len(writes)-3):]
	}
	return writes[rng.IntN(len(writes))].revision, true
}

// Recent returns the revision of one of the last writes of any kind, or 0.
func (l *Ledger[Kind]) Recent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-recent):]
	if len(last) == 0 {
		return 0
	}
	return last[rand.IntN(len(last))].revision
}

// OldestRecent returns the lowest revision of the last 300 writes (2*recent), or 0. Since the first 150 of these were
// confirmed, Recent has returned no lower revision.
func (l *Ledger[Kind]) OldestRecent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-2*recent):]
	if len(last) == 0 {
		return 0
	}
	return slices.MinFunc(last, func(a, b write) int { return cmp.Compare(a.revision, b.revision) }).revision
}
