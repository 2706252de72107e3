package index

import "github.com/google/btree"

// maxSegment is the number of neighbouring objects that one segment counts before it is split.
const maxSegment = 512

// segment has the number of objects from its first key up to the next segment's first key.
type segment struct {
	first string
	n     int
}

// ranks counts the objects from a key on without visiting all of them. google/btree has no ranks, so a second tree, which
// is cloned with the first, counts segments of some hundred neighbouring objects. There is always a segment that begins
// at "", so every key is in exactly one segment.
type ranks struct {
	segments *btree.BTreeG[segment]
}

func newRanks() ranks {
	r := ranks{segments: btree.NewG(degree, func(a, b segment) bool { return a.first < b.first })}
	r.segments.ReplaceOrInsert(segment{})
	return r
}

func (r ranks) clone() ranks { return ranks{segments: r.segments.Clone()} }

// segmentOf returns the segment that holds key.
func (r ranks) segmentOf(key string) segment {
	var s segment
	r.segments.DescendLessOrEqual(segment{first: key}, func(found segment) bool {
		s = found
		return false
	})
	return s
}

// after returns the segment that follows s.
func (r ranks) after(s segment) (segment, bool) {
	var next segment
	found := false
	r.segments.AscendGreaterOrEqual(s, func(t segment) bool {
		if t.first == s.first {
			return true
		}
		next, found = t, true
		return false
	})
	return next, found
}

// add counts a key that was added to objects.
func (r ranks) add(key string, objects *btree.BTreeG[*Object]) {
	s := r.segmentOf(key)
	s.n++
	if s.n <= maxSegment {
		r.segments.ReplaceOrInsert(s)
		return
	}
	half, i := segment{}, 0
	objects.AscendGreaterOrEqual(&Object{Key: s.first}, func(o *Object) bool {
		if i == s.n/2 {
			half = segment{first: o.Key, n: s.n - i}
			return false
		}
		i++
		return true
	})
	s.n -= half.n
	r.segments.ReplaceOrInsert(s)
	r.segments.ReplaceOrInsert(half)
}

// remove counts a key no longer. A segment that has become small joins the one before it, so that the number of segments
// shrinks with the number of objects.
func (r ranks) remove(key string) {
	s := r.segmentOf(key)
	s.n--
	if s.first == "" || s.n >= maxSegment/4 {
		r.segments.ReplaceOrInsert(s)
		return
	}
	var before segment
	r.segments.DescendLessOrEqual(s, func(t segment) bool {
		before = t
		return t.first == s.first
	})
	if before.n+s.n > maxSegment/2 {
		r.segments.ReplaceOrInsert(s)
		return
	}
	r.segments.Delete(s)
	before.n += s.n
	r.segments.ReplaceOrInsert(before)
}

// count returns how many objects of t have from <= key < end; an empty end is none. It visits at
// most two segments' objects, and the segments between them.
func (r ranks) count(t Tree, from, end string) int64 {
	if end != "" && end <= from {
		return 0
	}
	next, more := r.after(r.segmentOf(from))
	if !more || (end != "" && next.first >= end) {
		return walk(t, from, end)
	}
	n := walk(t, from, next.first)
	tail, hasTail := "", false
	pending := int64(0)
	r.segments.AscendGreaterOrEqual(next, func(s segment) bool {
		if end != "" && s.first >= end {
			return false
		}
		// Only the begin of the next segment shows that a segment lies wholly inside the range.
		n += pending
		pending, tail, hasTail = int64(s.n), s.first, true
		return true
	})
	if end == "" {
		return n + pending
	}
	if hasTail {
		n += walk(t, tail, end)
	}
	return n
}

func walk(t Tree, from, end string) int64 {
	n := int64(0)
	t.Ascend(from, end, func(*Object) bool { n++; return true })
	return n
}
