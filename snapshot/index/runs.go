package index

import (
	"slices"

	"github.com/google/btree"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// maxRun is how many neighbouring objects have their labels side by side in one run, at most: few enough for a
// run to be copied when an object comes or goes, and enough for a scan to read memory in order.
const maxRun = 64

// run has the labels of the objects from its first key up to the next run's first key, in columns.
// It is immutable.
type run struct {
	first      string
	keys       []string
	labels     []wire.Labels
	signatures []signature
	// all has the bits of all signatures. Neighbours mostly have the same labels, so if all cannot
	// match, the objects need not be checked one by one.
	all signature
}

// labelRuns has the labels of all objects in the order of their keys. A search for labels reads
// these, and only the objects that match. A new version of an object mostly has the same labels;
// then the runs do not change. The run that starts at "" is always there.
type labelRuns struct {
	runs *btree.BTreeG[*run]
}

func newLabelRuns() labelRuns {
	l := labelRuns{runs: btree.NewG(degree, func(a, b *run) bool { return a.first < b.first })}
	l.runs.ReplaceOrInsert(&run{})
	return l
}

func (l labelRuns) clone() labelRuns { return labelRuns{runs: l.runs.Clone()} }

// upTo returns the run that holds key, and the one before it if before is true.
func (l labelRuns) upTo(key string, before bool) (holds, previous *run) {
	l.runs.DescendLessOrEqual(&run{first: key}, func(r *run) bool {
		if holds == nil {
			holds = r
			return before
		}
		previous = r
		return false
	})
	return holds, previous
}

// set adds or replaces the labels of a key.
func (l labelRuns) set(key string, labels wire.Labels) {
	r, _ := l.upTo(key, false)
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
			half = i // as a load comes, in order: what is full stays full
		}
		l.runs.ReplaceOrInsert(newRun(r.keys[half], r.keys[half:], r.labels[half:], r.signatures[half:]))
		r = newRun(r.first, slices.Clone(r.keys[:half]), slices.Clone(r.labels[:half]), slices.Clone(r.signatures[:half]))
	}
	l.runs.ReplaceOrInsert(r)
}

// remove takes a key out. A run that has become small joins the one before it.
func (l labelRuns) remove(key string) {
	r, before := l.upTo(key, true)
	i, found := slices.BinarySearch(r.keys, key)
	if !found {
		return
	}
	r = newRun(r.first, splice(r.keys, i, 1), splice(r.labels, i, 1), splice(r.signatures, i, 1))
	if before != nil && (len(r.keys) == 0 || len(r.keys) < maxRun/4 && len(before.keys)+len(r.keys) <= maxRun/2) {
		l.runs.Delete(r)
		r = newRun(before.first, slices.Concat(before.keys, r.keys), slices.Concat(before.labels, r.labels),
			slices.Concat(before.signatures, r.signatures))
	}
	l.runs.ReplaceOrInsert(r)
}

// splice is a copy of s with removed elements from i on replaced by added.
func splice[T any](s []T, i, removed int, added ...T) []T {
	return slices.Concat(s[:i], added, s[i+removed:])
}

func newRun(first string, keys []string, labels []wire.Labels, signatures []signature) *run {
	r := &run{first: first, keys: keys, labels: labels, signatures: signatures}
	for _, s := range signatures {
		r.all = r.all.with(s)
	}
	return r
}

// scan calls yield for each run in which the matcher chooses keys with from <= key < end: with these keys, which
// are valid until yield returns, and with how many the run has. An empty end is none. It ends when yield says no.
func (l labelRuns) scan(from, end string, m *matcher, yield func(chosen []string, of int) bool) {
	start, _ := l.upTo(from, false)
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
