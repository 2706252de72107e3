package oracle

import (
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// kept is how many writes are remembered at least, of each kind and of all.
	kept = 8192
	// recent is how many writes back Recent goes.
	recent = 150
)

// Ledger is what was written when, of which kind, in one past of etcd: the revisions that may be
// asked for, and those that must be seen. The zero Ledger is empty. Safe for concurrent use.
type Ledger[Kind comparable] struct {
	mu  sync.Mutex
	all []write
	of  map[Kind][]write
	// since is when the first write was confirmed that Pick may choose.
	since time.Time
}

// write is one that the API server had confirmed by then. Revisions of other writes may overtake
// it.
type write struct {
	revision uint64
	at       time.Time
}

// Confirmed notes a write that the API server has confirmed just now. 0 is none.
func (l *Ledger[Kind]) Confirmed(kind Kind, revision uint64) {
	if revision == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[Kind][]write{}
	}
	w := write{revision, time.Now()}
	l.all = bounded(append(l.all, w))
	l.of[kind] = bounded(append(l.of[kind], w))
}

func bounded(writes []write) []write {
	if len(writes) > 2*kept {
		return slices.Clone(writes[len(writes)-kept:])
	}
	return writes
}

// Forget drops everything, as when etcd was replaced, or older revisions must not be asked for.
func (l *Ledger[Kind]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.of = nil, nil
}

// Newest is the highest revision of a kind, or 0.
func (l *Ledger[Kind]) Newest(kind Kind) uint64 { return l.Before(kind, time.Now()) }

// Before is the highest revision of a kind that had been confirmed at a time, or 0.
func (l *Ledger[Kind]) Before(kind Kind, at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return highest(l.of[kind], at)
}

// NewestOfAll is the highest revision of any kind, or 0.
func (l *Ledger[Kind]) NewestOfAll() uint64 { return l.BeforeOfAll(time.Now()) }

// BeforeOfAll is the highest revision of any kind that had been confirmed at a time, or 0.
func (l *Ledger[Kind]) BeforeOfAll(at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return highest(l.all, at)
}

// Untold returns the revision of a write of a kind after one revision and up to another that told does not have, or
// 0 if it has all.
func (l *Ledger[Kind]) Untold(kind Kind, after, upTo uint64, told map[uint64]bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.of[kind] {
		if after < w.revision && w.revision <= upTo && !told[w.revision] {
			return w.revision
		}
	}
	return 0
}

func highest(writes []write, at time.Time) (revision uint64) {
	for _, w := range writes {
		if w.at.After(at) {
			break
		}
		revision = max(revision, w.revision)
	}
	return revision
}

// Begin says that Pick is to choose no revision from before now, as when none was kept of some form
// until now. What was written must still be seen.
func (l *Ledger[Kind]) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
}

// Pick returns the revision of some write not older than age, or than Begin: of the kind, or now
// and then of any (between two writes of a kind there are revisions, too). Recent ones are
// likelier.
func (l *Ledger[Kind]) Pick(rng *rand.Rand, kind Kind, age time.Duration) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.of[kind]
	if rng.IntN(4) == 0 {
		from = l.all
	}
	since := time.Now().Add(-age)
	if since.Before(l.since) {
		since = l.since
	}
	first := sort.Search(len(from), func(i int) bool { return !from[i].at.Before(since) })
	from = from[first:]
	if len(from) == 0 {
		return 0, false
	}
	if rng.IntN(5) == 0 {
		from = from[max(0, len(from)-3):]
	}
	return from[rng.IntN(len(from))].revision, true
}

// Recent is the revision of one of the last writes, of any kind, or 0.
func (l *Ledger[Kind]) Recent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-recent):]
	if len(last) == 0 {
		return 0
	}
	return last[rand.IntN(len(last))].revision
}

// OldestRecent is the lowest revision that somebody may ask for who called Recent some time ago, or
// 0.
func (l *Ledger[Kind]) OldestRecent() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-2*recent):]
	if len(last) == 0 {
		return 0
	}
	return slices.MinFunc(last, func(a, b write) int { return int(a.revision) - int(b.revision) }).revision
}
