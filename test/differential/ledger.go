package differential

import (
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ledgerSize is how many writes are remembered of each resource.
const ledgerSize = 8192

// Ledger is what was written when: the revisions that may be asked for, and those that must be
// seen. Safe for concurrent use.
type Ledger struct {
	mu  sync.Mutex
	all []entry
	of  map[schema.GroupResource][]entry
	// since is when the first write was answered whose revision may be asked for.
	since time.Time
}

type entry struct {
	revision uint64
	at       time.Time // when the API server had answered the write
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{of: map[schema.GroupResource][]entry{}} }

// Add notes a write that has been answered.
func (l *Ledger) Add(r schema.GroupResource, revision uint64) {
	if revision == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{revision, time.Now()}
	l.all = bounded(append(l.all, e))
	l.of[r] = bounded(append(l.of[r], e))
}

func bounded(entries []entry) []entry {
	if len(entries) > 2*ledgerSize {
		return slices.Clone(entries[len(entries)-ledgerSize:])
	}
	return entries
}

// Begin says that no revision from before now is to be asked for, as when none was kept of some form
// until now. What was written must still be seen.
func (l *Ledger) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
}

// Pick returns the revision of some write not older than age, or than Begin: of the resource, or now and then of
// any (between two writes of the resource there are revisions, too). Recent ones are likelier.
func (l *Ledger) Pick(rng *rand.Rand, r schema.GroupResource, age time.Duration) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.of[r]
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

// Before returns the highest revision of the resource that had been answered at a time.
func (l *Ledger) Before(r schema.GroupResource, at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.of[r]
	return highest(entries[:sort.Search(len(entries), func(i int) bool { return entries[i].at.After(at) })])
}

// highest returns the highest revision of entries, or 0.
func highest(entries []entry) (revision uint64) {
	for _, e := range entries[max(0, len(entries)-16):] { // answers may overtake each other
		revision = max(revision, e.revision)
	}
	return revision
}

// last returns the highest revision of all that has been answered, or 0.
func (l *Ledger) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return highest(l.all)
}

// Forget drops everything, as when revisions before now must not be asked for any more.
func (l *Ledger) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.of = nil, map[schema.GroupResource][]entry{}
}

// newest returns the highest revision of the resource that has been answered, or 0.
func (l *Ledger) newest(r schema.GroupResource) uint64 { return l.Before(r, time.Now()) }
