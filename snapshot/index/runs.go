package index

import (
	"slices"

	"github.com/google/btree"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// maxRun bounds the number of neighbouring objects in a run: few enough to copy the run when an object comes or goes,
// and enough for a scan to read memory in order.
const maxRun = 64

// run has the labels of the objects from its first key up to the next run's first key, in columns. It is immutable.
type run struct {
	first      string
	keys       []string
	labels     []wire.Labels
	signatures []signature
	// all is the union of the signatures. Neighbours mostly have the same labels, so a scan often skips the whole run.
	all signature
}

// labelRuns has the labels of all objects in the order of their keys. A search for labels reads them, and only the objects
// that match. A new version of an object mostly has the same labels, and then no run changes. There is always a run
// that begins at "".
type labelRuns struct {
	runs *btree.BTreeG[*run]
}

func newLabelRuns() labelRuns {
	l := labelRuns{runs: btree.NewG(degree, func(a, b *run) bool { return a.first < b.first })}
	l.runs.ReplaceOrInsert(&run{})
	return l
}

func (l labelRuns) clone() labelRuns { return labelRuns{runs: l.runs.Clone()} }

// runOf returns the run in which key belongs and, if before is true, the run before that.
func (l labelRuns) runOf(key string, before bool) (holding, previous *run) {
	l.runs.DescendLessOrEqual(&run{first: key}, func(r *run) bool {
		if holding == nil {
			holding = r
			return before
		}
		previous = r
		return false
	})
	return holding, previous
}

// set adds or replaces the labels of a key.
func (l labelRuns) set(key string, labels wire.Labels) {
	r, _ := l.runOf(key, false)
	i, found := slices.BinarySearch(r.keys, key)
	replaced := 0
	if found {
		replaced = 1
	}
	r = newRun(r.first, splice(r.keys, i, replaced, key), splice(r.labels, i, replaced, labels),
		splice(r.signatures, i, replaced, signatureOf(labels)))
	if n := len(r.keys); n > maxRun {
		half := n / 2
		if i == n-1 {
			half = i // a load adds keys in order: leave full runs full
		}
		l.runs.ReplaceOrInsert(newRun(r.keys[half], r.keys[half:], r.labels[half:], r.signatures[half:]))
		r = newRun(r.first, slices.Clone(r.keys[:half]), slices.Clone(r.labels[:half]), slices.Clone(r.signatures[:half]))
	}
	l.runs.ReplaceOrInsert(r)
}

// remove removes a key. A run that has become small joins the one before it.
func (l labelRuns) remove(key string) {
	r, before := l.runOf(key, true)
	i, found := slices.BinarySearch(r.keys, key)
	if !found {
		return
	}
	r = newRun(r.first, splice(r.keys, i, 1), splice(r.labels, i, 1), splice(r.signatures, i, 1))
	if before != nil && (len(r.keys) == 0 || (len(r.keys) < maxRun/4 && len(before.keys)+len(r.keys) <= maxRun/2)) {
		l.runs.Delete(r)
		r = newRun(before.first, slices.Concat(before.keys, r.keys), slices.Concat(before.labels, r.labels),
			slices.Concat(before.signatures, r.signatures))
	}
	l.runs.ReplaceOrInsert(r)
}

// splice returns a copy of s in which the elements added replace as many from i on as removed says.
func splice[T any](s []T, i, removed int, added ...T) []T {
	return slices.Concat(s[:i], added, s[i+removed:])
}

func newRun(first string, keys []string, labels []wire.Labels, signatures []signature) *run {
	r := &run{first: first, keys: keys, labels: labels, signatures: signatures}
	for _, s := range signatures {
		r.all = r.all.union(s)
	}
	return r
}

// scan calls yield for each run in which the matcher chooses keys with from <= key < end. An empty end means no end. yield
// gets these keys, which are valid until it returns, and the number of all keys in the run. If it returns false, the
// scan ends.
func (l labelRuns) scan(from, end string, m *matcher, yield func(chosen []string, runLength int) bool) {
	start, _ := l.runOf(from, false)
	var buf [maxRun]string
	l.runs.AscendGreaterOrEqual(start, func(r *run) bool {
		if end != "" && r.first >= end {
			return false
		}
		if !m.sieve.mayPass(r.all) {
			return true
		}
		chosen := buf[:0]
		for i, s := range r.signatures {
			if !m.sieve.mayPass(s) || !m.chooses(r.labels[i]) {
				continue
			}
			if key := r.keys[i]; key >= from && (end == "" || key < end) {
				chosen = append(chosen, key)
			}
		}
		return len(chosen) == 0 || yield(chosen, len(r.keys))
	})
}
