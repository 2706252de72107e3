package faults

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/oracle"
)

// picked is how many writes back askers ask for.
const picked = 150

// ledger is what was written when, in the present past of etcd. The zero ledger is empty. Safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	all  []write
	ages *oracle.Ledger // of all; nil: of nothing yet
}

// write is one that the API server has confirmed. Of a deletion the revision is not told.
type write struct {
	kind     kind
	revision uint64
	at       time.Time
}

func (l *ledger) add(k kind, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, write{k, revision, time.Now()})
	if l.ages == nil {
		l.ages = new(oracle.Ledger)
	}
	l.ages.Confirmed(revision)
}

// forget drops everything, as when etcd was replaced.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.ages = nil, nil
}

// newest returns the highest revision of a kind, or 0.
func (l *ledger) newest(k kind) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	highest := uint64(0)
	for _, w := range l.all {
		if w.kind == k {
			highest = max(highest, w.revision)
		}
	}
	return highest
}

// newestAt returns the highest revision of those that had been confirmed at a time, of any kind.
func (l *ledger) newestAt(at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	highest := uint64(0)
	for _, w := range l.all {
		if !w.at.After(at) {
			highest = max(highest, w.revision)
		}
	}
	return highest
}

// pick returns the revision of one of the last writes, of any kind: between two writes of one kind
// there are revisions, too. 0 if there is none.
func (l *ledger) pick() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-picked):]
	if len(last) == 0 {
		return 0
	}
	return last[rand.IntN(len(last))].revision
}

// oldest returns the lowest revision that an asker may ask for, who may have picked it some time ago, or 0.
func (l *ledger) oldest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.all[max(0, len(l.all)-2*picked):]
	if len(last) == 0 {
		return 0
	}
	return slices.MinFunc(last, func(a, b write) int { return int(a.revision) - int(b.revision) }).revision
}

// behind says for how long the API server had been past a revision at a time: since a write of a higher one, of any
// kind, was confirmed. 0 if there was none.
func (l *ledger) behind(revision uint64, asked time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ages == nil {
		return 0
	}
	return l.ages.Behind(revision, asked)
}
